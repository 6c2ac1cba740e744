"""The line of requests without a node: who enters, when they are tried again, who must leave. See core/waiting.py.

A request in line holds no credit and no slot, only its audio. It is tried again when slots come free, the nearest
deadline first, and now and then in any case. Its edge asks from time to time; any selector may answer, the binding in
Redis keeps a second placing from doing harm.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from mesh import clock
from mesh.cells import cell_of
from mesh.config import Config
from mesh.frames import Waiting
from mesh.link.link import Send
from mesh.log import get_logger
from mesh.words import DispatchOutcome, RefusalReason
from selector.metrics import SelectorMetrics
from selector.placement.core.wait_order import Waiter, WaitOrder, is_too_late
from selector.placement.placement import Placement
from selector.placement.refusals import Refusals

#: How often the line is tried although nobody said that slots are free.
RETRY_MS: Final = 250
#: Requests tried together at the start of a pass; doubles, because one slot rarely comes alone.
FIRST_LOT: Final = 4
#: A request without a deadline has this one: it leaves the line long before.
NO_DEADLINE_MS: Final = 86_400_000

#: Looks for nodes for requests that were in line; sets `outcome` of those that found one.
TryAgain = Callable[[list[Placement]], Awaitable[None]]
#: Tells which requests were placed all the same, perhaps by another selector; sets their `outcome`.
LookUp = Callable[[list[Placement]], Awaitable[None]]

log = get_logger()


class WaitQueue:
    """Everybody who waits at this selector."""

    def __init__(
        self, config: Config, metrics: SelectorMetrics, send: Send, refusals: Refusals, again: TryAgain, look: LookUp
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._send = send
        self._refusals = refusals
        self._try_again = again
        self._look_up = look
        self._line: WaitOrder[Placement] = WaitOrder(config.job.waiting_max, config.job.waiting_bytes_max)
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._line)

    # --- in and out -----------------------------------------------------------------------------------------

    async def enter(self, requests: list[Placement]) -> None:
        """No node for these: they stand in line, or are refused if that helps nobody."""
        evicted: list[Waiter[Placement]] = []
        for request in requests:
            waiter = self._waiter(request)
            if not self._refusals.is_worth_waiting(request):
                self._refusals.refuse(request)
            elif waiter.until_ms <= clock.now_ms():
                self._refuse(waiter)
            elif self._line.find(request.dispatch.request_id) is None:
                if not len(self._line):
                    self._wake.set()  # somebody must look after the line from now on
                request.has_waited = True
                evicted += self._line.push(waiter)
        for request in requests:
            waiting = self._line.find(request.dispatch.request_id)
            if waiting is not None and waiting.item is request:
                self._tell(request)
        await self._give_up(evicted, RefusalReason.LINE_FULL)
        self._measure()

    def is_behind(self, request: Placement) -> bool:
        """True if others wait for the same: who comes now must not overtake them, and learns what they know."""
        waiter = self._line.like(request.needs)
        if waiter is None or request.dispatch.beside:
            return False
        request.removed, request.is_barred = waiter.item.removed, waiter.item.is_barred
        return True

    def take_back(self, request_id: str, attempt: int) -> tuple[bool, Placement | None]:
        """A Dispatch came for somebody in line. Whether it is news to us, and whom it makes leave the line.

        A repeat goes through the whole way again, with its old place: only Redis knows whether it was placed elsewhere
        meanwhile. While it is being tried, and if a later attempt is in line, there is nothing to do.
        """
        waiter = self._line.find(request_id)
        if waiter is None:
            return True, None
        request = waiter.item
        if waiter.attempt > attempt:
            return False, None
        if waiter.attempt < attempt:
            request.is_unwanted = True
            self._line.remove(waiter)
            return True, None
        if request.is_being_tried:
            self._tell(request)
            return False, None
        self._line.remove(waiter)
        return True, request

    def forget(self, request_id: str, attempt: int) -> None:
        """Nobody wants it any more."""
        waiter = self._line.forget(request_id, attempt)
        if waiter is not None:
            waiter.item.is_unwanted = True
            self._measure()

    # --- again ------------------------------------------------------------------------------------------------

    def slots_freed(self) -> None:
        """Somebody may find a node now."""
        if len(self._line):
            self._wake.set()

    async def run(self) -> None:
        """Try again, refuse in time, for ever."""
        while True:
            await self._pause()
            started_ms = clock.now_ms()
            try:
                await self._give_up(self._line.overdue(started_ms))
                await self._pass()
            except Exception:  # gateway: what went wrong with one must not end the line of all
                log.exception("waiting_failed", waiting=len(self._line))
            self._measure()
            # Others need the processor too: never more than half of it for those who wait.
            await asyncio.sleep((clock.now_ms() - started_ms) / 1_000)

    async def _pause(self) -> None:
        if not len(self._line):
            await self._wake.wait()
        else:
            try:
                await asyncio.wait_for(self._wake.wait(), RETRY_MS / 1_000)
            except TimeoutError:
                pass
        self._wake.clear()

    async def _pass(self) -> None:
        """Try everybody once, the nearest deadline first; of those with the same needs until the first finds none."""
        queue = deque(self._line)
        found_none: set[object] = set()
        lot = FIRST_LOT
        while queue:
            waiters: list[Waiter[Placement]] = []
            while queue and len(waiters) < lot:
                waiter = queue.popleft()
                if self._line.stands(waiter) and waiter.item.needs not in found_none:
                    waiters.append(waiter)
            if not waiters:
                return
            await self._try(waiters)
            found_none |= {waiter.item.needs for waiter in waiters if not waiter.item.outcome}
            lot = min(2 * lot, self._config.selector.batch_max)

    async def _try(self, waiters: list[Waiter[Placement]]) -> None:
        requests = [waiter.item for waiter in waiters]
        for request in requests:
            request.begin_try()
            request.is_being_tried = True
        try:
            await self._try_again(requests)
        finally:
            for request in requests:
                request.is_being_tried = False
        for waiter in waiters:
            if waiter.item.is_placed:
                self._leave(waiter)
            elif self._line.stands(waiter) and not self._refusals.is_worth_waiting(waiter.item):
                self._leave(waiter)
                self._refuse(waiter)

    async def _give_up(self, waiters: list[Waiter[Placement]], reason: str = "") -> None:
        """They waited long enough, or gave way; those that were placed elsewhere meanwhile are not refused."""
        idle = [waiter for waiter in waiters if not waiter.item.is_being_tried]
        for waiter in idle:
            self._leave(waiter)
            waiter.item.outcome = ""  # what an earlier try could not tell, this look may
        if idle:
            await self._look_up([waiter.item for waiter in idle])
        for waiter in idle:
            if not waiter.item.outcome:  # what Redis cannot tell is left to its edge, which asks again
                self._refuse(waiter, reason)

    # --- inside -----------------------------------------------------------------------------------------------

    def _waiter(self, request: Placement) -> Waiter[Placement]:
        dispatch, now_ms = request.dispatch, clock.now_ms()
        left_ms = dispatch.deadline_ms - clock.wall_ms() if dispatch.deadline_ms else NO_DEADLINE_MS
        deadline_ms = now_ms + left_ms
        predicted_ms = self._refusals.outlook(request).predicted_ms
        until_ms = min(request.since_ms + self._config.job.pending_timeout_ms, deadline_ms - predicted_ms)
        size_bytes = sum(map(len, request.payload))
        return Waiter(
            dispatch.request_id,
            dispatch.attempt,
            deadline_ms,
            request.since_ms,
            until_ms,
            size_bytes,
            request.needs,
            request,
        )

    def _leave(self, waiter: Waiter[Placement]) -> None:
        self._line.remove(waiter)
        self._metrics.waited_seconds.observe(waiter.item.waited_ms(clock.now_ms()) / 1_000)

    def _refuse(self, waiter: Waiter[Placement], reason: str = "") -> None:
        request, now_ms = waiter.item, clock.now_ms()
        if not reason and is_too_late(now_ms, self._refusals.outlook(request).predicted_ms, waiter.deadline_ms):
            reason = RefusalReason.TOO_LATE
        self._refusals.refuse(request, reason=reason, ahead=self._line.ahead_of(waiter))

    def _tell(self, request: Placement) -> None:
        dispatch, job = request.dispatch, self._config.job
        frame = Waiting(dispatch.request_id, dispatch.attempt, self._refusals.reason(request), job.waiting_ask_ms)
        cell = cell_of(dispatch.session_id, self._config.mesh.cells)
        self._send(dispatch.edge, cell, frame, deadline_ms=dispatch.deadline_ms, prefer=request.broker)
        self._metrics.dispatch_total.labels(DispatchOutcome.WAITING).inc()

    def _measure(self) -> None:
        self._metrics.waiting.set(len(self._line))
        self._metrics.waiting_bytes.set(self._line.size_bytes)
