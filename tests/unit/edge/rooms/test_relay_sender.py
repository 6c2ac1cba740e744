"""Messages to other sessions: one at a time per listener, in order, each with one outcome."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from edge.rooms.core.events import MOVED
from edge.rooms.core.relay_queue import RelayMessage
from edge.rooms.core.relay_sender import CallListener, Complete, DeliverHere, Effect, RelaySender
from mesh.config.sessions import SessionConfig

CONFIG = SessionConfig(mail_max=4, resume_ms=60_000)


def message(number: int, listener: str = "l") -> RelayMessage:
    return RelayMessage(listener, "result", f"s/{number}", b"x", "123456", True, "s")


def sender(*here: str) -> RelaySender:
    return RelaySender(CONFIG, lambda session_id: session_id in here)


def shown(effects: list[Effect]) -> list[tuple[str, ...]]:
    return [
        (type(one).__name__, one.message.key, *([one.verdict] if isinstance(one, Complete) else [])) for one in effects
    ]


def test_next_message_leaves_when_the_one_before_has_its_outcome() -> None:
    core = sender("l")
    assert shown(core.send("s", message(0))) == [("DeliverHere", "s/0")]
    assert core.send("s", message(1)) == []
    assert shown(core.on_reply("s", "l", "s/0", "told")) == [("DeliverHere", "s/1"), ("Complete", "s/0", "told")]
    assert core.on_reply("s", "l", "s/0", "told") == [], "a late reply counts for nothing"
    assert shown(core.on_reply("s", "l", "s/1", "told")) == [("Complete", "s/1", "told")] and len(core) == 0
    core.check()


def test_listener_elsewhere_is_called() -> None:
    assert shown(sender().send("s", message(0))) == [("CallListener", "s/0")]


def test_listener_that_moved_before_it_acknowledged_is_called() -> None:
    core = sender("l")
    core.send("s", message(0))
    core.delivering("s", message(0), 0)
    assert shown(core.on_reply("s", "l", "s/0", MOVED)) == [("CallListener", "s/0")]
    assert core.timers.next_due_ms() is None, "the call has a timeout of its own"
    assert shown(core.on_reply("s", "l", "s/0", "parked")) == [("Complete", "s/0", "parked")]


def test_listener_that_acknowledges_nothing_is_waited_for_only_so_long() -> None:
    core, first = sender("l"), message(0)
    core.send("s", first)
    core.send("s", message(1))
    core.delivering("s", first, 1_000)
    assert core.timers.next_due_ms() == 61_000 and core.tick(60_999) == []
    assert shown(core.tick(61_000)) == [("DeliverHere", "s/1"), ("Complete", "s/0", "no_answer")]


def test_message_without_capacity_is_dropped() -> None:
    core = sender()
    for number in range(4):
        core.send("s", message(number))
    assert shown(core.send("s", message(4))) == [("Complete", "s/4", "dropped")]
    assert shown(core.send("s", message(4, "m"))) == [("CallListener", "s/4")], "other listeners have their own"


def test_reserved_place_is_cancelled_with_its_sender() -> None:
    core = sender()
    core.expect("s", "l", "s/0")
    assert core.send("s", message(1)) == []
    assert shown(core.forget("s")) == [("CallListener", "s/1")]


@given(
    st.lists(st.tuples(st.sampled_from(["send", "reply", "moved", "tick", "forget"]), st.integers(0, 5)), max_size=60)
)
def test_every_message_has_one_outcome_and_they_leave_in_order(steps: list[tuple[str, int]]) -> None:
    core, now_ms, number = sender("l"), 0, 0
    done: Counter[str] = Counter()
    in_flight: dict[str, RelayMessage] = {}
    left: dict[str, list[int]] = {"l": [], "m": []}

    def run(effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Complete):
                done[effect.message.key] += 1
                if in_flight.get(effect.message.listener) is effect.message:
                    del in_flight[effect.message.listener]
            else:
                in_flight[effect.message.listener] = effect.message
                if isinstance(effect, DeliverHere):
                    core.delivering("s", effect.message, now_ms)
                else:
                    assert isinstance(effect, CallListener)
                key = int(effect.message.key[2:])
                if key not in left[effect.message.listener]:
                    left[effect.message.listener].append(key)
        core.check()

    for step, value in steps:
        listener = "lm"[value % 2]
        if step == "send":
            run(core.send("s", message(number, listener)))
            number += 1
        elif step in ("reply", "moved") and listener in in_flight:
            run(core.on_reply("s", listener, in_flight[listener].key, MOVED if step == "moved" else "told"))
        elif step == "tick":
            now_ms += 30_000
            run(core.tick(now_ms))
        elif step == "forget":
            run(core.forget("s"))
    while in_flight:
        listener, first = next(iter(in_flight.items()))
        run(core.on_reply("s", listener, first.key, "told"))
    assert len(core) == 0 and sorted(done.values()) == [1] * number
    assert all(keys == sorted(keys) for keys in left.values())
