"""Changes of pairing codes: issue, redeem, revoke; rate limits for nodes and clients."""

from __future__ import annotations

from lua.engine.runner import Runner
from lua.store.types.pairing import IssuedCode, PairingAttempt
from mesh.cells import cell_of
from mesh.config import Config
from mesh.keys import Keys


class PairingStore:
    """The records of pairing codes."""

    def __init__(self, runner: Runner, keys: Keys, config: Config) -> None:
        self._runner = runner
        self._keys = keys
        self._cells = config.mesh.cells
        pairing = config.pairing
        self._ttl_ms = pairing.ttl_ms
        self._issue_limits = {
            "codes_max": pairing.codes_per_node_max,
            "window_ms": pairing.window_ms,
            "ttl_ms": pairing.ttl_ms,
        }
        self._attempt_limits = {"wrong_max": pairing.wrong_per_client_max, "window_ms": pairing.window_ms}

    # for a node
    async def issue(self, node_id: str, asker: str, serial: int, code: str, instead_of: str = "") -> IssuedCode:
        """The code for the node: `code`, unless this request has another one that is not `instead_of` (taken)."""
        keys, cell = self._keys, cell_of(node_id, self._cells)
        names = [keys.node(cell, node_id), keys.pairing_asked(cell, node_id), keys.pairing_latest(cell, node_id)]
        args = {"asker": asker, "serial": serial, "code": code, "instead_of": instead_of, **self._issue_limits}
        return IssuedCode(*await self._runner.call("pairing_issue", names, args))

    async def create(self, code: str, node_id: str, request: str) -> int:
        """Assign the code to the node; returns its TTL, 0 if it is taken."""
        args = {"node_id": node_id, "request": request, "ttl_ms": self._ttl_ms}
        [left_ms] = await self._runner.call("pairing_create", [self._code_key(code)], args)
        return int(left_ms)

    async def revoke(self, code: str, node_id: str) -> bool:
        """Delete a code that a newer one replaces. False: it was redeemed, or has expired."""
        [ended] = await self._runner.call("pairing_revoke", [self._code_key(code)], {"node_id": node_id})
        return bool(ended)

    # for a client
    async def attempt(self, client: str, use: str) -> PairingAttempt:
        """Count an attempt of the client, as failed until `attempt_ok`; not allowed beyond the rate limit."""
        allowed, wait_ms = await self._runner.call(
            "pairing_attempt", [self._attempts_key(client)], {"use": use, **self._attempt_limits}
        )
        return PairingAttempt(bool(allowed), wait_ms)

    async def redeem(self, code: str, use: str) -> str:
        """Redeem the code; its node, "" if there is none. Idempotent per `use`."""
        [node_id] = await self._runner.call(
            "pairing_redeem", [self._code_key(code)], {"use": use, "keep_ms": self._ttl_ms}
        )
        return str(node_id)

    async def attempt_ok(self, client: str, use: str) -> None:
        """The code was right: the attempt does not count as failed."""
        await self._runner.call("pairing_attempt_ok", [self._attempts_key(client)], {"use": use})

    def _code_key(self, code: str) -> str:
        return self._keys.pairing(cell_of(code, self._cells), code)

    def _attempts_key(self, client: str) -> str:
        return self._keys.pairing_wrong(cell_of(client, self._cells), client)
