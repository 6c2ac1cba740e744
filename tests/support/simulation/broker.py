"""A seeded world of edges, brokers and selectors around the real cores: `Switch`, `Courier` and `Peering`.

Time is virtual. Every broker has one connection to every peer: two first-in-first-out pipes of packets with a
high-water mark, as ZeroMQ has them. Faults: packets lost or doubled, connections cut (what was in them is lost), peers
that stop reading, brokers and selectors that die and start anew.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

from broker.core.courier import Courier, Outcome
from broker.core.credit import Peer, Side
from broker.core.switch import Switch, SwitchLimits
from mesh.frames import (
    BROKER,
    Bounce,
    BrokerBeat,
    Busy,
    Cancel,
    Failed,
    Frame,
    Goodbye,
    Head,
    SessionClaim,
    decode_frame,
    lane_of,
)
from mesh.frames.packets import Sealed, encode_table, seal
from mesh.link.credit import LinkCredit
from mesh.link.received import Lanes, Part

LIMITS = SwitchLimits(
    cells=16,
    beat_ms=100,
    dead_ms=300,
    queue_max=8,
    queue_bytes_max=1_000,
    peers_max=32,
    busy_retry_ms=5,
    batch_frames_max=4,
    batch_bytes_max=600,
    inline_bytes_max=50,
)
WINDOW = 6
HIGH_WATER = 4
RESEND_MS = 150


@dataclass
class Pipes:
    """One connection; `up` is False until the peer (re)connects."""

    to_broker: deque[list[Any]] = field(default_factory=deque)
    to_peer: deque[list[Any]] = field(default_factory=deque)
    up: bool = True


class SimPeer:
    """What edges and selectors have in common: a Peering per broker, and pipes that may be full."""

    kind = ""
    window = 0

    def __init__(self, world: World, identity: str) -> None:
        self.world = world
        self.identity = identity
        self.asleep_until_ms = 0
        self.next_beat_ms = 0
        #: Frames of this turn, by broker.
        self.outbox: dict[str, list[Sealed]] = {}
        self.peerings = {
            name: LinkCredit(kind=self.kind, window=self.window, dead_ms=LIMITS.dead_ms) for name in world.brokers
        }
        for name in world.brokers:
            world.pipes[name, identity] = Pipes()

    def send(self, broker: str, to: str, cell: int, frame: Frame, deadline_ms: int = 0) -> bool:
        pipes = self.world.pipes[broker, self.identity]
        if not pipes.up or len(pipes.to_broker) >= HIGH_WATER:
            return False
        now = self.world.now_ms
        self.outbox.setdefault(broker, []).append(
            seal(Head(lane_of(frame), to, cell, self.identity, now * 1_000, deadline_ms), frame)
        )
        return True

    def flush(self) -> None:
        """The end of a turn: one packet per broker, or, as bounds do it, several."""
        for broker, entries in self.outbox.items():
            pipes = self.world.pipes[broker, self.identity]
            while entries and pipes.up:
                cut = self.world.random.randint(1, len(entries)) if self.world.random.random() < 0.3 else len(entries)
                pipes.to_broker.append([self.identity.encode(), encode_table(entries[:cut])])
                del entries[:cut]
        self.outbox.clear()

    def beat(self, broker: str) -> None:
        self.send(broker, BROKER, 0, self.peerings[broker].beat())

    def step(self) -> None:
        now = self.world.now_ms
        if now < self.asleep_until_ms:
            return
        for name, peering in self.peerings.items():
            self._read(name, peering)
        if now >= self.next_beat_ms:
            self.next_beat_ms = now + LIMITS.beat_ms
            for name, peering in self.peerings.items():
                peering.expire(now)
                self.beat(name)
        self.work()
        self.flush()

    def _read(self, broker: str, peering: LinkCredit) -> None:
        inbox = self.world.pipes[broker, self.identity].to_peer
        for _ in range(self.world.random.randint(0, len(inbox))):
            lanes = Lanes()
            lanes.add_packet(inbox.popleft(), broker, peering, lambda beat: self._on_beat(broker, beat))
            assert not lanes.malformed
            for received in lanes.in_order():
                self.receive(broker, received.head, received.frame, received.payload)

    def _on_beat(self, broker: str, beat: BrokerBeat) -> None:
        if self.peerings[broker].on_beat(beat, self.world.now_ms):
            self.beat(broker)

    def live_brokers(self) -> list[str]:
        return [name for name, peering in self.peerings.items() if peering.live]

    def receive(self, broker: str, head: Head, frame: Frame, payload: list[Part]) -> None:
        raise NotImplementedError

    def work(self) -> None:
        raise NotImplementedError


class SimSelector(SimPeer):
    """Answers each request after a while, and gives its credit back."""

    kind = "selector"
    window = WINDOW

    def __init__(self, world: World, identity: str) -> None:
        super().__init__(world, identity)
        self.held: list[tuple[int, str, Head, SessionClaim]] = []
        self.most_held: Counter[str] = Counter()

    def receive(self, broker: str, head: Head, frame: Frame, payload: list[Part]) -> None:
        if isinstance(frame, SessionClaim):
            due_ms = self.world.now_ms + self.world.random.randint(0, 60)
            self.held.append((due_ms, broker, head, frame))
            held = sum(entry[1] == broker for entry in self.held)
            self.most_held[broker] = max(self.most_held[broker], held)

    def work(self) -> None:
        now = self.world.now_ms
        done = [entry for entry in self.held if entry[0] <= now and self._answer(entry[1], entry[2], entry[3])]
        gone = set(map(id, done))
        self.held = [entry for entry in self.held if id(entry) not in gone]
        for _, broker, _, _ in done:
            self.peerings[broker].release(1)
        for broker in sorted({entry[1] for entry in done}):
            self.send(broker, BROKER, 0, self.peerings[broker].credit())

    def _answer(self, broker: str, head: Head, frame: SessionClaim) -> bool:
        brokers = sorted(self.live_brokers(), key=lambda name: name != broker)
        answer = Failed(frame.ref, "answer", self.identity)
        return any(self.send(name, head.source, 0, answer) for name in brokers)


class SimEdge(SimPeer):
    """Sends requests and repeats them until a selector has answered; counts every kind of answer."""

    kind = "edge"

    def __init__(self, world: World, identity: str) -> None:
        super().__init__(world, identity)
        self.waiting: dict[str, int] = {}  # ref -> when to send (again)
        self.answers: dict[str, Counter[str]] = {}
        self.repeat = True

    def ask(self, ref: str) -> None:
        self.waiting[ref] = self.world.now_ms
        self.answers[ref] = Counter()

    def cancel(self) -> None:
        """A control frame, for any selector or for one that may be long gone: it needs no credit."""
        for broker in self.live_brokers():
            to = self.world.random.choice(["", "selector:s0:1", "edge:nobody:1"])
            self.send(broker, to, self.world.random.randint(0, 99), Cancel("r", "", 1, "", "", "gone"))

    def work(self) -> None:
        now, brokers = self.world.now_ms, self.live_brokers()
        for ref in [ref for ref, due_ms in self.waiting.items() if due_ms <= now]:
            if brokers:
                broker = self.world.random.choice(brokers)
                claim = SessionClaim(ref, ref, self.identity, 0, "", "", "")
                deadline = now + self.world.random.choice([0, 2_000])
                if self.send(broker, "", hash_cell(ref), claim, deadline if deadline != now else 0):
                    self.waiting[ref] = now + (RESEND_MS if self.repeat else 1_000_000_000)

    def receive(self, broker: str, head: Head, frame: Frame, payload: list[Part]) -> None:
        if isinstance(frame, Failed):
            self._answered(frame.ref, "answer")
            self.waiting.pop(frame.ref, None)
        elif isinstance(frame, Busy | Bounce):
            original = decode_frame(payload[1])
            if isinstance(original, SessionClaim):
                self._answered(original.ref, type(frame).__name__)
                if self.repeat and original.ref in self.waiting:
                    self.waiting[original.ref] = self.world.now_ms + LIMITS.busy_retry_ms

    def _answered(self, ref: str, kind: str) -> None:
        self.answers[ref][kind] += 1


class SimBroker:
    """The real core, with pipes for sockets."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.asleep_until_ms = 0
        self.boots = 0
        self.boot()

    def boot(self) -> None:
        self.boots += 1
        self.switch = Switch(
            broker_id=self.name,
            boot_id=f"{self.name}.{self.boots}",
            limits=LIMITS,
            connection_start=self.world.random.randint(1, 1_000_000),
            now_ms=self.world.now_ms,
        )
        self.courier = Courier(self.switch, self._attempt)

    def _attempt(self, peer: Peer, table: bytes, blobs: list[Any]) -> Outcome:
        pipes = self.world.pipes.get((self.name, peer.name))
        if pipes is None or not pipes.up:
            return Outcome.UNREACHABLE
        if len(pipes.to_peer) >= HIGH_WATER:
            return Outcome.PIPE_FULL
        self.world.deliver(pipes.to_peer, [table, *blobs])
        return Outcome.SENT

    def step(self) -> None:
        if self.world.now_ms < self.asleep_until_ms:
            return
        batches: dict[Side, list[list[Any]]] = {Side.FRONT: [], Side.BACK: []}
        for peer in self.world.peers():
            inbox = self.world.pipes[self.name, peer.identity].to_broker
            side = Side.FRONT if peer.kind == "edge" else Side.BACK
            for _ in range(self.world.random.randint(0, len(inbox))):
                self.world.deliver(batches[side], inbox.popleft())
        now = self.world.now_ms
        copies = [[list(parts) for parts in batches[side]] for side in Side]
        self.courier.send_all(self.switch.receive(copies[0], copies[1], now, now * 1_000))
        self.switch.check()
        self.courier.flush(now * 1_000)
        self.courier.send_all(self.switch.tick(now))
        self.switch.check()


class World:
    """All of it, and the faults."""

    def __init__(self, seed: int, *, brokers: int = 2, edges: int = 2, selectors: int = 2) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000
        self.loss = self.doubling = 0.0
        self.pipes: dict[tuple[str, str], Pipes] = {}
        self.brokers: dict[str, SimBroker] = {}
        self.brokers = {name: SimBroker(self, name) for name in [f"b{n}" for n in range(brokers)]}
        self.edges = [SimEdge(self, f"edge:e{n}:1") for n in range(edges)]
        self.selectors = [SimSelector(self, f"selector:s{n}:1") for n in range(selectors)]
        self._lives = 1

    def peers(self) -> list[SimPeer]:
        return [*self.edges, *self.selectors]

    def deliver(self, queue: deque[list[Any]] | list[list[Any]], parts: list[Any]) -> None:
        if self.random.random() < self.loss:
            return
        queue.append(parts)
        if self.random.random() < self.doubling:
            queue.append(list(parts))

    def step(self) -> None:
        self.now_ms += self.random.randint(1, 12)
        actors: list[SimPeer | SimBroker] = [*self.brokers.values(), *self.peers()]
        self.random.shuffle(actors)
        for actor in actors:
            actor.step()

    # --- faults -----------------------------------------------------------------------------------

    def fault(self) -> None:
        """One random misfortune."""
        self.random.choice([self.cut, self.cut, self.put_to_sleep, self.kill_broker, self.kill_selector])()

    def cut(self) -> None:
        """A connection breaks; what was in it is lost. It comes back at a later step (`mend`)."""
        pipes = self.random.choice(list(self.pipes.values()))
        pipes.to_broker.clear()
        pipes.to_peer.clear()
        pipes.up = False

    def mend(self) -> None:
        for pipes in self.pipes.values():
            pipes.up = True

    def put_to_sleep(self) -> None:
        actor = self.random.choice([*self.peers(), *self.brokers.values()])
        actor.asleep_until_ms = self.now_ms + self.random.randint(10, 2 * LIMITS.dead_ms)

    def kill_broker(self) -> None:
        broker = self.random.choice(list(self.brokers.values()))
        for (name, _), pipes in self.pipes.items():
            if name == broker.name:
                pipes.to_broker.clear()
                pipes.to_peer.clear()
        broker.boot()

    def kill_selector(self) -> None:
        """It dies silently, or sends Goodbye; a new one with another identity replaces it."""
        place = self.random.randrange(len(self.selectors))
        old = self.selectors[place]
        polite = self.random.random() < 0.3
        for name in self.brokers:
            if polite:
                old.send(name, BROKER, 0, Goodbye())
                old.flush()
            del self.pipes[name, old.identity]
        self._lives += 1
        self.selectors[place] = SimSelector(self, f"selector:s{place}:{self._lives}")


def hash_cell(ref: str) -> int:
    """A cell that does not depend on Python's hash seed."""
    return sum(ref.encode()) % LIMITS.cells
