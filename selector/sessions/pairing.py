"""Handlers for pairing: nodes request codes, clients redeem them. A code is random, short-lived and used once."""

from __future__ import annotations

from typing import Final, NamedTuple

from mesh.errors import ErrorCode, PeerError, StoreError
from mesh.frames import Failed, Frame, Paired, PairingAsk, PairingCode, PairingUse
from mesh.ids import is_code, is_id
from mesh.link.link import Received
from mesh.log import get_logger
from mesh.random_ids import new_code
from mesh.words import PairingOutcome
from selector.context import SelectorContext
from selector.core.reply import store_down

#: Random codes tried before a node gets SLOW_DOWN.
CODE_TRIES_MAX: Final = 16

log = get_logger()


class Issued(NamedTuple):
    """A code of a node."""

    code: str
    expires_in_ms: int


class PairingHandler:
    """Handlers for the frames of pairing."""

    def __init__(self, context: SelectorContext) -> None:
        self._store = context.store.pairing
        self._limits = context.config.pairing
        self._metrics = context.metrics
        self._send = context.send

    # --- nodes ----------------------------------------------------------------------------------------------

    async def on_pairing_ask(self, frame: PairingAsk, message: Received) -> None:
        """A node requests a code."""
        try:
            issued = await self.code_for(frame.node_id, frame.edge, int(frame.ref))
        except PeerError as error:
            self._reply(message, frame.edge, Failed(frame.ref, error.code.name, error.message))
        except StoreError:
            self._reply(message, frame.edge, store_down(frame.ref, frame.edge).frame)
            raise
        else:
            if issued is not None:
                code = PairingCode(frame.ref, frame.node_id, issued.code, issued.expires_in_ms)
                self._reply(message, frame.edge, code)

    async def code_for(self, node_id: str, asker: str, serial: int) -> Issued | None:
        """A new code for the node, whose earlier one is revoked; None for a late duplicate of an old request.

        `serial` numbers the requests of `asker`: a retry gets the same code. Raises PeerError if the node gets none.
        """
        if not is_id(node_id):
            raise PeerError(ErrorCode.INVALID_ID, "`node_id` is not an id")
        taken = ""
        for _ in range(CODE_TRIES_MAX):
            plan = await self._store.issue(node_id, asker, serial, new_code(), instead_of=taken)
            if plan.verdict == "late":
                return None
            if plan.verdict == "unknown":
                self._count(PairingOutcome.UNKNOWN)
                raise PeerError(ErrorCode.NOT_REGISTERED, f"there is no node {node_id}")
            if plan.verdict == "slow":
                self._count(PairingOutcome.SLOW_NODE)
                raise PeerError(ErrorCode.SLOW_DOWN, self._too_many_codes(plan.wait_ms))
            left_ms = await self._store.create(plan.code, node_id, f"{asker} {serial}")
            if left_ms:
                if plan.earlier:
                    await self._store.revoke(plan.earlier, node_id)
                self._count(PairingOutcome.ISSUED)
                log.info("pairing_code", node_id=node_id, asker=asker)
                return Issued(plan.code, left_ms)
            taken = plan.code
        raise PeerError(ErrorCode.SLOW_DOWN, "no code is free; ask again in a while")

    def _too_many_codes(self, wait_ms: int) -> str:
        codes = self._limits.codes_per_node_max
        return f"the node asked for {codes} codes in {_seconds(self._limits.window_ms)}; ask in {_seconds(wait_ms)}"

    # --- clients --------------------------------------------------------------------------------------------

    async def on_pairing_use(self, frame: PairingUse, message: Received) -> None:
        """A client redeems a code. After too many wrong ones it is throttled, even with a right one."""
        if not (is_id(frame.client) and is_id(frame.use)):
            raise ValueError("`client` or `use` is not an id")
        try:
            answer = await self._answer_to(frame)
        except StoreError:
            self._reply(message, frame.edge, store_down(frame.ref, frame.edge).frame)
            raise
        self._reply(message, frame.edge, answer)
        if isinstance(answer, Paired):
            log.info("paired", node_id=answer.node_id, edge=frame.edge)
            await self._store.attempt_ok(frame.client, frame.use)

    async def _answer_to(self, frame: PairingUse) -> Frame:
        if not is_code(frame.code):
            return self._wrong(frame, "a pairing code is six digits")
        tried = await self._store.attempt(frame.client, frame.use)
        if not tried.allowed:
            self._count(PairingOutcome.SLOW_CLIENT)
            text = f"too many wrong pairing codes; try again in {_seconds(tried.wait_ms)}"
            return Failed(frame.ref, ErrorCode.SLOW_DOWN.name, text)
        node_id = await self._store.redeem(frame.code, frame.use)
        if not node_id:
            return self._wrong(frame, "the pairing code is wrong, was used, or has lapsed")
        self._count(PairingOutcome.PAIRED)
        return Paired(frame.ref, node_id)

    def _wrong(self, frame: PairingUse, text: str) -> Failed:
        self._count(PairingOutcome.WRONG)
        return Failed(frame.ref, ErrorCode.INVALID_PAIRING_CODE.name, text)

    # --- inside -----------------------------------------------------------------------------------------------

    def _count(self, outcome: PairingOutcome) -> None:
        self._metrics.pairing_total.labels(outcome).inc()

    def _reply(self, message: Received, edge: str, answer: Frame) -> None:
        self._send(edge, message.head.cell, answer, prefer=message.broker)


def _seconds(time_ms: int) -> str:
    """As text, rounded up so that the wait is long enough."""
    return f"{max(1, -(-time_ms // 1_000))} s"
