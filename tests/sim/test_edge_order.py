"""A speaker and its listeners: results that come in any order, late, twice or never, and a rim that ticks late.

Each listener has an order of its own, fed by the jobs for its language. Whatever happens, it hears of every index
once and in order, of its own language only, and every result is told or counted as dropped.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from edge.rooms.core.fanout import Fan, plan
from edge.sessions.core.results.result_order import Missing, Release, Released, ResultOrder, ResultOrderLimits
from mesh.errors import ErrorCode, PeerError
from mesh.frames.sessions import RoomMember
from mesh.words import MissingReason

UTTERANCES = 40
MEMBERS = [RoomMember(f"l{number}", "", lang, 0) for number, lang in enumerate(("en", "de", "EN "))]
FANS = plan("speaker", "fr", [RoomMember("speaker", "", "zh", 0), *MEMBERS])


@dataclass
class Listener:
    """One member: its order, and what it heard."""

    target: str
    order: ResultOrder
    heard: Released = field(default_factory=list)
    skipped: set[int] = field(default_factory=set)
    #: Indices of which a result was accepted, and all that arrived or failed.
    accepted: set[int] = field(default_factory=set)
    resolved: set[int] = field(default_factory=set)
    dropped: int = 0


class World:
    """The simulation."""

    def __init__(self, seed: int, limits: ResultOrderLimits) -> None:
        self.random = random.Random(seed)
        self.limits = limits
        self.now_ms = 0
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = 0
        self.listeners = {name: Listener(fan.target, ResultOrder(limits)) for fan in FANS for name in fan.listeners}
        self.refused = 0
        due_ms = 0
        for index in range(UTTERANCES):
            due_ms += self.random.randrange(0, 800)
            if self.random.random() < 0.95:  # the others are never sent at all
                self.at(due_ms, lambda index=index: self.speak(index))

    def at(self, due_ms: int, action: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self.queue, (due_ms, self.serial, action))

    def run(self) -> None:
        while self.queue:
            self.now_ms, _, action = heapq.heappop(self.queue)
            action()

    def hear(self, listener: Listener, said: Released) -> None:
        listener.heard += said
        listener.order.check()
        due_ms = listener.order.next_due_ms
        if due_ms is not None:
            late_ms = self.random.choice((0, 0, 1, 700))
            self.at(max(due_ms, self.now_ms) + late_ms, lambda: self.tick(listener, due_ms))

    def tick(self, listener: Listener, due_ms: int) -> None:
        if listener.order.next_due_ms == due_ms:
            self.hear(listener, listener.order.tick(self.now_ms))
            assert listener.order.next_due_ms != due_ms, "a tick at its due time leaves it behind"

    def speak(self, index: int) -> None:
        """The client sends an utterance; one that is too far ahead it sends again later."""
        for fan in FANS:
            self.dispatch(index, fan, [self.listeners[name] for name in fan.listeners])

    def dispatch(self, index: int, fan: Fan, listeners: list[Listener]) -> None:
        ready: list[Listener] = []
        for listener in listeners:
            if self.random.random() < 0.1:
                listener.skipped.add(index)
                self.hear(listener, listener.order.skip(index, self.now_ms))
                continue
            try:
                listener.order.expect(index, self.now_ms)
            except PeerError as error:
                if error.code is ErrorCode.TOO_MANY_UTTERANCES:
                    self.refused += 1
                    self.at(self.now_ms + 500, lambda listener=listener: self.dispatch(index, fan, [listener]))
                else:
                    assert index < listener.order.next_index
            else:
                assert not listener.order.has_ended(index)
                ready.append(listener)
        self.start_job(index, fan.target, ready)

    def start_job(self, index: int, target: str, listeners: list[Listener]) -> None:
        fate = self.random.random()
        if fate < 0.1:
            return  # nothing is ever heard of it
        took_ms = self.random.choice((50, 300, 2_000, 2 * self.limits.gap_ms))
        end_ms = self.now_ms + self.random.randrange(1, took_ms)
        for listener in listeners:
            if fate < 0.2:
                self.at(end_ms, lambda listener=listener: self.fail(listener, index))
                continue
            for _ in range(2 if fate < 0.35 else 1):
                self.at(end_ms, lambda listener=listener: self.arrive(listener, index, target))
                end_ms += self.random.randrange(0, 500)

    def fail(self, listener: Listener, index: int) -> None:
        listener.resolved.add(index)
        self.hear(listener, listener.order.fail(index, "job_failed", self.now_ms))

    def arrive(self, listener: Listener, index: int, target: str) -> None:
        if index in listener.resolved or listener.order.has_ended(index):
            listener.dropped += 1
        else:
            listener.accepted.add(index)
        listener.resolved.add(index)
        self.hear(listener, listener.order.arrive(index, (target, index), self.now_ms))

    def end(self, listener: Listener) -> int:
        """No more results arrive: skip up to one last index. Returns the first index that has not ended."""
        order = listener.order
        last = max(order.next_index, UTTERANCES)
        while order.next_index <= last:
            index = min(last, order.next_index + self.limits.pending_max - 1)
            order.expect(index, self.now_ms)
            listener.skipped.add(index)
            listener.heard += order.skip(index, self.now_ms)
            self.now_ms += self.limits.gap_ms
            listener.heard += order.tick(self.now_ms)
            order.check()
        return last + 1


def check_heard(world: World, listener: Listener, end: int, seed: int) -> None:
    indices = [word.index for word in listener.heard]
    silent = set(range(end)) - set(indices)
    assert indices == sorted(set(indices)), f"seed {seed}: out of order or twice"
    assert end == listener.order.next_index and not listener.order._slots, f"seed {seed}: something has not ended"
    assert silent <= listener.skipped, f"seed {seed}: no word of {silent - listener.skipped}"
    tells = [word for word in listener.heard if isinstance(word, Release)]
    assert all(word.item == (listener.target, word.index) for word in tells), f"seed {seed}"
    evicted = {
        one.index for one in listener.heard if getattr(one, "reason", "") == MissingReason.PENDING_OVERFLOW_EVICT
    }
    assert {one.index for one in tells} == listener.accepted - evicted, f"seed {seed}: a result was lost"
    reasons = {word.reason for word in listener.heard if isinstance(word, Missing)}
    assert reasons <= {MissingReason.GAP_TIMEOUT, MissingReason.PENDING_OVERFLOW_EVICT, "job_failed"}


@pytest.mark.parametrize("pending_max", [3, 8, 200])
def test_every_listener_gets_every_index_once_and_in_order(pending_max: int) -> None:
    released = missed = dropped = refused = 0
    for seed in range(60):
        world = World(seed, ResultOrderLimits(gap_ms=1_500, pending_max=pending_max))
        world.run()
        refused += world.refused
        for listener in world.listeners.values():
            end = world.end(listener)
            check_heard(world, listener, end, seed)
            released += sum(isinstance(word, Release) for word in listener.heard)
            missed += sum(isinstance(word, Missing) for word in listener.heard)
            dropped += listener.dropped
    assert released and missed and dropped, "every case occurs"
    assert bool(refused) == (pending_max < 200)


@pytest.mark.parametrize("block", range(4))
def test_results_that_were_never_expected_and_come_from_far_ahead_stay_bounded(block: int) -> None:
    """After a resume: everything is adopted, in any order, with several results for one index."""
    for seed in range(block * 50, block * 50 + 50):
        dice = random.Random(seed)
        pending_max = dice.randrange(1, 6)
        order, now_ms, heard, dropped = ResultOrder(ResultOrderLimits(1_000, pending_max)), 0, [], 0
        accepted: set[int] = set()
        for _ in range(200):
            now_ms += dice.randrange(0, 300)
            index = order.next_index + dice.randrange(-2, 3 * pending_max)
            if index >= 0:
                if index in accepted or order.has_ended(index) or index >= order.next_index + 2 * pending_max:
                    dropped += 1
                else:
                    accepted.add(index)
                heard += order.arrive(index, index, now_ms)
            if order.next_due_ms is not None and order.next_due_ms <= now_ms:
                heard += order.tick(now_ms)
            order.check()
            assert len(order._slots) <= 2 * pending_max
        heard += order.tick(now_ms + 1_000)
        order.check()
        assert [word.index for word in heard] == list(range(order.next_index)), f"seed {seed}"
        evicted = {one.index for one in heard if getattr(one, "reason", "") == MissingReason.PENDING_OVERFLOW_EVICT}
        released = {one.index for one in heard if isinstance(one, Release)}
        assert released == accepted - evicted and dropped, f"seed {seed}: a result was lost"
