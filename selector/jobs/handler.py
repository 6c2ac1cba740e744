"""What happens to a job after it is placed: events, results, attempts that failed, cancellation.

Events and results come as batches: one call of the store for all of them. The others are rare and come one at a time.
Ask the store, decide in the core, send. What the store could not do is left undone: whoever asked repeats it, or the
lease lapses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lua.store.types.commits import Bound
from lua.store.types.jobs import Advance, Advanced, Release
from lua.store.types.sessions import MailEntry, SessionOwner
from mesh import clock
from mesh.cells import cell_of, cell_of_job
from mesh.errors import StoreError
from mesh.frames import Assign, AssignFailed, Bounce, Cancel, JobDone, JobEvent, decode_frame
from mesh.link.link import Received
from mesh.log import get_logger
from mesh.states.job import JobAction
from mesh.words import BounceReason, NodeChange, ParkedKind
from selector.context import SelectorContext
from selector.core.reply import Reply
from selector.jobs.core import result_routing
from selector.placement.core import replies
from selector.placement.placer import Placer

log = get_logger()

_EVENTS: Final = frozenset(event.value for event in JobAction)


class JobHandler:
    """Handlers for the frames of jobs."""

    def __init__(self, context: SelectorContext, placer: Placer, is_live: Callable[[str], bool]) -> None:
        """`is_live`: whether an edge is."""
        self._context = context
        self._store = context.store
        self._table = context.table
        self._metrics = context.metrics
        self._guard = context.guard
        self._send = context.send
        self._placer = placer
        self._slots_freed = placer.wait_queue.slots_freed
        self._is_live = is_live

    async def on_job_events(self, messages: list[Received]) -> None:
        """Nodes' edges handed jobs over, nodes took them or began."""
        good, asked = [], []
        for message in messages:
            frame = message.frame
            assert isinstance(frame, JobEvent)
            if not frame.event or not _EVENTS.issuperset(frame.event.split()):
                self._guard.note(message, ValueError(f"{frame.event!r} is no list of events"))
                continue
            good.append(message)
            asked.append(Advance(frame.job_id, frame.attempt, frame.node_id, frame.event))
        for message, one, advanced in zip(good, asked, await self._store.jobs.advance(asked), strict=True):
            if isinstance(advanced, StoreError):
                self._guard.note(message, advanced)
                continue
            self._table.patch(one.node_id, advanced.used, advanced.version)
            self._metrics.events_total.labels(advanced.verdict).inc()

    async def on_job_done(self, messages: list[Received]) -> None:
        """Results: finish the jobs, free their slots, push to the sessions' edges or into their mail."""
        asked = []
        for message in messages:
            done = message.frame
            assert isinstance(done, JobDone)
            asked.append(result_routing.finish_of(done))
        found: list[tuple[Received, JobDone, Advanced]] = []
        for message, advanced in zip(messages, await self._store.jobs.advance(asked), strict=True):
            done = message.frame
            assert isinstance(done, JobDone)
            if isinstance(advanced, StoreError):
                self._guard.note(message, advanced)
                continue
            self._table.patch(done.node_id, advanced.used, advanced.version)
            if advanced.speeds:
                cell = cell_of(done.node_id, self._context.config.mesh.cells)
                offset_ms = self._context.snapshot.clock_offset_ms(cell)
                self._table.learn_speeds(done.node_id, advanced.speeds, offset_ms)
            self._metrics.results_total.labels(advanced.verdict).inc()
            found.append((message, done, advanced))
        if found:
            self._slots_freed()
            await self._deliver(found)

    async def _deliver(self, found: list[tuple[Received, JobDone, Advanced]]) -> None:
        """Send each result where its session is, or let it wait there."""
        seats = await self._look_up_seats(found)
        parked: list[tuple[Received, JobDone, MailEntry]] = []
        for message, done, advanced in found:
            body = message.payload[0] if message.payload else b""
            seat = seats.get(result_routing.session_of(done, advanced))
            park, push, ack = result_routing.on_result(done, advanced, body, seat, self._is_live)
            if park is not None:
                parked.append((message, done, park))
            if push is not None:
                self._send(push.to, message.head.cell, push.frame, *message.payload, prefer=message.broker)
            if ack is not None:
                self._send(ack.to, message.head.cell, ack.frame, prefer=message.broker)
        if parked:
            await self._park(parked)

    async def _look_up_seats(self, found: list[tuple[Received, JobDone, Advanced]]) -> dict[str, SessionOwner]:
        """Where the sessions are now, if that is in doubt. What Redis cannot tell is left out."""
        wanted = {
            result_routing.session_of(done, advanced): message
            for message, done, advanced in found
            if result_routing.needs_seat(done, advanced)
        }
        if not wanted:
            return {}
        seats = {}
        answers = await self._store.sessions.owners(list(wanted))
        for (session_id, message), seat in zip(wanted.items(), answers, strict=True):
            if isinstance(seat, StoreError):
                self._guard.note(message, seat)
            else:
                seats[session_id] = seat
        return seats

    async def _park(self, parked: list[tuple[Received, JobDone, MailEntry]]) -> None:
        """Put results into the mail of their sessions; only what is there is acknowledged."""
        answers = await self._store.sessions.park_mail([letter for _, _, letter in parked])
        for (message, done, _), answer in zip(parked, answers, strict=True):
            if isinstance(answer, StoreError):
                self._guard.note(message, answer)
                continue
            self._metrics.parked_total.labels(ParkedKind.RESULT).inc(answer.verdict == "parked")
            self._metrics.mail_dropped_total.inc(answer.dropped)
            ack = result_routing.on_parked(done, answer)
            self._send(ack.to, message.head.cell, ack.frame, prefer=message.broker)

    async def on_assign_failed(self, frame: AssignFailed, message: Received) -> None:
        """The node cannot, will not or did not do it: slot back, attempt undone; one that is away is unlisted."""
        released = await self._store.jobs.release(replies.release_of(frame))
        self._table.patch(frame.node_id, released.used, released.version)
        if replies.is_node_absent(frame) and await self._store.nodes.set_offline(
            frame.node_id, frame.node_epoch, frame.reason
        ):
            self._metrics.nodes_total.labels(NodeChange.OFFLINE).inc()
            self._table.remove(frame.node_id)
        self._slots_freed()
        self._undo(message, replies.on_assign_failed(frame, released), frame.job_id, frame.reason)

    async def on_bounce(self, frame: Bounce, message: Received) -> None:
        """A frame of ours could not be delivered. Only an Assign needs help; the others are repeated by their cause."""
        bounced = decode_frame(message.payload[1])
        if not isinstance(bounced, Assign):
            log.info("bounced", frame=type(bounced).__name__, reason=frame.reason)
            return
        if frame.reason == BounceReason.UNROUTABLE:
            self._avoid_edge_of(bounced.node_id)
        released = await self._store.jobs.release(
            Release(bounced.job_id, bounced.attempt, bounced.node_id, frame.reason)
        )
        self._table.patch(bounced.node_id, released.used, released.version)
        self._slots_freed()
        answer = replies.on_assign_bounced(bounced, released, frame.reason)
        self._undo(message, answer, bounced.job_id, frame.reason)

    async def on_cancel(self, frame: Cancel, message: Received) -> None:
        """Nobody waits any more: slot back, and the node may stop."""
        self._placer.cancel(frame.request_id, frame.attempt, message.head.sent_us)
        bound = self._named(frame) if frame.job_id else await self._find(frame)
        if bound is None:
            return
        job = Release(bound.job_id, bound.attempt, bound.node_id, frame.reason)
        released = await self._store.jobs.release(job)
        self._table.patch(job.node_id, released.used, released.version)
        self._slots_freed()
        self._metrics.cancelled_total.inc()
        answer = replies.on_cancelled(job, released, bound.node_edge)
        if answer is not None:
            self._send(answer.to, cell_of_job(job.job_id), answer.frame, prefer=message.broker)

    def _avoid_edge_of(self, node_id: str) -> None:
        facts, now_ms = self._table.facts_of(node_id), clock.now_ms()
        pause_ms = self._context.config.selector.unreachable_ms
        # When an edge dies, hundreds of frames bounce together: only the first marks its nodes.
        if facts is not None and not self._table.is_avoided(node_id, now_ms + pause_ms // 2):
            self._table.avoid_edge(facts.edge, now_ms + pause_ms)

    def _named(self, frame: Cancel) -> Bound:
        facts = self._table.facts_of(frame.node_id)
        return Bound(frame.attempt, frame.job_id, frame.node_id, facts.edge if facts else "", 0)

    async def _find(self, frame: Cancel) -> Bound | None:
        """Its edge gave up before it heard of a job. If there is one, its slot must not wait for the lease to end.

        Only this attempt: an earlier one may go on beside it, and if not, its edge gave it up by name.
        """
        bound = await self._store.commits.find(frame.request_id, frame.session_id)
        return bound if bound is not None and bound.attempt == frame.attempt else None

    def _undo(self, message: Received, answer: Reply | None, job_id: str, reason: str) -> None:
        if answer is not None:
            self._metrics.undone_total.labels(reason).inc()
            self._send(answer.to, cell_of_job(job_id), answer.frame, prefer=message.broker)
