"""One selector: builds the handlers, sorts received messages into lanes, returns credit to the brokers.

Lanes run independently, so a slow call delays its own lane only. Beats are handled by the link. A message that fails is
logged with its ids and its credit is returned; other messages are not affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from lua.store import Store
from lua.store.types.nodes import NodeFacts
from mesh import clock
from mesh.cells import cell_of
from mesh.config import Config
from mesh.frames import (
    AssignFailed,
    Bounce,
    Cancel,
    Dispatch,
    EdgeReport,
    Finished,
    Frame,
    JobDone,
    JobEvent,
    MailAsk,
    MailTrim,
    ModelMissing,
    NodeHeartbeat,
    NodeOffline,
    NodeRegister,
    PairingAsk,
    PairingUse,
    Post,
    Query,
    Role,
    RoomRequest,
    RoomSignal,
    SessionClaim,
    SessionNote,
    SessionRelease,
    frames_to,
)
from mesh.link.link import Link, Received
from mesh.log import get_logger
from mesh.metrics import LinkMetrics
from mesh.words import ProcessKind
from selector.context import SelectorContext
from selector.core.node_table import NodeTable
from selector.fleet.core.node_replies import on_lost
from selector.fleet.edge_liveness import EdgeLiveness
from selector.fleet.missing_models import MissingModels
from selector.fleet.presence import PresenceAnnouncer
from selector.fleet.registration import NodeRegistration
from selector.fleet.snapshot import Snapshot
from selector.frame_handlers import FrameHandlers
from selector.jobs.handler import JobHandler
from selector.lanes import BatchHandler, TaskLane
from selector.metrics import SelectorMetrics
from selector.operators.decision_log import DecisionLog
from selector.operators.queries import Queries
from selector.placement.placer import Placer
from selector.placement.weights import CurrentWeights
from selector.sessions.handler import SessionHandler
from selector.sessions.pairing import PairingHandler
from selector.sessions.rooms import RoomHandler

Dropped = Callable[[Received], None]

#: ModelMissing frames per batch; large, because a burst of them is mostly duplicates.
MODELS_BATCH: Final = 512
#: Queries of operators that may be queued, and those that are answered concurrently.
QUERIES_MAX: Final = 256
QUERIES_BATCH: Final = 8

#: Frames that a selector handles, each in a lane. Any other is logged and dropped.
HANDLED: Final = frames_to(Role.SELECTOR)

log = get_logger()


class Selector:
    """One selector: lanes, snapshot and link."""

    def __init__(self, identity: str, store: Store, config: Config, metrics: SelectorMetrics, version: str) -> None:
        self.identity = identity
        self._config = config
        self._metrics = metrics
        self.table = NodeTable(config.selector.nodes_max, _interned(config))
        self.snapshot = Snapshot(store, self.table, config, metrics, self._on_lost)
        self.link = Link(
            identity=identity,
            kind=ProcessKind.SELECTOR,
            endpoints=config.link.backends,
            config=config.link,
            window=config.selector.window,
            on_messages=self._on_messages,
            metrics=LinkMetrics(),
        )
        context = SelectorContext.of(store, config, metrics, self.link.send, self.table, self.snapshot, identity)
        self.weights = CurrentWeights(store, config, metrics)
        decisions = DecisionLog(config)
        self.placer = Placer(context, self.weights, decisions)
        self.snapshot.on_changed = self.placer.wait_queue.slots_freed
        self._edges = EdgeLiveness(store, config.selector)
        self._jobs = JobHandler(context, self.placer, self._edges.is_live)
        self.link.before_flush = self._jobs.acks.send_all
        self._sessions = SessionHandler(context, self._edges.is_live)
        self._rooms = RoomHandler(context, self._sessions.post)
        self._pairing = PairingHandler(context)
        self._nodes = NodeRegistration(context, self.placer.wait_queue.slots_freed)
        self._models = MissingModels(context)
        self._queries = Queries(identity, context, self.weights, decisions, self._nodes, self._models, self._pairing)
        self._announcer = PresenceAnnouncer(store, identity, version, config.selector, self._nodes.ledger_counts)
        self._handlers = FrameHandlers(context.guard)
        self._register_handlers()
        self._lanes = self._make_lanes()
        assert set(self._lanes) == HANDLED, "every frame that a selector handles needs a lane"
        assert self._handlers.kinds == HANDLED, "every frame that a selector handles needs a handler"
        #: What to do with a frame that its full lane drops, besides counting it.
        self._on_dropped: dict[type[Frame], Dropped] = {
            ModelMissing: self._models.on_dropped,
            Query: self._queries.refuse,
        }
        self._tasks: list[asyncio.Task[None]] = []

    def _register_handlers(self) -> None:
        on_batch, on = self._handlers.on_batch, self._handlers.on
        jobs, nodes, sessions, rooms, pairing = self._jobs, self._nodes, self._sessions, self._rooms, self._pairing
        on_batch(Dispatch, self._place)
        on_batch(Finished, jobs.on_finished)
        on_batch(JobDone, jobs.on_job_done)
        on_batch(JobEvent, jobs.on_job_events)
        on_batch(NodeHeartbeat, nodes.on_node_heartbeats)
        on_batch(ModelMissing, self._models.on_model_missing)
        on_batch(Post, sessions.on_posts)
        on(AssignFailed, jobs.on_assign_failed)
        on(Bounce, jobs.on_bounce)
        on(Cancel, jobs.on_cancel)
        on(NodeRegister, nodes.on_node_register)
        on(NodeOffline, nodes.on_node_offline)
        on(SessionClaim, sessions.on_session_claim)
        on(SessionRelease, sessions.on_session_release)
        on(SessionNote, sessions.on_session_note)
        on(MailAsk, sessions.on_mail_ask)
        on(MailTrim, sessions.on_mail_trim)
        on(RoomRequest, rooms.on_room_request)
        on(RoomSignal, rooms.on_room_signal)
        on(PairingAsk, pairing.on_pairing_ask)
        on(PairingUse, pairing.on_pairing_use)
        on(Query, self._queries.on_query)
        on(EdgeReport, self._announcer.on_edge_report)

    def _make_lanes(self) -> dict[type[Frame], TaskLane]:
        config = self._config.selector
        work, control, batch = config.window, config.control_queue_max, config.batch_max

        def lane(name: str, bound: int, batch: int = batch, handle: BatchHandler = self._handlers.handle) -> TaskLane:
            return TaskLane(name, handle, self._give_back, batch, bound)

        records, events = lane("records", work + control), lane("events", control)
        mail = lane("mail", work + control)
        return {
            Dispatch: lane("place", work, handle=self._handlers.batch_of(Dispatch)),
            Finished: lane("finished", control, handle=self._handlers.batch_of(Finished)),
            JobDone: lane("results", work, handle=self._handlers.batch_of(JobDone)),
            **dict.fromkeys((NodeRegister, NodeHeartbeat, NodeOffline), records),
            **dict.fromkeys((SessionClaim, SessionRelease, SessionNote), records),
            **dict.fromkeys((MailAsk, MailTrim, Post), mail),
            **dict.fromkeys((RoomRequest, RoomSignal), lane("rooms", work)),
            **dict.fromkeys((PairingAsk, PairingUse), lane("pairing", work)),
            **dict.fromkeys((JobEvent, AssignFailed, Bounce, Cancel), events),
            ModelMissing: lane("models", self._config.models.queue_max, MODELS_BATCH),
            Query: lane("queries", QUERIES_MAX, QUERIES_BATCH),
            EdgeReport: lane("reports", control),
        }

    # --- lifecycle -------------------------------------------------------------------------------------------

    async def start(self, timeout_ms: int) -> None:
        """Read all nodes, then connect; returns when a broker replies. Raises LinkError or StoreError."""
        await asyncio.gather(self.snapshot.refresh(), self.weights.refresh())
        lanes = {lane.name: lane for lane in self._lanes.values()}
        for name, lane in lanes.items():
            self._tasks.append(asyncio.create_task(lane.run(), name=f"lane {name}"))
        for name, work in (
            ("snapshot", self.snapshot.run()),
            ("presence", self._announcer.run()),
            ("liveness", self._edges.run()),
            ("weights", self.weights.run()),
            ("waiting", self.placer.wait_queue.run()),
            ("scan", self._nodes.scan()),
            ("rooms", self._rooms.scan()),
        ):
            self._tasks.append(asyncio.create_task(work, name=name))
        await self.link.start()
        await self.link.ready(timeout_ms)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain the lanes. A task that fails ends the process."""
        stopping = asyncio.create_task(stop.wait(), name="stop")
        done, _ = await asyncio.wait([stopping, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopping}:
            task.result()  # raises: these tasks never return
        await self._drain()

    async def close(self) -> None:
        """Cancel all tasks and close the link."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.link.close()
        await self._announcer.end()

    async def _drain(self) -> None:
        self.link.drain()
        idle = asyncio.gather(*(lane.idle.wait() for lane in set(self._lanes.values())))
        try:
            await asyncio.wait_for(idle, self._config.selector.drain_ms / 1_000)
        except TimeoutError:
            log.warning("drain_cut_short", held=self.link.held())

    # --- messages -----------------------------------------------------------------------------------------

    def _on_messages(self, messages: list[Received]) -> None:
        now_ms, arrived_us, on_frame = clock.now_ms(), clock.wall_us(), self._edges.detector.on_frame
        for message in messages:
            on_frame(message.head.source, now_ms)
            lane = self._lanes.get(type(message.frame))
            if lane is None:
                log.warning("unexpected_frame", frame=type(message.frame).__name__, source=message.head.source)
            elif lane.put(message, arrived_us):
                continue
            else:
                self._on_full(lane, message)
            self._give_back([message])

    async def _place(self, messages: list[Received]) -> None:
        await self.placer.place(messages, self._lanes[Dispatch].arrived_us)

    def _on_full(self, lane: TaskLane, message: Received) -> None:
        log.warning("lane_full", lane=lane.name, frame=type(message.frame).__name__)
        self._metrics.lane_dropped_total.labels(lane.name).inc()
        on_dropped = self._on_dropped.get(type(message.frame))
        if on_dropped is not None:
            on_dropped(message)

    def _on_lost(self, node_id: str, facts: NodeFacts) -> None:
        answer = on_lost(node_id, facts.edge, facts.epoch)
        self.link.send(answer.to, cell_of(node_id, self._config.mesh.cells), answer.frame)

    def _give_back(self, messages: Iterable[Received]) -> None:
        counts: dict[str, int] = {}
        for message in messages:
            if message.costs_credit:
                counts[message.broker] = counts.get(message.broker, 0) + 1
        if counts:
            self.link.consumed(counts)


def _interned(config: Config) -> list[str]:
    """Services and models that a feature of a job needs: they are always interned, however many others nodes list."""
    modules = config.modules.table.values()
    return sorted({word for module in modules for word in (*module.services, *module.models)})
