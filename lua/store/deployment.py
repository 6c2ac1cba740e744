"""Facts about the whole deployment: presence of its processes, weights, number of cells, log debouncing."""

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

#: Maximum number of listed processes.
PRESENT_MAX: Final = 4_096
#: Maximum length of stored names: operators who set weights, debounced services.
NAME_MAX: Final = 128

_weights_decoder = msgspec.msgpack.Decoder(Weights)
_counts_decoder = msgspec.json.Decoder(dict[str, int])


class DeploymentStore:
    """Records that belong to no cell."""

    def __init__(self, runner: Runner, keys: Keys, config: Config) -> None:
        self._runner = runner
        self._keys = keys
        self._presence_ttl_ms = config.selector.presence_ttl_ms
        self._debounce_ms = config.models.debounce_ms

    async def check(self, cells: int) -> None:
        """ConfigError if the deployment has another number of cells; stores it when new."""
        [stored] = await self._runner.call("deployment_check", [self._keys.deployment()], {"cells": cells})
        if stored != cells:
            raise ConfigError(
                f"mesh.cells is {cells}, but this deployment has {stored}: set it to {stored}, "
                f"or use another mesh.key_prefix for a new deployment"
            )

    # processes
    async def announce(self, kind: str, identity: str, facts: Presence) -> None:
        """Renew the presence of a process, for `selector.presence_ttl_ms`."""
        args = {
            "name": f"{kind} {identity}",
            "host": facts.host,
            "pid": facts.pid,
            "version": facts.version,
            "started_at_ms": facts.started_at_ms,
            "counts": msgspec.json.encode(facts.counts),
            "ttl_ms": self._presence_ttl_ms,
        }
        await self._runner.call("presence_announce", self._presence_keys(kind, identity), args)

    async def withdraw(self, kind: str, identity: str) -> None:
        """Remove the presence of a process that ends."""
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
        """The identities of the live processes of a kind, complete; StoreError beyond PRESENT_MAX processes."""
        names = await self._names()
        if len(names) >= PRESENT_MAX:
            raise StoreError(f"more than {PRESENT_MAX} processes: not all can be listed")
        return [identity for its_kind, identity in names if its_kind == kind]

    async def _names(self) -> list[tuple[str, str]]:
        """Kind and identity of each live process."""
        [names] = await self._runner.call("presence_list", [self._keys.present()], {"limit": PRESENT_MAX})
        names_split = (name.decode().partition(" ") for name in names)
        return [(kind, identity) for kind, _, identity in names_split]

    def _presence_keys(self, kind: str, identity: str) -> list[str]:
        return [self._keys.present(), self._keys.presence(kind, identity)]

    # weights
    async def weights(self) -> StoredWeights:
        """The weights in force."""
        version, packed, since_ms, by = await self._runner.call("weights_get", [self._keys.weights()], {})
        try:
            return StoredWeights(version, _weights_decoder.decode(packed) if packed else None, since_ms, by)
        except msgspec.DecodeError as error:
            raise StoreError(f"the weights of version {version} cannot be decoded: {error}") from None

    async def set_weights(self, weights: Weights, expected_version: int | None, by: str) -> StoredWeights | None:
        """Compare-and-set; None if `expected_version` is given and not in force."""
        expected = -1 if expected_version is None else expected_version
        args = {"packed": msgspec.msgpack.encode(weights), "expected": expected, "by": by[:NAME_MAX]}
        is_set, version, since_ms = await self._runner.call("weights_set", [self._keys.weights()], args)
        return StoredWeights(version, weights, since_ms, by[:NAME_MAX]) if is_set else None

    async def debounce(self, service_id: str, version: str) -> bool:
        """True for the first report of a service and version in `models.debounce_ms`, in the whole deployment."""
        key = self._keys.debounce(service_id[:NAME_MAX], version[:NAME_MAX])
        [is_first] = await self._runner.call("log_debounce", [key], {"window_ms": self._debounce_ms})
        return bool(is_first)


def _presence(answer: Answer) -> Presence | None:
    """None if it expired between presence_list and presence_get."""
    known, host, pid, version, started_at_ms, counts = sure(answer)
    try:
        return Presence(host, pid, version, started_at_ms, _counts_decoder.decode(counts)) if known else None
    except msgspec.DecodeError as error:
        raise StoreError(f"the presence of a process cannot be decoded: {error}") from None
