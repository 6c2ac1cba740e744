"""The link rim of a selector: sorts what arrives into lanes, works each lane in batches, gives credit back.

Lanes do not wait for one another, so one slow call holds up its own lane only; beats are the link's own business.
Whatever one message does wrong costs that message: it is logged with its ids, its credit goes back, the rest goes on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from lua.store import Store
from mesh.cells import cell_of
from mesh.config import Config
from mesh.frames import (
    AssignFailed,
    Bounce,
    Cancel,
    Dispatch,
    EdgeReport,
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
from selector.core.node_table import NodeFacts, NodeTable
from selector.core.pools import PoolPlan
from selector.fleet.core.node_replies import on_lost
from selector.fleet.edge_liveness import EdgeLiveness
from selector.fleet.missing_models import MissingModels
from selector.fleet.presence import PresenceAnnouncer
from selector.fleet.registration import NodeRegistration
from selector.fleet.snapshot import Snapshot
from selector.frame_guard import FrameGuard
from selector.jobs.handler import JobHandler
from selector.lanes import BatchHandler, TaskLane
from selector.metrics import SelectorMetrics
from selector.operators.decision_log import DecisionLog
from selector.operators.fleet_view import FleetView
from selector.operators.queries import Queries
from selector.placement.placer import Placer
from selector.placement.weights import CurrentWeights
from selector.sessions.handler import SessionHandler
from selector.sessions.pairing import PairingHandler
from selector.sessions.rooms import RoomHandler

Handler = Callable[[Received], Awaitable[None]]
Dropped = Callable[[Received], None]

#: Words about missing models that are worked on together; large, because a storm of them is mostly repeats.
MODELS_BATCH: Final = 512
#: Questions of operators that wait, and those that are answered side by side.
QUERIES_MAX: Final = 256
QUERIES_BATCH: Final = 8

#: Frames that a selector handles, each in a lane. Any other is logged and dropped.
HANDLED: Final = frames_to(Role.SELECTOR)

log = get_logger()


class Selector:
    """One selector: lanes, snapshot and link together."""

    def __init__(self, identity: str, store: Store, config: Config, metrics: SelectorMetrics, version: str) -> None:
        self.identity = identity
        self._config = config
        self._metrics = metrics
        self.table = NodeTable(config.selector.nodes_max, _words_kept(config))
        self.snapshot = Snapshot(store, self.table, config, metrics, self._on_lost, self._on_changed)
        self.link = Link(
            identity=identity,
            kind=ProcessKind.SELECTOR,
            endpoints=config.link.backends,
            config=config.link,
            window=config.selector.window,
            on_messages=self._on_messages,
            metrics=LinkMetrics(),
        )
        send, table, snapshot = self.link.send, self.table, self.snapshot
        self._faults = faults = FrameGuard(metrics)
        self.policy = CurrentWeights(store, config, metrics)
        plan, decisions = PoolPlan(config.pools), DecisionLog(config)
        self.placer = Placer(store, table, snapshot, config, metrics, send, self.policy, plan, decisions)
        self._living = EdgeLiveness(store, config.selector)
        self._jobs = JobHandler(store, table, snapshot, config, metrics, faults, send, self.placer, self._living.lives)
        self._sessions = SessionHandler(store, config, metrics, faults, send, self._living.lives)
        self._rooms = RoomHandler(store, config, metrics, send, self._sessions.post)
        self._pairing = PairingHandler(store, config, metrics, send)
        self._registry = NodeRegistration(
            store, table, snapshot, plan, config, metrics, faults, send, self.placer.slots_freed
        )
        self._models = MissingModels(store, table, snapshot, config, metrics)
        fleet = FleetView(table, snapshot, plan, self.placer.rules, config)
        self._queries = Queries(
            identity, store, fleet, self.policy, decisions, self._registry, self._models, self._pairing, config,
            metrics, send,
        )  # fmt: skip
        self._announcer = PresenceAnnouncer(store, identity, version, config.selector, self._registry.ledger_counts)
        self._together, self._alone = self._handlers()
        self._lanes = self._make_lanes()
        assert set(self._lanes) == HANDLED, "every frame that a selector handles needs a lane"
        assert set(self._together) | set(self._alone) == HANDLED, "every frame that a selector handles needs a handler"
        #: What is done about a frame that its lane has no room for, beside counting it.
        self._dropped: dict[type[Frame], Dropped] = {
            ModelMissing: self._models.dropped,
            Query: self._queries.refuse,
        }
        self._tasks: list[asyncio.Task[None]] = []

    def _handlers(self) -> tuple[dict[type[Frame], BatchHandler], dict[type[Frame], Handler]]:
        """What comes in numbers is worked on in batches, the rest one at a time."""
        jobs, registry, sessions = self._jobs, self._registry, self._sessions
        return {
            Dispatch: self.placer.place,
            JobDone: jobs.on_job_done,
            JobEvent: jobs.on_job_events,
            NodeHeartbeat: registry.on_node_heartbeats,
            ModelMissing: self._models.on_model_missing,
            Post: sessions.on_posts,
        }, {
            NodeRegister: registry.on_node_register,
            NodeOffline: registry.on_node_offline,
            SessionClaim: sessions.on_session_claim,
            SessionRelease: sessions.on_session_release,
            SessionNote: sessions.on_session_note,
            MailAsk: sessions.on_mail_ask,
            MailTrim: sessions.on_mail_trim,
            RoomRequest: self._rooms.on_room_request,
            RoomSignal: self._rooms.on_room_signal,
            PairingAsk: self._pairing.on_pairing_ask,
            PairingUse: self._pairing.on_pairing_use,
            AssignFailed: jobs.on_assign_failed,
            Bounce: jobs.on_bounce,
            Cancel: jobs.on_cancel,
            Query: self._queries.on_query,
            EdgeReport: self._announcer.on_edge_report,
        }

    def _make_lanes(self) -> dict[type[Frame], TaskLane]:
        config = self._config.selector
        work, control, batch = config.window, config.control_queue_max, config.batch_max

        def lane(name: str, bound: int, batch: int = batch) -> TaskLane:
            return TaskLane(name, self._work, self._give_back, batch, bound)

        records, events = lane("records", work + control), lane("events", control)
        mail = lane("mail", work + control)
        return {
            Dispatch: lane("place", work),
            JobDone: lane("results", work),
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

    # --- life -------------------------------------------------------------------------------------------

    async def start(self, timeout_ms: int) -> None:
        """Read all nodes, then connect; returns when a broker answers. LinkError or StoreError if something is away."""
        await asyncio.gather(self.snapshot.refresh(), self.policy.refresh())
        lanes = {lane.name: lane for lane in self._lanes.values()}
        for name, lane in lanes.items():
            self._tasks.append(asyncio.create_task(lane.run(), name=f"lane {name}"))
        for name, work in (
            ("snapshot", self.snapshot.run()),
            ("presence", self._announcer.run()),
            ("living", self._living.run()),
            ("weights", self.policy.run()),
            ("waiting", self.placer.run()),
            ("scan", self._registry.scan()),
            ("rooms", self._rooms.scan()),
        ):
            self._tasks.append(asyncio.create_task(work, name=name))
        await self.link.start()
        await self.link.ready(timeout_ms)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then finish what is here. A task that dies takes the process with it."""
        stopping = asyncio.create_task(stop.wait(), name="stop")
        done, _ = await asyncio.wait([stopping, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopping}:
            task.result()  # raises: a lane never ends by itself
        await self._drain()

    async def close(self) -> None:
        """End all tasks and the link."""
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
        self._living.heard(messages)
        for message in messages:
            lane = self._lanes.get(type(message.frame))
            if lane is None:
                log.warning("unexpected_frame", frame=type(message.frame).__name__, source=message.head.source)
            elif lane.put(message):
                continue
            else:
                self._on_full(lane, message)
            self._give_back([message])

    def _on_full(self, lane: TaskLane, message: Received) -> None:
        log.warning("lane_full", lane=lane.name, frame=type(message.frame).__name__)
        self._metrics.lane_dropped_total.labels(lane.name).inc()
        on_dropped = self._dropped.get(type(message.frame))
        if on_dropped is not None:
            on_dropped(message)

    def _on_changed(self) -> None:
        self.placer.slots_freed()

    def _on_lost(self, node_id: str, facts: NodeFacts) -> None:
        answer = on_lost(node_id, facts.edge, facts.epoch)
        self.link.send(answer.to, cell_of(node_id, self._config.mesh.cells), answer.frame)

    def _give_back(self, messages: Iterable[Received]) -> None:
        counts = Counter(message.broker for message in messages if message.costs_credit)
        if counts:
            self.link.consumed(counts)

    async def _work(self, batch: list[Received]) -> None:
        """All at once: what comes in numbers as one call, the rest each alone; the runner sends it together."""
        groups: dict[type[Frame], list[Received]] = {}
        for message in batch:
            groups.setdefault(type(message.frame), []).append(message)
        work: list[Awaitable[None]] = []
        for kind, messages in groups.items():
            together = self._together.get(kind)
            if together is not None:
                work.append(self._attempt(together, messages))
            else:
                work += [self._faults.guard(message, self._alone[kind](message)) for message in messages]
        if len(work) == 1:
            await work[0]
        else:
            await asyncio.gather(*work)

    async def _attempt(self, handle: BatchHandler, messages: list[Received]) -> None:
        try:
            await handle(messages)
        except Exception:  # noqa: BLE001 - gateway: one bad message must not cost its neighbours; each is tried alone
            for message in messages:
                await self._faults.guard(message, handle([message]))


def _words_kept(config: Config) -> list[str]:
    """Services and models that some feature of a job needs: they have a number, however many others nodes name."""
    modules = config.modules.table.values()
    return sorted({word for module in modules for word in (*module.services, *module.models)})
