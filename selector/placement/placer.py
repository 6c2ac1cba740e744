"""Dispatches: choose by the kernel, commit by the store, tell whoever must know. One batch at a time.

A commit may find that a candidate has more to do than the choice assumed: another selector was faster. Then the row is
corrected and the request looks again at a fresh snapshot, a bounded number of rounds; the last one takes what has room.
What finds no node stands in line (waiting.py) or is refused (refusing.py). See
docs/adr/0010-waiting-conflicts-and-decisions.md.
"""

from __future__ import annotations

from typing import Final

from lua.store import Store
from lua.store.types.commits import Committed
from lua.store.types.jobs import Release
from mesh import clock
from mesh.cells import cell_of, cell_of_job
from mesh.config import Config
from mesh.errors import StoreError
from mesh.frames import Assign, Dispatch, Undone
from mesh.link.link import Received, Send
from mesh.log import get_logger
from mesh.random_ids import new_job_unique
from mesh.states.node import Status
from mesh.words import DispatchOutcome, UndoneReason
from selector.core.filters import Filter, is_hopeless
from selector.core.job_rows import job_rows, order_of
from selector.core.kernel import NO_ROW, Choice, Floats, JobRows, Rules, choose
from selector.core.node_table import NodeTable
from selector.core.pools import PoolPlan
from selector.fleet.core import node_replies
from selector.fleet.snapshot import Snapshot
from selector.metrics import SelectorMetrics
from selector.operators.decision_log import DecisionLog
from selector.placement.core import replies
from selector.placement.placement import Placement, PlacementRound
from selector.placement.pool_metrics import PoolMetrics
from selector.placement.refusals import Refusals
from selector.placement.wait_queue import WaitQueue
from selector.placement.weights import CurrentWeights

#: What another round costs, about: a candidate that is worse by more is not taken before the last one.
ROUND_MS: Final = 10
#: A Cancel may overtake its Dispatch, which stands in another lane: so many are remembered.
WITHDRAWN_MAX: Final = 4_096
#: Paired nodes that are looked for and remembered.
SOUGHT_MAX: Final = 1_024

log = get_logger()


class Placer:
    """Places batches of Dispatches, and whoever waits for a node."""

    def __init__(
        self,
        store: Store,
        table: NodeTable,
        snapshot: Snapshot,
        config: Config,
        metrics: SelectorMetrics,
        send: Send,
        policy: CurrentWeights,
        plan: PoolPlan,
        decisions: DecisionLog,
    ) -> None:
        self._store = store
        self._table = table
        self._snapshot = snapshot
        self._config = config
        self._metrics = metrics
        self._send = send
        self._policy = policy
        self._plan = plan
        self._decisions = decisions
        self._pool_metrics = PoolMetrics(metrics, table)
        refusals = Refusals(table, snapshot, config, metrics, send, plan, decisions, self.rules)
        self._line = WaitQueue(config, metrics, send, refusals, self._try_again, self._look_up)
        #: Request and attempt -> when its edge took it back; the oldest first. What it sends later is wanted again.
        self._withdrawn: dict[tuple[str, int], int] = {}
        #: Paired nodes that were not there -> when to look again: one that left for good must not cost every request.
        self._sought: dict[str, int] = {}

    def rules(self, now_ms: int) -> Rules:
        """The kernel's rules: limits from the configuration, prices from the weights in force."""
        config = self._config
        return Rules.of(
            self._policy.weights,
            now_ms=now_ms,
            heartbeat_timeout_ms=config.node.heartbeat_timeout_ms,
            heartbeat_interval_ms=config.node.heartbeat_interval_ms,
            running_fresh_ms=config.selector.running_fresh_ms,
            resource_threshold_percent=config.node.resource_threshold_percent,
            reconnect_grace_ms=config.edge.reconnect_grace_ms,
            compared_max=config.selector.compared_max,
            audio_ms_min=config.speed.audio_ms_min,
        )

    # --- what others call -------------------------------------------------------------------------------

    async def place(self, messages: list[Received]) -> None:
        """Place every Dispatch of a batch; nothing is answered for what Redis could not tell: the edge repeats it."""
        started_us = clock.wall_us()
        self._snapshot.work_came()
        requests = self._requests(messages)
        self._metrics.batch_size.observe(len(requests))
        behind = [request for request in requests if self._line.is_behind(request)]
        await self._rounds([request for request in requests if request not in behind], is_first=True)
        if behind:
            await self._look_up(behind)
        left = [
            request
            for request in requests
            if not request.outcome and not self._is_withdrawn(request.dispatch, request.sent_us)
        ]
        for request in left:
            if request.pools is not None and not request.has_waited:
                self._pool_metrics.missed(request.pools)
        await self._line.enter(left)
        if behind:
            self._line.slots_freed()  # they did not look for themselves
        self._metrics.dispatch_latency_seconds.observe((clock.wall_us() - started_us) / 1e6)

    def slots_freed(self) -> None:
        """Results, releases, registrations or a snapshot: somebody in line may find a node now."""
        self._line.slots_freed()

    def forget(self, request_id: str, attempt: int, sent_us: int) -> None:
        """Nobody wants this request any more, nor its older attempts: it leaves the line, or the lane before that."""
        self._line.forget(request_id, attempt)
        self._withdrawn[request_id, attempt] = sent_us
        if len(self._withdrawn) > WITHDRAWN_MAX:
            del self._withdrawn[next(iter(self._withdrawn))]

    async def run(self) -> None:
        """Look after the line for ever."""
        await self._line.run()

    # --- requests ---------------------------------------------------------------------------------------

    def _requests(self, messages: list[Received]) -> list[Placement]:
        """The batch without repeats and without what nobody waits for any more."""
        now_ms = clock.wall_ms()
        latest: dict[str, tuple[Dispatch, Received]] = {}
        for message in messages:
            dispatch = message.frame
            assert isinstance(dispatch, Dispatch), f"{type(dispatch).__name__} in the lane of Dispatch"
            before = latest.get(dispatch.request_id)
            if 0 < dispatch.deadline_ms <= now_ms:
                self._count(DispatchOutcome.EXPIRED)
            elif self._is_withdrawn(dispatch, message.head.sent_us):
                self._count(DispatchOutcome.WITHDRAWN)
            elif before is None or before[0].attempt <= dispatch.attempt:
                latest[dispatch.request_id] = (dispatch, message)
        found = (self._request(dispatch, message) for dispatch, message in latest.values())
        return [request for request in found if request is not None]

    def _is_withdrawn(self, dispatch: Dispatch, sent_us: int) -> bool:
        """True if its edge took it back after it had sent it; both times are by that edge's clock."""
        return sent_us <= self._withdrawn.get((dispatch.request_id, dispatch.attempt), -1)

    def _request(self, dispatch: Dispatch, message: Received) -> Placement | None:
        is_news, request = self._line.take_back(dispatch.request_id, dispatch.attempt)
        if not is_news:
            return None
        if request is not None:  # a repeat of one in line
            request.broker = message.broker  # its edge had reason to send the repeat by another
            request.sent_us = message.head.sent_us
            request.begin_try()
            return request
        order = order_of(dispatch, self._plan) if self._plan.enabled else None
        needs = replies.needs_of(dispatch, order.order if order else ())
        unique = new_job_unique()
        request = Placement(dispatch, message.payload, message.broker, unique, clock.now_ms(), needs, order)
        request.sent_us = message.head.sent_us
        return request

    # --- rounds -----------------------------------------------------------------------------------------

    async def _rounds(self, requests: list[Placement], *, is_first: bool) -> None:
        """Choose and commit until everybody has a node, or none is left to try. Sets `outcome` of those that are done.

        At first, requests without a candidate go along to the commit: only Redis knows whether they are repeats of
        something placed already, perhaps on the very slot that they find taken.
        """
        rounds = self._config.selector.commit_rounds
        for number in range(rounds):
            if not requests:
                return
            if number:
                await self._snapshot.refresh_anew()
            chosen = self._choose(requests)
            if is_first and number == 0 and self._is_snapshot_to_blame(requests):
                await self._snapshot.refresh_anew()
                chosen = self._choose(requests)
            if is_first or any(request.candidates for request in requests):
                self._note(requests, *chosen)
            asked = [request for request in requests if request.candidates or (is_first and number == 0)]
            requests = await self._commit(asked, is_last=number == rounds - 1)
        for request in requests:
            # Others took the last slots: these candidates must not be left out of the counts. One that was passed over
            # for another reason is counted under that; a node that Redis lost is not a full one.
            request.removed[Filter.SLOT] += sum(node_id not in request.tried for node_id in request.candidates)

    def _is_snapshot_to_blame(self, requests: list[Placement]) -> bool:
        """It may not know a node that has just come: look again before anyone is refused for that.

        A moment more or less does not matter to those who wait; those without hope are refused once and for all.
        """
        old = self._snapshot.age_ms() > self._config.selector.snapshot_ms
        return any(
            self._may_have_just_come(request.dispatch.preferred_node)
            if request.candidates
            else old or is_hopeless(request.removed)
            for request in requests
        )

    def _may_have_just_come(self, paired: str) -> bool:
        """A node's code may be used within milliseconds after another selector registered it."""
        if not paired:
            return False
        facts, now_ms = self._table.facts_of(paired), clock.now_ms()
        if (facts is not None and facts.status != Status.REGISTERING) or now_ms < self._sought.get(paired, 0):
            return False
        self._sought.pop(paired, None)
        self._sought[paired] = now_ms + self._config.selector.snapshot_ms
        if len(self._sought) > SOUGHT_MAX:
            del self._sought[next(iter(self._sought))]
        return True

    def _choose(self, requests: list[Placement]) -> tuple[JobRows, Floats, Rules, Choice]:
        started_us = clock.wall_us()
        table = self._table
        tried = {request.dispatch.request_id: request.tried for request in requests if request.tried}
        rows = job_rows([request.dispatch for request in requests], table, self._plan, tried)
        rules, prior = self.rules(clock.now_ms()), table.prior()
        choice = choose(table.columns, table.index(), rows, prior, rules, self._config.selector.candidates)
        found = zip(
            requests, choice.rows.tolist(), choice.scores.tolist(), choice.expected.tolist(), choice.late_ms.tolist(),
            choice.removed.tolist(), rows.jobs["barred"].tolist(), strict=True,
        )  # fmt: skip
        for request, best, scores, expected, late_ms, removed, is_barred in found:
            count = sum(row != NO_ROW for row in best)
            request.candidates = [table.id_of(row) for row in best[:count]]
            request.epochs = [table.epoch_at(row) for row in best[:count]]
            request.expected, request.late_ms = expected[:count], late_ms[:count]
            request.equals = sum(score - scores[0] <= ROUND_MS for score in scores[:count])
            request.removed, request.is_barred = removed, bool(is_barred)
        self._metrics.decision_seconds.observe((clock.wall_us() - started_us) / 1e6)
        return rows, prior, rules, choice

    def _note(self, requests: list[Placement], rows: JobRows, prior: Floats, rules: Rules, choice: Choice) -> None:
        """Keep the choice for explanations and for running it again; before anything changes the table."""
        policy, table = self._policy, self._table
        batch = self._decisions.note(table, rows, prior, rules, choice, policy.weights, policy.version)
        pools = choice.pool.tolist()
        for place, request in enumerate(requests):
            pool = table.pools.word(pools[place]) if request.pools is not None and request.candidates else ""
            request.rounds.append(PlacementRound(batch, place, pool, request.candidates))

    async def _commit(self, requests: list[Placement], *, is_last: bool) -> list[Placement]:
        """Commit one round; returns the requests whose candidates were all passed over."""
        if not requests:
            return []
        started_us = clock.wall_us()
        answers = await self._store.commits.commit([request.commit(is_last=is_last) for request in requests])
        self._metrics.commit_seconds.observe((clock.wall_us() - started_us) / 1e6)
        again = []
        for request, answer in zip(requests, answers, strict=True):
            self._learn(request, answer)
            if not answer.is_passed_over:
                await self._finish(request, answer)
            elif request.candidates:
                again.append(request)
        return again

    def _learn(self, request: Placement, answer: Committed) -> None:
        """Correct the rows of candidates that were passed over, so that the next round and the next batch know."""
        if not answer.reasons or not (answer.verdict == "new" or answer.is_passed_over):
            return
        if request.rounds:
            request.rounds[-1] = request.rounds[-1]._replace(reasons=answer.reasons, seen=answer.seen)
        for node_id, used, version in answer.seen:
            self._table.patch(node_id, used, version)
        for node_id, epoch, reason in zip(request.candidates, request.epochs, answer.reasons, strict=False):
            if reason == "full":
                self._table.saturate(node_id)
            elif reason != "moved":
                request.tried[node_id] = reason
                if reason == "gone":
                    self._forget_node(node_id, epoch, request.broker)
        request.conflicts += len(answer.reasons)
        self._metrics.conflicts_total.inc(len(answer.reasons))

    def _forget_node(self, node_id: str, epoch: int, broker: str) -> None:
        """Its record is missing or offline; only a registration changes that. If Redis lost it, its edge must know."""
        facts = self._table.facts_of(node_id)
        if facts is None or facts.epoch != epoch:
            return  # forgotten already, or it registered again while we asked
        self._table.remove(node_id)
        answer = node_replies.on_lost(node_id, facts.edge, epoch)
        self._send(answer.to, cell_of(node_id, self._config.mesh.cells), answer.frame, prefer=broker)

    # --- those in line ----------------------------------------------------------------------------------

    async def _try_again(self, requests: list[Placement]) -> None:
        await self._rounds(requests, is_first=False)

    async def _look_up(self, requests: list[Placement]) -> None:
        """A commit without candidates places nothing, but finds what was placed before."""
        asked = [request.commit(is_last=True)._replace(candidates=[]) for request in requests]
        for request, answer in zip(requests, await self._store.commits.commit(asked), strict=True):
            if not answer.is_passed_over:
                await self._finish(request, answer)

    # --- ends -------------------------------------------------------------------------------------------

    async def _finish(self, request: Placement, answer: Committed) -> None:
        request.outcome = answer.verdict
        self._count(answer.verdict)
        dispatch = request.dispatch
        request.is_unwanted |= self._is_withdrawn(dispatch, request.sent_us)
        self._decisions.end(request, answer.verdict, answer=answer, waited_ms=request.waited_ms(clock.now_ms()))
        if answer.verdict == "new":
            self._table.patch(answer.node_id, answer.used, answer.version)
            if request.pools is not None:
                self._pool_metrics.found(request.pools, request.rounds[-1].pool)
            if request.is_unwanted:
                await self._release(request, answer)
            else:
                late_ms = request.late_ms[request.candidates.index(answer.node_id)]
                self._tell(request, replies.assign(dispatch, answer, late_ms), cell_of_job(answer.job_id))
        elif answer.verdict == "bound":
            facts = self._table.facts_of(answer.node_id)
            lost_ms = self._config.selector.result_lost_ms
            reply = replies.on_bound(dispatch, answer, facts.epoch if facts else 0, lost_ms)
            if reply is not None and not request.is_unwanted:
                if isinstance(reply.frame, Undone) and reply.frame.reason != UndoneReason.RELEASED:
                    self._metrics.undone_total.labels(reply.frame.reason).inc()  # others were counted before
                self._tell(request, reply, cell_of_job(answer.job_id))
        else:
            log.warning(
                "commit_unknown",
                request_id=dispatch.request_id,
                session_id=dispatch.session_id,
                trace_id=dispatch.trace_id,
            )

    async def _release(self, request: Placement, answer: Committed) -> None:
        """Its edge took it back while the commit was under way; no node has heard of it yet."""
        try:
            released = await self._store.jobs.release(
                Release(answer.job_id, answer.attempt, answer.node_id, "cancelled")
            )
        except StoreError as error:  # then the lease lapses, or the audit finds it
            log.warning(
                "release_failed", job_id=answer.job_id, request_id=request.dispatch.request_id, error=str(error)
            )
            return
        self._table.patch(answer.node_id, released.used, released.version)

    def _tell(self, request: Placement, reply: replies.Reply, cell: int) -> None:
        payload = request.payload if isinstance(reply.frame, Assign) else []
        deadline_ms = request.dispatch.deadline_ms
        self._send(reply.to, cell, reply.frame, *payload, deadline_ms=deadline_ms, prefer=request.broker)

    def _count(self, outcome: str) -> None:
        self._metrics.dispatch_total.labels(outcome).inc()
