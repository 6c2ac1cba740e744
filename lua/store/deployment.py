"""Calls about the deployment as a whole: its processes, its weights, what it was born with."""

from __future__ import annotations

from typing import Final

import msgspec

from lua.engine.batch import Answer, sure
from lua.engine.runner import Call, Runner
from lua.store.types.deployment import Presence, StoredWeights
from mesh.config import Config
from mesh.config.weights import Weights
from mesh.errors import ConfigError, StoreError
from mesh.keys import Keys

#: Processes that a list names.
PRESENT_MAX: Final = 4_096
#: Characters that are kept of who set weights, and of the names in a debounce.
NAME_MAX: Final = 128

_weights_decoder = msgspec.msgpack.Decoder(Weights)
_counts_decoder = msgspec.json.Decoder(dict[str, int])


class DeploymentStore:
    """What concerns no node and no job."""

    def __init__(self, runner: Runner, keys: Keys, config: Config) -> None:
        self._runner = runner
        self._keys = keys
        self._presence_ttl_ms = config.selector.presence_ttl_ms
        self._debounce_ms = config.models.debounce_ms

    async def check(self, cells: int) -> None:
        """ConfigError when the deployment was born with another number of cells; writes it when new."""
        [born_with] = await self._runner.call("deployment_check", [self._keys.deployment()], {"cells": cells})
        if born_with != cells:
            raise ConfigError(
                f"mesh.cells is {cells}, but this deployment was born with {born_with}: set it to {born_with}, "
                f"or use another mesh.key_prefix for a new deployment"
            )

    # processes
    async def announce(self, kind: str, identity: str, facts: Presence) -> None:
        """A process lives."""
        args = {
            "name": f"{kind} {identity}", "host": facts.host, "pid": facts.pid, "version": facts.version,
            "started_at_ms": facts.started_at_ms, "counts": msgspec.json.encode(facts.counts),
            "ttl_ms": self._presence_ttl_ms,
        }  # fmt: skip
        await self._runner.call("presence_announce", self._presence_keys(kind, identity), args)

    async def withdraw(self, kind: str, identity: str) -> None:
        """A process ends."""
        args = {"name": f"{kind} {identity}"}
        await self._runner.call("presence_withdraw", self._presence_keys(kind, identity), args)

    async def processes(self, kind: str) -> list[tuple[str, Presence]]:
        """The live processes of a kind, by identity."""
        identities = sorted(identity for its_kind, identity in await self._names() if its_kind == kind)
        calls = [Call([self._keys.presence(kind, identity)], {}) for identity in identities]
        answers = await self._runner.call_many("presence_get", calls)
        found = [(identity, _presence(answer)) for identity, answer in zip(identities, answers, strict=True)]
        return [(identity, facts) for identity, facts in found if facts is not None]

    async def live_identities(self, kind: str) -> list[str]:
        """The identities of the live processes of a kind; StoreError if they are too many to be sure."""
        names = await self._names()
        if len(names) >= PRESENT_MAX:
            raise StoreError(f"more than {PRESENT_MAX} processes: not all can be listed")
        return [identity for its_kind, identity in names if its_kind == kind]

    async def _names(self) -> list[tuple[str, str]]:
        """Kind and identity of whoever is present."""
        [names] = await self._runner.call("presence_list", [self._keys.present()], {"limit": PRESENT_MAX})
        said = (name.decode().partition(" ") for name in names)
        return [(kind, identity) for kind, _, identity in said]

    def _presence_keys(self, kind: str, identity: str) -> list[str]:
        return [self._keys.present(), self._keys.presence(kind, identity)]

    # weights
    async def weights(self) -> StoredWeights:
        """Those in force."""
        version, packed, since_ms, by = await self._runner.call("weights_get", [self._keys.weights()], {})
        try:
            return StoredWeights(version, _weights_decoder.decode(packed) if packed else None, since_ms, by)
        except msgspec.DecodeError as error:
            raise StoreError(f"the weights of version {version} cannot be read: {error}") from None

    async def set_weights(self, weights: Weights, expected_version: int | None, by: str) -> StoredWeights | None:
        """Put others in force; None if the version is not the one expected."""
        expected = -1 if expected_version is None else expected_version
        args = {"packed": msgspec.msgpack.encode(weights), "expected": expected, "by": by[:NAME_MAX]}
        is_set, version, since_ms = await self._runner.call("weights_set", [self._keys.weights()], args)
        return StoredWeights(version, weights, since_ms, by[:NAME_MAX]) if is_set else None

    async def debounce(self, service_id: str, version: str) -> bool:
        """True for the first word about a service and version in a while."""
        key = self._keys.debounce(service_id[:NAME_MAX], version[:NAME_MAX])
        [is_first] = await self._runner.call("log_debounce", [key], {"window_ms": self._debounce_ms})
        return bool(is_first)


def _presence(answer: Answer) -> Presence | None:
    """None if it lapsed between the list and the look."""
    known, host, pid, version, started_at_ms, counts = sure(answer)
    try:
        return Presence(host, pid, version, started_at_ms, _counts_decoder.decode(counts)) if known else None
    except msgspec.DecodeError as error:
        raise StoreError(f"what a process says of itself cannot be read: {error}") from None
