"""The wait queue: placements without a node, retried until one is free or they time out. Order: core/deadline_queue.py.

A queued placement holds no credit and no slot, only its audio. The end of a job gives its slot to a queued placement in
the same call of the store (turnover.py). Other changes of the fleet wake a pass over the queue, earliest deadline
first, and so does every RETRY_MS. Its edge gets Waiting after `job.waiting_notice_ms`, and retries the Dispatch from
time to time; any selector may reply, and the binding in Redis makes a second placement harmless.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from mesh import clock
from mesh.cells import cell_of
from mesh.frames import Waiting
from mesh.log import get_logger
from mesh.words import DispatchOutcome, RefusalReason
from selector.context import SelectorContext
from selector.core.filters import Filter
from selector.placement.core.deadline_queue import DeadlineQueue, QueueEntry, is_too_late
from selector.placement.core.replies import main_reason
from selector.placement.placement import Placement
from selector.placement.refusals import Refusals

#: Retry interval without a notification of free slots.
RETRY_MS: Final = 250
#: Placements of the first batch of a pass; doubles, because slots rarely come free one at a time.
FIRST_BATCH: Final = 4
#: Least time between two runs of the timer that sends Waiting.
NOTICE_STEP_MS: Final = 20
#: Entries that `take` looks at: it runs for every batch of ended jobs. A pass looks at the rest.
SCAN_MAX: Final = 256
#: The deadline of a placement without one: it times out long before.
NO_DEADLINE_MS: Final = 86_400_000

#: Retries queued placements; sets `outcome` of those that found a node.
Retry = Callable[[list[Placement]], Awaitable[None]]
#: Looks up placements that have a node already, perhaps by another selector; sets their `outcome`.
LookUp = Callable[[list[Placement]], Awaitable[None]]

log = get_logger()


class Taken(NamedTuple):
    """Entries for freed slots; `entered` and `is_all` tell whether others might use a slot that none of them takes."""

    entries: list[QueueEntry[Placement]]
    #: Placements that had entered the queue by then.
    entered: int
    #: Every needs in the queue has as many entries here as there were slots, or all that it has.
    is_all: bool


class WaitQueue:
    """All placements that wait at this selector."""

    def __init__(self, context: SelectorContext, refusals: Refusals, retry: Retry, look_up: LookUp) -> None:
        self._context = context
        self._config = context.config
        self._metrics = context.metrics
        self._refusals = refusals
        self._retry = retry
        self._look_up = look_up
        job = context.config.job
        self._queue: DeadlineQueue[Placement] = DeadlineQueue(job.waiting_max, job.waiting_bytes_max)
        #: Request id -> its entry; empty most of the time.
        self.queued: Mapping[str, QueueEntry[Placement]] = self._queue.by_request
        self._wake = asyncio.Event()
        #: Placements that ever entered.
        self._entered = 0
        #: How often slots came free.
        self.freed = 0
        #: When the edge of a request gets Waiting: time, request and attempt, in order; and the timer of the first.
        #: Ids and not entries: the audio of a request that has left must not stay here.
        self._notices: deque[tuple[int, str, int]] = deque()
        self._notice_timer: asyncio.TimerHandle | None = None
        self._metrics.waiting.set_function(lambda: len(self._queue))
        self._metrics.waiting_bytes.set_function(lambda: self._queue.size_bytes)

    # --- in and out -----------------------------------------------------------------------------------------

    async def enter(self, placements: list[Placement], freed: int = 0) -> None:
        """Queue placements without a node, or refuse those for which waiting is useless. `freed`: when chosen for."""
        evicted: list[QueueEntry[Placement]] = []
        for placement in placements:
            entry = self._entry(placement)
            if not self._is_worth_waiting(placement):
                self._refusals.refuse(placement)
            elif entry.until_ms <= clock.now_ms():
                self._refuse(entry)
            elif self.queued.get(placement.dispatch.request_id) is None:
                if not self.queued or self.freed != freed:
                    self._wake.set()  # `run` waits without a timeout while the queue is empty
                placement.has_waited = True
                self._entered += 1
                evicted += self._queue.push(entry)
                self._expect_notice(entry)
        if evicted:
            await self._abandon(evicted, RefusalReason.WAIT_QUEUE_FULL)

    def _is_worth_waiting(self, placement: Placement) -> bool:
        """True also behind others with the same needs, for which it was true; but a hedge never waits."""
        is_hedge = placement.dispatch.beside
        has_others = not is_hedge and self._queue.find_same_needs(placement.needs) is not None
        return has_others or self._refusals.is_worth_waiting(placement)

    def is_behind(self, placement: Placement) -> bool:
        """True if others with the same needs are queued: it must not overtake them, and takes over their counts."""
        entry = self._queue.find_same_needs(placement.needs)
        if entry is None or placement.dispatch.beside:
            return False
        placement.removed, placement.is_barred = list(entry.item.removed_counts()), entry.item.is_barred
        if entry.item.is_retrying:  # its candidates are not counted, and are taken for this one
            placement.removed[Filter.SLOT] += len(entry.item.candidates)
        return True

    def on_dispatch(self, request_id: str, attempt: int) -> tuple[bool, Placement | None]:
        """Handle a Dispatch of a queued request. Returns (process it?, the queued placement to reuse).

        A retry is processed with its original arrival time, because another selector may have placed it. It is ignored
        while its commit is in progress, and if a later attempt is queued.
        """
        entry = self.queued.get(request_id)
        if entry is None:
            return True, None
        placement = entry.item
        if entry.attempt > attempt:
            return False, None
        if entry.attempt == attempt and placement.is_retrying:
            self._send_waiting(placement)
            return False, None
        self._queue.remove(entry)
        if entry.attempt == attempt:
            return True, placement
        placement.is_cancelled = True
        return True, None

    def cancel(self, request_id: str, attempt: int) -> None:
        """Remove a cancelled attempt, or an older one."""
        entry = self._queue.cancel(request_id, attempt)
        if entry is not None:
            entry.item.is_cancelled = True

    # --- freed slots ------------------------------------------------------------------------------------------

    def take(self, slots: int) -> Taken:
        """The entries that may use that many freed slots, for one retry; `put_back` must follow."""
        found, is_all = self._queue.first(slots, SCAN_MAX)
        entries = [entry for entry in found if not entry.item.is_retrying]
        self._begin(entries)
        # What another retry has taken may come back without a node, and its slot with it.
        return Taken(entries, self._entered, is_all and len(entries) == len(found))

    def put_back(self, taken: Taken, *, has_spare: bool) -> None:
        """The retry is over: placed entries leave. `has_spare`: a slot may still be free, for entries beyond these."""
        self._end(taken.entries)
        self.freed += has_spare
        if has_spare and (self._entered != taken.entered or not taken.is_all):
            self.slots_freed()

    def _begin(self, entries: list[QueueEntry[Placement]]) -> None:
        for entry in entries:
            entry.item.begin_retry()
            entry.item.is_retrying = True

    def _end(self, entries: list[QueueEntry[Placement]]) -> None:
        for entry in entries:
            placement = entry.item
            placement.is_retrying = False
            if placement.is_placed:
                self._remove(entry)
            elif placement.outcome:
                placement.count_full()  # "unknown": perhaps it has a node; others with its needs take over its counts
            elif self._queue.is_queued(entry) and not self._refusals.is_worth_waiting(placement):
                self._remove(entry)
                self._refuse(entry)

    # --- passes -----------------------------------------------------------------------------------------------

    def slots_freed(self) -> None:
        """Retry soon: a slot may be free."""
        self.freed += 1
        if self.queued:
            self._wake.set()

    async def run(self) -> None:
        """Retry and refuse until cancelled."""
        while True:
            await self._pause()
            started_ms = clock.now_ms()
            try:
                await self._abandon(self._queue.overdue(started_ms))
                await self._pass()
            except Exception:  # gateway: a bug with one placement must not stop the whole queue
                log.exception("waiting_failed", waiting=len(self._queue))
            # At most half of the processor for the queue: new work needs it too.
            await asyncio.sleep((clock.now_ms() - started_ms) / 1_000)

    async def _pause(self) -> None:
        if not self.queued:
            await self._wake.wait()
        else:
            try:
                await asyncio.wait_for(self._wake.wait(), RETRY_MS / 1_000)
            except TimeoutError:
                pass
        self._wake.clear()

    async def _pass(self) -> None:
        """Retry every entry once, earliest deadline first; entries with equal needs only until one finds no node."""
        entered = self._entered
        left = deque(self._queue)
        without_node: set[object] = set()
        batch_max = FIRST_BATCH
        while left:
            batch: list[QueueEntry[Placement]] = []
            while left and len(batch) < batch_max:
                entry = left.popleft()
                is_free = self._queue.is_queued(entry) and not entry.item.is_retrying
                if is_free and entry.item.needs not in without_node:
                    batch.append(entry)
            if not batch:
                break
            await self._retry_batch(batch)
            without_node |= {entry.item.needs for entry in batch if not entry.item.outcome}
            batch_max = min(2 * batch_max, self._config.selector.batch_max)
        if self._entered != entered:
            self._wake.set()  # others entered meanwhile behind these, and were not tried

    async def _retry_batch(self, batch: list[QueueEntry[Placement]]) -> None:
        self._begin(batch)
        try:
            await self._retry([entry.item for entry in batch])
        finally:
            self._end(batch)

    async def _abandon(self, entries: list[QueueEntry[Placement]], reason: str = "") -> None:
        """Refuse entries that timed out or were evicted, except those that another selector has placed."""
        idle = [entry for entry in entries if not entry.item.is_retrying]
        for entry in idle:
            self._remove(entry)
            entry.item.outcome = ""  # an earlier retry may have left "unknown"; this lookup may tell
        if idle:
            await self._look_up([entry.item for entry in idle])
        for entry in idle:
            if not entry.item.outcome:  # "unknown" gets no reply: its edge retries
                self._refuse(entry, reason)

    # --- inside -----------------------------------------------------------------------------------------------

    def _entry(self, placement: Placement) -> QueueEntry[Placement]:
        dispatch, now_ms = placement.dispatch, clock.now_ms()
        left_ms = dispatch.deadline_ms - clock.wall_ms() if dispatch.deadline_ms else NO_DEADLINE_MS
        deadline_ms = now_ms + left_ms
        predicted_ms = self._refusals.forecast(placement).predicted_ms
        return QueueEntry(
            request_id=dispatch.request_id,
            attempt=dispatch.attempt,
            deadline_ms=deadline_ms,
            since_ms=placement.since_ms,
            until_ms=min(placement.since_ms + self._config.job.pending_timeout_ms, deadline_ms - predicted_ms),
            size_bytes=sum(map(len, placement.payload)),
            needs=placement.needs,
            item=placement,
        )

    def _remove(self, entry: QueueEntry[Placement]) -> None:
        self._queue.remove(entry)
        self._metrics.waited_seconds.observe(entry.item.waited_ms(clock.now_ms()) / 1_000)

    def _refuse(self, entry: QueueEntry[Placement], reason: str = "") -> None:
        placement, now_ms = entry.item, clock.now_ms()
        if not reason and is_too_late(now_ms, self._refusals.forecast(placement).predicted_ms, entry.deadline_ms):
            reason = RefusalReason.TOO_LATE
        self._refusals.refuse(placement, reason=reason, ahead=self._queue.ahead_of(entry))

    def _expect_notice(self, entry: QueueEntry[Placement]) -> None:
        due_ms = clock.now_ms() + self._config.job.waiting_notice_ms
        self._notices.append((due_ms, entry.request_id, entry.attempt))
        if self._notice_timer is None:
            self._arm_notices()

    def _arm_notices(self) -> None:
        loop = asyncio.get_running_loop()  # its clock is that of now_ms
        due_ms = max(self._notices[0][0], clock.now_ms() + NOTICE_STEP_MS)
        self._notice_timer = loop.call_at(due_ms / 1_000, self._send_notices)

    def _send_notices(self) -> None:
        """Send Waiting for the entries that are still queued after `job.waiting_notice_ms`."""
        self._notice_timer = None
        now_ms = clock.now_ms()
        while self._notices and self._notices[0][0] <= now_ms:
            _, request_id, attempt = self._notices.popleft()
            entry = self.queued.get(request_id)
            if entry is not None and entry.attempt == attempt:
                self._send_waiting(entry.item)
        if self._notices:
            self._arm_notices()

    def _send_waiting(self, placement: Placement) -> None:
        dispatch, config = placement.dispatch, self._config
        reason = main_reason(placement.removed_counts())
        frame = Waiting(dispatch.request_id, dispatch.attempt, reason, config.job.waiting_ask_ms)
        cell = cell_of(dispatch.session_id, config.mesh.cells)
        self._context.send(dispatch.edge, cell, frame, deadline_ms=dispatch.deadline_ms, prefer=placement.broker)
        self._metrics.dispatch_total.labels(DispatchOutcome.WAITING).inc()
