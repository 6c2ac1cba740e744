"""The mailbox: its bound, what is said of it, and clients that listen or do not."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.sessions.core.utterances.inbound_queue import Advice, InboundQueue

QUIET = Advice(True, None, 0)
SLOW_DOWN = Advice(True, "SLOW_DOWN", 500)
PAUSE = Advice(True, "PAUSE", 1_000)
BUSY = Advice(False, "BUSY", 2_000)
#: Audio is sent this often by the original client, and this often when it was asked to slow down.
CHUNK_MS, SLOW_CHUNK_MS = 100, 500


def drain(box: InboundQueue[int]) -> list[int]:
    events = []
    while (event := box.pop()) is not None:
        events.append(event)
    return events


# --- the queue --------------------------------------------------------------------------------------


def test_events_come_out_as_they_went_in() -> None:
    box: InboundQueue[int] = InboundQueue(8)
    assert box.pop() is None and len(box) == 0
    for number in (3, 1, 2):
        box.put(number, 0)
    assert len(box) == 3 and drain(box) == [3, 1, 2] and len(box) == 0 and box.pop() is None


def test_an_empty_box_keeps_no_queue() -> None:
    box: InboundQueue[int] = InboundQueue(200)
    for number in range(200):
        box.put(number, 0)
    drain(box)
    assert box._events is None and sys.getsizeof(box) < 128


def test_bytes_count_as_well_as_events() -> None:
    box: InboundQueue[int] = InboundQueue(8, bytes_max=100)
    assert box.put(0, 0, size=1_000) == PAUSE, "one that is too large is taken alone"
    assert box.put(1, 0, size=1) == BUSY
    assert drain(box) == [0] and box.bytes == 0
    assert box.put(3, 1_000, size=40) == QUIET and box.put(4, 1_000, size=10) == SLOW_DOWN
    assert box.put(5, 2_000, size=30) == PAUSE and box.put(6, 3_000, size=30) == BUSY
    assert drain(box) == [3, 4, 5] and box.bytes == 0


def test_depth_is_answered_by_ever_stronger_words() -> None:
    box: InboundQueue[int] = InboundQueue(8)
    assert [box.put(number, 0) for number in range(9)] == [
        QUIET, QUIET, QUIET, SLOW_DOWN, QUIET, PAUSE, QUIET, QUIET, BUSY,
    ]  # fmt: skip
    assert box.is_full and drain(box) == list(range(8)), "the ninth was not taken"


def test_the_common_answer_is_always_the_same_object() -> None:
    box: InboundQueue[int] = InboundQueue(8)
    assert box.put(0, 0) is box.put(1, 1)


def test_the_same_word_is_said_again_only_after_a_while() -> None:
    box: InboundQueue[int] = InboundQueue(100, every_ms=500)
    assert all(box.put(number, 0) == QUIET for number in range(49))
    assert box.put(0, 100) == SLOW_DOWN
    assert box.put(0, 599) == QUIET
    assert box.put(0, 600) == SLOW_DOWN


def test_a_worse_word_is_said_at_once_and_a_milder_one_waits() -> None:
    box: InboundQueue[int] = InboundQueue(4)
    assert [box.put(0, 0) for _ in range(3)] == [QUIET, SLOW_DOWN, PAUSE]
    box.pop()
    box.pop()
    assert box.put(0, 100) == QUIET, "half full again, but PAUSE was said a moment ago"
    assert box.put(0, 200) == QUIET
    box.pop()
    box.pop()
    assert box.put(0, 500) == SLOW_DOWN
    assert box.put(0, 501) == PAUSE


def test_every_refusal_is_said() -> None:
    box: InboundQueue[int] = InboundQueue(1)
    box.put(0, 0)
    assert [box.put(1, 0) for _ in range(5)] == [BUSY] * 5


def test_after_a_refusal_nothing_milder_is_said_for_a_while() -> None:
    box: InboundQueue[int] = InboundQueue(8)
    for _ in range(8):
        box.put(0, 0)
    assert box.put(0, 1_000) == BUSY
    box.pop()
    assert box.put(0, 1_499) == QUIET
    box.pop()
    assert box.put(0, 1_500) == PAUSE


STEPS = st.lists(st.tuples(st.sampled_from(["put", "put", "put", "pop"]), st.integers(0, 300)), max_size=300)


@settings(deadline=None)
@given(STEPS, st.integers(1, 40))
def test_it_equals_a_list_with_a_bound(steps: list[tuple[str, int]], events_max: int) -> None:
    box: InboundQueue[int] = InboundQueue(events_max)
    naive: list[int] = []
    now_ms, said_ms = 0, {"SLOW_DOWN": -500, "PAUSE": -500}
    for number, (action, later_ms) in enumerate(steps):
        now_ms += later_ms
        if action == "pop":
            assert box.pop() == (naive.pop(0) if naive else None)
            continue
        has_room = len(naive) < events_max
        advice = box.put(number, now_ms)
        assert advice.accepted == has_room and (advice.action == "BUSY") == (not has_room)
        if has_room:
            naive.append(number)
        if advice.accepted and advice.action is not None:
            assert 2 * len(naive) >= events_max
            assert (advice.action == "PAUSE") == (4 * len(naive) >= 3 * events_max)
            assert now_ms - said_ms[advice.action] >= 500, "not so often"
            said_ms[advice.action] = now_ms
        assert len(box) == len(naive) and box.is_full == (len(naive) >= events_max)


# --- clients ----------------------------------------------------------------------------------------


@dataclass
class Client:
    """It speaks all the time, keeps what it may not send yet, and does as it is told if it is `polite`."""

    polite: bool
    left: list[int]
    sent: int = 0
    next_ms: int = 0
    slow_until_ms: int = 0
    said: set[str] = field(default_factory=set)

    def send(self, box: InboundQueue[int], now_ms: int) -> None:
        if not self.left or now_ms < self.next_ms:
            return
        advice = box.put(self.left[0], now_ms)
        self.sent += 1
        self.said.add(advice.action or "")
        if advice.accepted or not self.polite:
            self.left.pop(0)
        self.next_ms = now_ms + CHUNK_MS
        if not self.polite:
            return
        if advice.action == "SLOW_DOWN":
            self.slow_until_ms = now_ms + 2_000
        elif advice.action is not None:
            self.next_ms = now_ms + advice.resume_after_ms
        if now_ms < self.slow_until_ms:
            self.next_ms = max(self.next_ms, now_ms + SLOW_CHUNK_MS)


def run(client: Client, box: InboundQueue[int], stalls: list[tuple[int, int]]) -> tuple[list[int], int]:
    """Until the client has nothing left and the box is empty; what the actor got, and the greatest depth."""
    got: list[int] = []
    deepest = now_ms = 0
    while client.left or len(box):
        client.send(box, now_ms)
        deepest = max(deepest, len(box))
        stalled = any(begin_ms <= now_ms < end_ms for begin_ms, end_ms in stalls)
        if not stalled and (event := box.pop()) is not None:
            got.append(event)
        now_ms += 20
        assert now_ms < 3_600_000, "it never ends"
    return got, deepest


@pytest.mark.parametrize("seed", range(20))
def test_defect_05_a_client_that_listens_loses_nothing_when_its_actor_stalls(seed: int) -> None:
    dice = random.Random(seed)
    begin_ms = dice.randrange(0, 10_000)
    stalls = [(begin_ms, begin_ms + dice.randrange(20_000, 200_000))]
    stalls.append((stalls[0][1] + 5_000, stalls[0][1] + 5_000 + dice.randrange(1_000, 100_000)))
    box: InboundQueue[int] = InboundQueue(64)
    client = Client(polite=True, left=list(range(1_000)))
    got, deepest = run(client, box, stalls)
    assert got == list(range(1_000)) and len(box) == 0
    assert {"SLOW_DOWN", "PAUSE"} <= client.said and deepest <= 64


def test_defect_05_a_client_that_listens_is_refused_and_sends_it_again() -> None:
    box: InboundQueue[int] = InboundQueue(16)
    client = Client(polite=True, left=list(range(200)))
    got, deepest = run(client, box, [(0, 120_000)])
    assert "BUSY" in client.said and client.sent > 200 and deepest == 16
    assert got == list(range(200))


def test_defect_05_advice_makes_a_client_send_less() -> None:
    polite, deaf = Client(True, list(range(2_000))), Client(False, list(range(2_000)))
    for client in (polite, deaf):
        box: InboundQueue[int] = InboundQueue(64)
        for now_ms in range(0, 60_000, 20):
            client.send(box, now_ms)
    assert polite.sent < 110 and deaf.sent == 600


def test_defect_05_a_client_that_ignores_all_advice_costs_bounded_memory() -> None:
    box: InboundQueue[int] = InboundQueue(64)
    client = Client(polite=False, left=list(range(5_000)))
    got, deepest = run(client, box, [(0, 400_000)])
    assert deepest == 64 and len(got) < 5_000, "the limit works"
    assert got == sorted(got) and got[:64] == list(range(64))
