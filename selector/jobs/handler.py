"""Handlers for placed jobs: events, ends, results that need a selector, failed attempts, cancellation.

Events, ends and results come in batches: one call of the store per batch. The others are rare and come one at a time.
Call the store, decide in the core, send. On a store error nothing is sent: the sender retries, or the lease expires.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from lua.store.types.commits import Bound
from lua.store.types.jobs import Advance, Advanced, Release
from lua.store.types.sessions import MailEntry, SessionOwner
from mesh import clock
from mesh.cells import cell_of, cell_of_job
from mesh.errors import StoreError
from mesh.frames import (
    Assign,
    AssignFailed,
    Bounce,
    Cancel,
    Finished,
    FinishedJob,
    JobDone,
    JobEvent,
    ResultAck,
    ResultAcks,
    decode_frame,
)
from mesh.link.link import Received, bytes_of
from mesh.log import get_logger
from mesh.states.job import JobAction
from mesh.words import BounceReason, NodeChange, ParkedKind
from selector.context import SelectorContext
from selector.core.reply import Reply
from selector.jobs.core import result_routing
from selector.jobs.core.result_routing import AckTo
from selector.jobs.finished_acks import FinishedAcks
from selector.placement.core import replies
from selector.placement.placer import Placer
from selector.placement.turnover import SlotTurnover

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
        self._turnover = SlotTurnover(context, placer)
        self._slots_freed = placer.wait_queue.slots_freed
        self._is_live = is_live
        self.acks = FinishedAcks(context.config.link, context.send)

    async def on_job_events(self, messages: list[Received]) -> None:
        """Jobs were handed to their nodes, accepted or started."""
        valid, advances = [], []
        for message in messages:
            frame = message.frame
            assert isinstance(frame, JobEvent)
            if not frame.event or not _EVENTS.issuperset(frame.event.split()):
                self._guard.note(message, ValueError(f"{frame.event!r} is no list of events"))
                continue
            valid.append(message)
            advances.append(Advance(frame.job_id, frame.attempt, frame.node_id, frame.event))
        for message, one, advanced in zip(valid, advances, await self._store.jobs.advance(advances), strict=True):
            if isinstance(advanced, StoreError):
                self._guard.note(message, advanced)
                continue
            self._table.patch(one.node_id, advanced.used, advanced.version)
            self._metrics.events_total.labels(advanced.verdict).inc()

    async def on_finished(self, messages: list[Received]) -> None:
        """Jobs ended, and their results went directly to their sessions: finish them and release their slots."""
        await self._finish(messages)

    async def on_job_done(self, messages: list[Received]) -> None:
        """Results: finish the jobs, release their slots, push to the sessions' edges or park in their mail."""
        found: list[tuple[Received, JobDone, Advanced]] = []
        for message, advanced in zip(messages, await self._finish(messages), strict=True):
            done = message.frame
            assert isinstance(done, JobDone)
            if not isinstance(advanced, StoreError):
                found.append((message, done, advanced))
        if found:
            await self._deliver(found)

    async def _finish(self, messages: list[Received]) -> list[Advanced | StoreError]:
        """Finish the jobs of Finished and JobDone frames, give their slots to waiting requests, acknowledge.

        A fenced or unknown job is acknowledged too, because its edge must not retry; after a store error it must.
        """
        advances = [result_routing.finish_of(_end_of(message)) for message in messages]
        answers = await self._turnover.finish(advances)
        for message, one, advanced in zip(messages, advances, answers, strict=True):
            if isinstance(advanced, StoreError):
                self._guard.note(message, advanced)
                continue
            if advanced.speeds:
                cell = cell_of(one.node_id, self._context.config.mesh.cells)
                offset_ms = self._context.snapshot.clock_offset_ms(cell)
                self._table.learn_speeds(one.node_id, advanced.speeds, offset_ms)
            self._metrics.results_total.labels(advanced.verdict).inc()
            self.acks.add(_end_of(message).node_edge, FinishedJob(one.node_id, one.job_id, one.attempt))
        return answers

    async def _deliver(self, found: list[tuple[Received, JobDone, Advanced]]) -> None:
        """Push each result to the owner of its session, or park it in the session's mail."""
        moved = [one for one in found if result_routing.needs_owner(one[1], one[2])]
        owners = await self._owners(moved) if moved else {}
        parked: list[tuple[Received, JobDone, MailEntry]] = []
        acks: list[AckTo] = []
        for message, done, advanced in found:
            owner = owners.get(result_routing.session_of(done, advanced)) if owners else None
            park, push, ack = result_routing.on_result(done, advanced, message.payload, owner, self._is_live)
            if park is not None:
                parked.append((message, done, park))
            if push is not None:
                self._send(push.to, message.head.cell, push.frame, *message.payload, prefer=message.broker)
            if ack is not None:
                acks.append(ack)
        if parked:
            acks += await self._park(parked)
        self._send_acks(acks, found[0][0])

    def _send_acks(self, acks: Sequence[AckTo], message: Received) -> None:
        """One frame for each edge; a batch bounds their number."""
        by_edge: dict[str, list[ResultAck]] = {}
        for to, ack in acks:
            by_edge.setdefault(to, []).append(ack)
        for edge, gathered in by_edge.items():
            self._send(edge, message.head.cell, ResultAcks(gathered), prefer=message.broker)

    async def _owners(self, moved: list[tuple[Received, JobDone, Advanced]]) -> dict[str, SessionOwner]:
        """The owners of sessions that may have moved. Store errors are logged and left out."""
        wanted = {result_routing.session_of(done, advanced): message for message, done, advanced in moved}
        owners = {}
        answers = await self._store.sessions.owners(list(wanted))
        for (session_id, message), owner in zip(wanted.items(), answers, strict=True):
            if isinstance(owner, StoreError):
                self._guard.note(message, owner)
            else:
                owners[session_id] = owner
        return owners

    async def _park(self, parked: list[tuple[Received, JobDone, MailEntry]]) -> list[AckTo]:
        """Park results in the mail of their sessions; returns the acknowledgements of those that are stored."""
        acks = []
        answers = await self._store.sessions.park_mail([entry for _, _, entry in parked])
        for (message, done, _), answer in zip(parked, answers, strict=True):
            if isinstance(answer, StoreError):
                self._guard.note(message, answer)
                continue
            self._metrics.parked_total.labels(ParkedKind.RESULT).inc(answer.verdict == "parked")
            self._metrics.mail_dropped_total.inc(answer.dropped)
            acks.append(result_routing.on_parked(done, answer))
        return acks

    async def on_assign_failed(self, frame: AssignFailed, message: Received) -> None:
        """The node does not run the job: release its slot, send Undone, unlist an absent node."""
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
        """A frame of ours was not delivered. Only an Assign is handled; the senders of other causes retry."""
        bounced = decode_frame(bytes_of(message.payload[1]))
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
        """No client waits for the job any more: release its slot, and stop the node."""
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
        return Bound(frame.job_id, frame.node_id, facts.edge if facts else "", 0, frame.attempt)

    async def _find(self, frame: Cancel) -> Bound | None:
        """Its edge cancelled before it knew the job. Its slot, if any, must not stay occupied until the lease ends.

        Only this attempt: an earlier one may run concurrently, or its edge cancelled it by its job id.
        """
        bound = await self._store.commits.find(frame.request_id, frame.session_id)
        return bound if bound is not None and bound.attempt == frame.attempt else None

    def _undo(self, message: Received, answer: Reply | None, job_id: str, reason: str) -> None:
        if answer is not None:
            self._metrics.undone_total.labels(reason).inc()
            self._send(answer.to, cell_of_job(job_id), answer.frame, prefer=message.broker)


def _end_of(message: Received) -> Finished | JobDone:
    """The frame of a message in the lanes of ended jobs."""
    return cast("Finished | JobDone", message.frame)
