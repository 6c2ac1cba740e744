"""Places Dispatches: the kernel selects candidates, the store commits one, the edges get their frames. Batch by batch.

A commit may find that a candidate is busier than the choice assumed: another selector was faster. Then the row is
corrected and the placement takes another round with a fresh snapshot; rounds are bounded, and the last one accepts any
candidate with a free slot. A placement without a node is queued (wait_queue.py) or refused (refusals.py). See
docs/adr/0010-waiting-conflicts-and-decisions.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from lua.store.types.commits import PASSED_OVER, Committed
from lua.store.types.jobs import Release
from mesh import clock
from mesh.cells import cell_of, cell_of_job
from mesh.errors import StoreError
from mesh.frames import Assign, Dispatch, Undone
from mesh.link.link import Received
from mesh.log import get_logger
from mesh.metrics.stage_counts import STAGES
from mesh.random_ids import new_job_unique
from mesh.states.node import Status
from mesh.words import DispatchOutcome, LatencyStage, UndoneReason
from selector.context import SelectorContext
from selector.core.filters import is_hopeless
from selector.core.job_rows import order_of
from selector.core.reply import Reply
from selector.fleet.core import node_replies
from selector.operators.decision_log import DecisionLog
from selector.placement.core import replies
from selector.placement.core.needs import NeedsNumbers
from selector.placement.placement import Placement
from selector.placement.pool_metrics import PoolMetrics
from selector.placement.refusals import Refusals
from selector.placement.selection import Selection
from selector.placement.wait_queue import WaitQueue
from selector.placement.weights import CurrentWeights

#: Cancelled attempts that are remembered: a Cancel may overtake its Dispatch, which is in another lane.
CANCELLED_MAX: Final = 4_096
#: Paired nodes that were not in the snapshot, and are remembered.
MISSING_PAIRED_MAX: Final = 1_024

#: The first stage that a selector measures; those before it come in the Dispatch.
BROKER_STAGE: Final = STAGES.index(LatencyStage.BROKER)

log = get_logger()


class Placer:
    """Places batches of Dispatches, and retries queued ones."""

    def __init__(self, context: SelectorContext, weights: CurrentWeights, decisions: DecisionLog) -> None:
        self._context = context
        self._config = context.config
        self._store = context.store
        self._table = context.table
        self._snapshot = context.snapshot
        self._metrics = context.metrics
        self._decisions = decisions
        self.selection = Selection(context, weights, decisions)
        self._pool_metrics = PoolMetrics(context.metrics, context.table)
        refusals = Refusals(context, weights, decisions)
        self.wait_queue = WaitQueue(context, refusals, self._retry, self._look_up)
        #: (request id, attempt) -> send time of its Cancel, oldest first. A Dispatch sent later is valid again.
        self._cancelled: dict[tuple[str, int], int] = {}
        #: Paired nodes without a row -> when to refresh for them again: one that left must not cost every request.
        self._missing_paired: dict[str, int] = {}
        self._needs = NeedsNumbers()

    # --- entry points -----------------------------------------------------------------------------------

    async def place(self, messages: list[Received], arrived_us: Sequence[int] = ()) -> None:
        """Place every Dispatch of a batch. One that Redis gave no answer for gets no reply: its edge retries it.

        `arrived_us`: when each arrived, by the wall clock; by default now.
        """
        started_us, now_ms = clock.wall_us(), clock.now_ms()
        self._snapshot.work_came(now_ms)
        if len(arrived_us) != len(messages):
            arrived_us = (started_us,) * len(messages)
        placements = self._placements(messages, arrived_us, now_ms, started_us // 1_000)
        self._metrics.batch_size.observe(len(placements))
        queue = self.wait_queue
        freed = queue.freed
        behind: list[Placement] = []
        ahead = placements
        if queue.queued:
            behind = [placement for placement in placements if queue.is_behind(placement)]
            ahead = [placement for placement in placements if placement not in behind]
        await self._rounds(ahead, is_first=True)
        retried = [placement for placement in behind if placement.dispatch.resend]
        if retried:
            await self._look_up(retried)
        left = [
            placement
            for placement in placements
            if not placement.outcome and not self._is_cancelled(placement.dispatch, placement.sent_us)
        ]
        for placement in left:
            if placement.pools is not None and not placement.has_waited:
                self._pool_metrics.missed(placement.pools)
        if left:
            await queue.enter(left, freed)
        self._metrics.dispatch_latency_seconds.observe((clock.wall_us() - started_us) / 1e6)

    def cancel(self, request_id: str, attempt: int, sent_us: int) -> None:
        """Cancel an attempt and older ones, whether queued or still in the lane. `sent_us`: by its edge's clock."""
        self.wait_queue.cancel(request_id, attempt)
        self._cancelled[request_id, attempt] = sent_us
        if len(self._cancelled) > CANCELLED_MAX:
            del self._cancelled[next(iter(self._cancelled))]

    # --- placements -------------------------------------------------------------------------------------

    def _placements(
        self, messages: list[Received], arrivals_us: Sequence[int], now_ms: int, wall_ms: int
    ) -> list[Placement]:
        """The batch, deduplicated by request, without expired and cancelled Dispatches."""
        outcomes = self._metrics.dispatch_total
        latest: dict[str, tuple[Dispatch, Received, int]] = {}
        for message, arrived_us in zip(messages, arrivals_us, strict=True):
            dispatch = message.frame
            assert isinstance(dispatch, Dispatch), f"{type(dispatch).__name__} in the lane of Dispatch"
            before = latest.get(dispatch.request_id)
            if 0 < dispatch.deadline_ms <= wall_ms:
                outcomes.labels(DispatchOutcome.EXPIRED).inc()
            elif self._cancelled and self._is_cancelled(dispatch, message.head.sent_us):
                outcomes.labels(DispatchOutcome.WITHDRAWN).inc()
            elif before is None or before[0].attempt <= dispatch.attempt:
                latest[dispatch.request_id] = (dispatch, message, arrived_us)
        found = (self._placement(*one, now_ms) for one in latest.values())
        return [placement for placement in found if placement is not None]

    def _is_cancelled(self, dispatch: Dispatch, sent_us: int) -> bool:
        """True if its edge cancelled it after sending it; both times are by that edge's clock."""
        return sent_us <= self._cancelled.get((dispatch.request_id, dispatch.attempt), -1)

    def _placement(self, dispatch: Dispatch, message: Received, arrived_us: int, now_ms: int) -> Placement | None:
        if dispatch.request_id in self.wait_queue.queued:
            is_processed, queued = self.wait_queue.on_dispatch(dispatch.request_id, dispatch.attempt)
            if not is_processed:
                return None
            if queued is not None:
                queued.broker = message.broker  # its edge may have retried by another one because ours is dead
                queued.sent_us = message.head.sent_us
                queued.dispatch = msgspec.structs.replace(queued.dispatch, resend=dispatch.resend)
                queued.begin_retry()
                return queued
        plan = self._context.plan
        order = order_of(dispatch, plan) if plan.enabled else None
        return Placement(
            dispatch,
            message.payload,
            message.broker,
            unique=new_job_unique(),
            since_ms=now_ms,
            needs=self._needs.of(dispatch, order.order if order else ()),
            pools=order,
            sent_us=message.head.sent_us,
            arrived_us=arrived_us,
        )

    # --- rounds -----------------------------------------------------------------------------------------

    async def _rounds(self, placements: list[Placement], *, is_first: bool) -> None:
        """Choose and commit until every placement has a node or no candidate. Sets `outcome` of completed ones.

        At first, retried placements without a candidate are committed too: only Redis knows whether their request is
        placed, perhaps in the very slot that they find taken.
        """
        rounds = self._config.selector.commit_rounds
        for number in range(rounds):
            if not placements:
                return
            if number:
                await self._snapshot.refresh_anew()
            selected = self.selection.choose(placements)
            if is_first and number == 0 and self._is_snapshot_too_old(placements):
                await self._snapshot.refresh_anew()
                selected = self.selection.choose(placements)
            if is_first or any(placement.candidates for placement in placements):
                self.selection.record(placements, selected)
            looks_up = is_first and number == 0
            committed = [one for one in placements if one.candidates or (looks_up and one.dispatch.resend)]
            placements = await self._commit(committed, is_last=number == rounds - 1)
        for placement in placements:
            # Other selectors took the last slots: count these candidates as full. A rejected one is counted under its
            # reason instead; a node that Redis lost is not a full one.
            placement.count_full()

    def _is_snapshot_too_old(self, placements: list[Placement]) -> bool:
        """True if it may lack a node that has just registered: refresh before anyone is refused for that.

        Retries of queued placements can wait for the next snapshot; a refusal of a hopeless one is final.
        """
        for placement in placements:
            paired = placement.dispatch.preferred_node
            if not placement.candidates:
                if is_hopeless(placement.removed) or self._snapshot.age_ms() > self._config.selector.snapshot_ms:
                    return True
            elif paired and self._may_have_just_registered(paired):
                return True
        return False

    def _may_have_just_registered(self, paired: str) -> bool:
        """A node's code may be used within milliseconds after another selector registered it."""
        facts, now_ms, missing = self._table.facts_of(paired), clock.now_ms(), self._missing_paired
        if (facts is not None and facts.status != Status.REGISTERING) or now_ms < missing.get(paired, 0):
            return False
        missing.pop(paired, None)
        missing[paired] = now_ms + self._config.selector.snapshot_ms
        if len(missing) > MISSING_PAIRED_MAX:
            del missing[next(iter(missing))]
        return True

    async def _commit(self, placements: list[Placement], *, is_last: bool) -> list[Placement]:
        """Commit one round; returns the placements whose candidates were all rejected."""
        if not placements:
            return []
        started_us = clock.wall_us()
        answers = await self._store.commits.commit([placement.commit(is_last=is_last) for placement in placements])
        commit_us = clock.wall_us() - started_us
        self._metrics.commit_seconds.observe(commit_us / 1e6)
        return await self.settle(placements, answers, commit_us)

    async def settle(
        self, placements: Sequence[Placement], answers: Sequence[Committed], commit_us: int
    ) -> list[Placement]:
        """Apply the answers of a commit; returns the placements whose candidates were all rejected."""
        left = []
        for placement, answer in zip(placements, answers, strict=True):
            placement.commit_us = commit_us
            if answer.reasons:
                self._learn(placement, answer)
            if answer.verdict not in PASSED_OVER:
                await self._finish(placement, answer)
            elif placement.candidates:
                left.append(placement)
        return left

    def _learn(self, placement: Placement, answer: Committed) -> None:
        """Correct the rows of rejected candidates for the next round and the next batch."""
        if answer.verdict != "new" and answer.verdict not in PASSED_OVER:
            return
        if placement.rounds:
            placement.rounds[-1] = placement.rounds[-1]._replace(reasons=answer.reasons, seen=answer.seen)
        for node_id, used, version in answer.seen:
            self._table.patch(node_id, used, version)
        for node_id, epoch, reason in zip(placement.candidates, placement.epochs, answer.reasons, strict=False):
            if reason == "full":
                self._table.saturate(node_id)
            elif reason != "moved":
                placement.rejected[node_id] = reason
                if reason == "gone":
                    self._remove_node(node_id, epoch, placement.broker)
        placement.conflicts += len(answer.reasons)
        self._metrics.conflicts_total.inc(len(answer.reasons))

    def _remove_node(self, node_id: str, epoch: int, broker: str) -> None:
        """Its record is missing or offline until it registers. If Redis lost the record, its edge must register it."""
        facts = self._table.facts_of(node_id)
        if facts is None or facts.epoch != epoch:
            return  # removed already, or it reconnected during the commit
        self._table.remove(node_id)
        reply = node_replies.on_lost(node_id, facts.edge, epoch)
        self._context.send(reply.to, cell_of(node_id, self._config.mesh.cells), reply.frame, prefer=broker)

    # --- queued placements ------------------------------------------------------------------------------

    async def _retry(self, placements: list[Placement]) -> None:
        await self._rounds(placements, is_first=False)

    async def _look_up(self, placements: list[Placement]) -> None:
        """A commit without candidates places nothing, but finds an earlier placement."""
        asked = [placement.commit(is_last=True)._replace(candidates=[]) for placement in placements]
        for placement, answer in zip(placements, await self._store.commits.commit(asked), strict=True):
            if answer.verdict not in PASSED_OVER:
                await self._finish(placement, answer)

    # --- completion -------------------------------------------------------------------------------------

    async def _finish(self, placement: Placement, answer: Committed) -> None:
        placement.outcome = answer.verdict
        self._metrics.dispatch_total.labels(answer.verdict).inc()
        dispatch = placement.dispatch
        if self._cancelled and self._is_cancelled(dispatch, placement.sent_us):
            placement.is_cancelled = True
        waited_ms = placement.waited_ms(clock.now_ms()) if placement.has_waited else 0
        self._decisions.end(placement, answer.verdict, answer=answer, waited_ms=waited_ms)
        reply = None
        if answer.verdict == "new":
            reply = await self._finish_new(placement, answer)
        elif answer.verdict == "bound":
            reply = self._finish_bound(placement, answer)
        else:
            ids = {"request_id": dispatch.request_id, "session_id": dispatch.session_id, "trace_id": dispatch.trace_id}
            log.warning("commit_unknown", **ids)
        if reply is not None:
            payload = placement.payload if isinstance(reply.frame, Assign) else []
            cell, deadline_ms = cell_of_job(answer.job_id), dispatch.deadline_ms
            self._context.send(reply.to, cell, reply.frame, *payload, deadline_ms=deadline_ms, prefer=placement.broker)

    async def _finish_new(self, placement: Placement, answer: Committed) -> Reply | None:
        """The job for the node's edge; None if it was cancelled meanwhile, and is released."""
        self._table.patch(answer.node_id, answer.used, answer.version)
        if placement.pools is not None:
            self._pool_metrics.found(placement.pools, placement.rounds[-1].pool)
        if placement.is_cancelled:
            await self._release(placement, answer)
            return None
        late_ms = placement.late_ms[placement.candidates.index(answer.node_id)]
        stages = placement.stages()
        for stage in range(BROKER_STAGE, len(stages)):
            self._metrics.stages.observe(stage, stages[stage])
        identity, sent_us = self._context.identity, clock.wall_us()
        return replies.assign(placement.dispatch, answer, late_ms, selector=identity, sent_us=sent_us, stages=stages)

    def _finish_bound(self, placement: Placement, answer: Committed) -> Reply | None:
        """The reply to a retry of a placed request, if it needs one."""
        if placement.is_retrying:
            self.wait_queue.slots_freed()  # the slot that it was chosen for is left to others
        facts = self._table.facts_of(answer.node_id)
        lost_ms = self._config.selector.result_lost_ms
        epoch, identity = facts.epoch if facts else 0, self._context.identity
        reply = replies.on_bound(placement.dispatch, answer, epoch, lost_ms, selector=identity, sent_us=clock.wall_us())
        if reply is None or placement.is_cancelled:
            return None
        if isinstance(reply.frame, Undone) and reply.frame.reason != UndoneReason.RELEASED:
            self._metrics.undone_total.labels(reply.frame.reason).inc()  # a release was counted when it happened
        return reply

    async def _release(self, placement: Placement, answer: Committed) -> None:
        """Its edge cancelled it during the commit; no node has received it yet."""
        try:
            released = await self._store.jobs.release(
                Release(answer.job_id, answer.attempt, answer.node_id, "cancelled")
            )
        except StoreError as error:  # the lease expires, or the audit releases it
            request_id = placement.dispatch.request_id
            log.warning("release_failed", job_id=answer.job_id, request_id=request_id, error=str(error))
            return
        self._table.patch(answer.node_id, released.used, released.version)
        self.wait_queue.slots_freed()
