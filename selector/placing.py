"""Dispatches: choose by the kernel, commit by the store, tell whoever must know. One batch at a time.

A commit may find a candidate taken (another selector was faster). Then the row is corrected and the request looks for
others, a bounded number of rounds; what is left over is refused with the reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from lua.answers import CommitRequest, Committed
from lua.store import Store
from mesh import clock
from mesh.cells import cell_of, cell_of_job
from mesh.config import Config
from mesh.frames import Assign, Dispatch
from mesh.ids import new_job_unique
from mesh.link import Received
from mesh.log import get_logger
from mesh.metrics import SelectorMetrics
from selector.core import dispatching
from selector.core.columns import NodeTable
from selector.core.filters import NO_NODES, is_hopeless
from selector.core.kernel import NO_ROW, Rules, choose
from selector.core.pools import PoolPlan
from selector.core.requests import job_rows
from selector.snapshot import Snapshot

Send = Callable[..., str]

#: A cell that was silent for longer may have nodes that we do not know of: nobody is refused for good.
SURE_MS: Final = 2_000

log = get_logger()


@dataclass(slots=True)
class _Request:
    """A Dispatch on its way to a node."""

    dispatch: Dispatch
    payload: list[bytes]
    #: The broker that brought it, and takes the answer.
    broker: str
    #: Part of the job id; the same in every round, so that a repeated commit is the same job.
    unique: str
    candidates: list[str] = field(default_factory=list)
    #: The connections that the candidates had when they were chosen.
    epochs: list[int] = field(default_factory=list)
    #: Nodes that a commit found taken -> why.
    tried: dict[str, str] = field(default_factory=dict)
    #: Nodes that each filter removed in the last round.
    removed: list[int] = field(default_factory=list)


class Placer:
    """Places batches of Dispatches."""

    def __init__(
        self, store: Store, table: NodeTable, snapshot: Snapshot, config: Config, metrics: SelectorMetrics, send: Send
    ) -> None:
        self._store = store
        self._table = table
        self._snapshot = snapshot
        self._config = config
        self._plan = PoolPlan(config.pools)
        self._metrics = metrics
        self._send = send

    def rules(self, now_ms: int) -> Rules:
        """The kernel's rules, from the configuration."""
        config = self._config
        return Rules.of(
            config.weights,
            now_ms=now_ms,
            heartbeat_timeout_ms=config.node.heartbeat_timeout_ms,
            heartbeat_interval_ms=config.node.heartbeat_interval_ms,
            running_fresh_ms=config.selector.running_fresh_ms,
            resource_threshold_percent=config.node.resource_threshold_percent,
            reconnect_grace_ms=config.edge.reconnect_grace_ms,
            compared_max=config.selector.compared_max,
            audio_ms_min=config.speed.audio_ms_min,
        )

    async def place(self, messages: list[Received]) -> None:
        """Place every Dispatch of a batch; nothing is answered for what Redis could not tell: the edge repeats it."""
        started_us = clock.wall_us()
        self._snapshot.work_came()
        waiting = self._requests(messages)
        self._metrics.batch_size.observe(len(waiting))
        for round_number in range(self._config.selector.commit_rounds):
            if not waiting:
                break
            self._choose(waiting)
            if round_number == 0 and self._is_snapshot_to_blame(waiting):
                await self._snapshot.refresh_anew()
                self._choose(waiting)
            waiting = await self._commit(waiting)
        for request in waiting:
            self._refuse(request)
        self._metrics.dispatch_latency_seconds.observe((clock.wall_us() - started_us) / 1e6)

    def _requests(self, messages: list[Received]) -> list[_Request]:
        """The batch without repeats and without what nobody waits for any more."""
        now_ms = clock.wall_ms()
        requests: dict[tuple[str, int], _Request] = {}
        for message in messages:
            dispatch = message.frame
            assert isinstance(dispatch, Dispatch), f"{type(dispatch).__name__} in the lane of Dispatch"
            if 0 < dispatch.deadline_ms <= now_ms:
                self._count("expired")
                continue
            key = (dispatch.request_id, dispatch.attempt)
            request = requests.setdefault(key, _Request(dispatch, message.payload, message.broker, new_job_unique()))
            request.broker = message.broker  # its edge had reason to send the repeat by another
        return list(requests.values())

    def _is_snapshot_to_blame(self, waiting: list[_Request]) -> bool:
        """It may not know a node that has just come: look again before anyone is refused for that.

        A moment more or less does not matter to those who try again; those without hope are refused once and for all.
        """
        old = self._snapshot.age_ms() > self._config.selector.snapshot_ms
        return any(not request.candidates and (old or is_hopeless(request.removed)) for request in waiting)

    def _choose(self, waiting: list[_Request]) -> None:
        started_us = clock.wall_us()
        table = self._table
        tried = {request.dispatch.request_id: request.tried for request in waiting if request.tried}
        rows = job_rows([request.dispatch for request in waiting], table, self._plan, tried)
        rules, best = self.rules(clock.now_ms()), self._config.selector.candidates
        choice = choose(table.columns, table.index(), rows, table.prior(), rules, best)
        for request, best_rows, removed in zip(waiting, choice.rows.tolist(), choice.removed.tolist(), strict=True):
            request.candidates = [table.id_of(row) for row in best_rows if row != NO_ROW]
            request.epochs = [table.epoch_at(row) for row in best_rows if row != NO_ROW]
            request.removed = removed
        self._metrics.decision_seconds.observe((clock.wall_us() - started_us) / 1e6)

    async def _commit(self, waiting: list[_Request]) -> list[_Request]:
        """Commit one round; returns the requests whose candidates were all taken.

        Requests without a candidate go along: only Redis knows whether they are repeats of something placed already,
        perhaps on the very slot that they find taken.
        """
        started_us = clock.wall_us()
        answers = await self._store.commit([self._commit_request(request) for request in waiting])
        self._metrics.commit_seconds.observe((clock.wall_us() - started_us) / 1e6)
        again = []
        for request, answer in zip(waiting, answers, strict=True):
            if answer.verdict == "full" and request.candidates:
                self._learn(request, answer)
                again.append(request)
            else:
                self._finish(request, answer)
        return again

    def _commit_request(self, request: _Request) -> CommitRequest:
        dispatch = request.dispatch
        return CommitRequest(
            request_id=dispatch.request_id,
            session_id=dispatch.session_id,
            edge=dispatch.edge,
            utterance_index=dispatch.utterance_index,
            attempt=dispatch.attempt,
            unique=request.unique,
            candidates=request.candidates,
            deadline_ms=dispatch.deadline_ms,
            trace_id=dispatch.trace_id,
        )

    def _learn(self, request: _Request, answer: Committed) -> None:
        """The candidates are taken: correct their rows, so that the next round and the next batch know."""
        reasons = dict(zip(request.candidates, answer.reasons, strict=False))
        for node_id, epoch in zip(request.candidates, request.epochs, strict=True):
            reason = reasons.get(node_id, "full")
            request.tried[node_id] = reason
            if reason == "full":
                self._table.saturate(node_id)
            elif reason == "gone":
                self._forget(node_id, epoch, request.broker)
        self._metrics.conflicts_total.inc(len(request.candidates))

    def _forget(self, node_id: str, epoch: int, broker: str) -> None:
        """Its record is missing or offline; only a registration changes that. If Redis lost it, its edge must know."""
        facts = self._table.facts_of(node_id)
        if facts is None or facts.epoch != epoch:
            return  # forgotten already, or it registered again while we asked
        self._table.remove(node_id)
        answer = dispatching.on_lost(node_id, facts.edge, epoch)
        self._send(answer.to, cell_of(node_id, self._config.mesh.cells), answer.frame, prefer=broker)

    def _finish(self, request: _Request, answer: Committed) -> None:
        if answer.verdict == "new":
            self._table.patch(answer.node_id, answer.used, answer.version)
            self._count("new")
            self._tell(request, dispatching.assign(request.dispatch, answer), cell_of_job(answer.job_id))
        elif answer.verdict == "bound":
            self._count("bound")
            reply = dispatching.on_bound(request.dispatch, answer)
            if reply is not None:
                self._tell(request, reply, cell_of_job(answer.job_id))
        elif answer.verdict == "full":
            self._refuse(request)
        else:
            self._count("unknown")
            log.warning(
                "commit_unknown",
                request_id=request.dispatch.request_id,
                session_id=request.dispatch.session_id,
                trace_id=request.dispatch.trace_id,
            )

    def _tell(self, request: _Request, reply: dispatching.Answer, cell: int) -> None:
        payload = request.payload if isinstance(reply.frame, Assign) else []
        deadline_ms = request.dispatch.deadline_ms
        self._send(reply.to, cell, reply.frame, *payload, deadline_ms=deadline_ms, prefer=request.broker)

    def _refuse(self, request: _Request) -> None:
        dispatch = request.dispatch
        counts = dispatching.with_tried(request.removed, request.tried)
        frame = dispatching.refusal(dispatch, counts, self._config.job.retry_after_ms)
        if frame.retry_after_ms == 0 and self._snapshot.age_ms() > SURE_MS:
            frame = msgspec.structs.replace(frame, retry_after_ms=self._config.job.retry_after_ms)
        self._count("refused")
        self._metrics.no_available_node_total.labels("reserve" if request.tried else "types", frame.reason).inc()
        for name, count in frame.removed.items():
            self._metrics.removed_total.labels(name).inc(count)
        if frame.reason == NO_NODES:
            log.warning("no_nodes", session_id=dispatch.session_id, trace_id=dispatch.trace_id)
        cell = cell_of(dispatch.session_id, self._config.mesh.cells)
        self._send(dispatch.edge, cell, frame, deadline_ms=dispatch.deadline_ms, prefer=request.broker)

    def slots_freed(self) -> None:
        """Somewhere there may be room again."""

    def forget(self, request_id: str, attempt: int) -> None:
        """Nobody waits for this one any more."""

    def _count(self, outcome: str) -> None:
        self._metrics.dispatch_total.labels(outcome).inc()
