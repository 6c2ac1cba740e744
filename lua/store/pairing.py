"""Calls about pairing codes: which node a code stands for, who used it, and who asked or guessed too often."""

from __future__ import annotations

from lua.engine.runner import Runner
from lua.store.types.pairing import PairingPlan, PairingTry
from mesh.cells import cell_of
from mesh.config import Config
from mesh.keys import Keys


class PairingStore:
    """The records of pairing codes. Every method raises StoreError when Redis cannot be used."""

    def __init__(self, runner: Runner, keys: Keys, config: Config) -> None:
        self._runner = runner
        self._keys = keys
        self._cells = config.mesh.cells
        pairing = config.pairing
        self._ttl_ms = pairing.ttl_ms
        self._asking = {
            "codes_max": pairing.codes_per_node_max, "window_ms": pairing.window_ms, "ttl_ms": pairing.ttl_ms,
        }  # fmt: skip
        self._trying = {"wrong_max": pairing.wrong_per_client_max, "window_ms": pairing.window_ms}

    # a node asks
    async def issue(self, node_id: str, asker: str, serial: int, code: str, instead_of: str = "") -> PairingPlan:
        """The code that the node shall have: `code`, unless this request has one that is not taken."""
        keys, cell = self._keys, cell_of(node_id, self._cells)
        names = [keys.node(cell, node_id), keys.pairing_asked(cell, node_id), keys.pairing_latest(cell, node_id)]
        args = {"asker": asker, "serial": serial, "code": code, "instead_of": instead_of, **self._asking}
        return PairingPlan(*await self._runner.call("pairing_issue", names, args))

    async def create(self, code: str, node_id: str, request: str) -> int:
        """Let the code stand for the node; how long it will, 0 if it is taken."""
        args = {"node_id": node_id, "request": request, "ttl_ms": self._ttl_ms}
        [left_ms] = await self._runner.call("pairing_create", [self._code(code)], args)
        return int(left_ms)

    async def revoke(self, code: str, node_id: str) -> bool:
        """The node has a newer code. False: this one was used, or had ended."""
        [ended] = await self._runner.call("pairing_revoke", [self._code(code)], {"node_id": node_id})
        return bool(ended)

    # a client presents a code
    async def attempt(self, client: str, use: str) -> PairingTry:
        """May the client present a code? It counts as a wrong one until it is forgiven."""
        allowed, wait_ms = await self._runner.call(
            "pairing_attempt", [self._wrong(client)], {"use": use, **self._trying}
        )
        return PairingTry(bool(allowed), wait_ms)

    async def redeem(self, code: str, use: str) -> str:
        """Use the code; the node that it stood for, "" if it stands for none. A repeat of the use gets the same."""
        [node_id] = await self._runner.call("pairing_redeem", [self._code(code)], {"use": use, "keep_ms": self._ttl_ms})
        return str(node_id)

    async def attempt_ok(self, client: str, use: str) -> None:
        """The code was right."""
        await self._runner.call("pairing_attempt_ok", [self._wrong(client)], {"use": use})

    def _code(self, code: str) -> str:
        return self._keys.pairing(cell_of(code, self._cells), code)

    def _wrong(self, client: str) -> str:
        return self._keys.pairing_wrong(cell_of(client, self._cells), client)
