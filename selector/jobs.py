"""What happens to a job after it is placed: events, results, attempts that failed, cancellation.

Each method handles one message: ask the store, decide in the core, send. A StoreError is left to the caller, who counts
it and sends nothing: whoever asked repeats it, or the lease lapses.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lua.store import Store
from mesh import clock
from mesh.cells import cell_of_job
from mesh.config import Config
from mesh.frames import Assign, AssignFailed, Bounce, Cancel, JobDone, JobEvent, Push, decode_frame
from mesh.jobs import Event
from mesh.link import Received
from mesh.log import get_logger
from mesh.metrics import SelectorMetrics
from selector.core import dispatching
from selector.core.columns import NodeTable

Send = Callable[..., str]

log = get_logger()

_FINISH = f"{Event.FINISH} {Event.RELEASE}"


class Jobs:
    """Handlers for the frames of jobs."""

    def __init__(self, store: Store, table: NodeTable, config: Config, metrics: SelectorMetrics, send: Send) -> None:
        self._store = store
        self._table = table
        self._config = config
        self._metrics = metrics
        self._send = send

    async def on_job_event(self, message: Received) -> None:
        """The node's edge handed it over, the node took it or began."""
        frame = message.frame
        assert isinstance(frame, JobEvent)
        advanced = await self._store.advance_job(frame.job_id, frame.attempt, frame.node_id, Event(frame.event))
        self._table.patch(frame.node_id, advanced.used, advanced.version)
        self._metrics.events_total.labels(advanced.verdict).inc()

    async def on_job_done(self, message: Received) -> None:
        """A result: finish the job, free its slot, push to the session's edge."""
        done = message.frame
        assert isinstance(done, JobDone)
        advanced = await self._store.advance_job(done.job_id, done.attempt, done.node_id, _FINISH, success=done.success)
        self._table.patch(done.node_id, advanced.used, advanced.version)
        self._metrics.results_total.labels(advanced.verdict).inc()
        owner = done.session_edge
        if done.resend > 0 and dispatching.is_deliverable(advanced):
            # It was pushed before and nobody acknowledged: the session may have moved.
            owner = await self._store.session_owner(done.session_id) or owner
        answer = dispatching.on_result(done, advanced, owner)
        payload = message.payload if isinstance(answer.frame, Push) else []
        self._send(answer.to, cell_of_job(done.job_id), answer.frame, *payload)

    async def on_assign_failed(self, message: Received) -> None:
        """The node is not where we thought: slot back, node off the lists, attempt undone."""
        frame = message.frame
        assert isinstance(frame, AssignFailed)
        released = await self._store.release_job(frame.job_id, frame.attempt, frame.node_id, frame.reason)
        self._table.patch(frame.node_id, released.used, released.version)
        if frame.reason == "node_absent" and await self._store.node_offline(
            frame.node_id, frame.node_epoch, frame.reason
        ):
            self._metrics.nodes_total.labels("offline").inc()
            self._table.remove(frame.node_id)
        self._undo(dispatching.on_assign_failed(frame, released), frame.job_id, frame.reason)

    async def on_bounce(self, message: Received) -> None:
        """A frame of ours could not be delivered. Only an Assign needs help; the others are repeated by their cause."""
        frame = message.frame
        assert isinstance(frame, Bounce)
        bounced = decode_frame(message.payload[1])
        if not isinstance(bounced, Assign):
            log.info("bounced", frame=type(bounced).__name__, reason=frame.reason)
            return
        facts = self._table.facts_of(bounced.node_id)
        if facts is not None and frame.reason == "unroutable":
            self._table.avoid_edge(facts.edge, clock.now_ms() + self._config.selector.unreachable_ms)
        released = await self._store.release_job(bounced.job_id, bounced.attempt, bounced.node_id, frame.reason)
        self._table.patch(bounced.node_id, released.used, released.version)
        self._undo(dispatching.on_assign_bounced(bounced, released, frame.reason), bounced.job_id, frame.reason)

    async def on_cancel(self, message: Received) -> None:
        """Nobody waits any more: slot back, and the node may stop."""
        frame = message.frame
        assert isinstance(frame, Cancel)
        if not frame.job_id:
            return  # never placed as far as its edge knows; if it was, its lease lapses
        released = await self._store.release_job(frame.job_id, frame.attempt, frame.node_id, frame.reason)
        self._table.patch(frame.node_id, released.used, released.version)
        self._metrics.cancelled_total.inc()
        facts = self._table.facts_of(frame.node_id)
        answer = dispatching.on_cancelled(frame, released, facts.edge if facts else "")
        if answer is not None:
            self._send(answer.to, cell_of_job(frame.job_id), answer.frame)

    def _undo(self, answer: dispatching.Answer | None, job_id: str, reason: str) -> None:
        if answer is not None:
            self._metrics.undone_total.labels(reason).inc()
            self._send(answer.to, cell_of_job(job_id), answer.frame)


#: What a handler may raise because of what a peer sent; everything else but StoreError is a bug of ours.
PEER_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, IndexError, ValueError)
