from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.frames import Beat, BrokerBeat, Credit
from mesh.link.credit import LinkCredit


def live_credit(sent: int = 1_000, *, window: int = 8) -> LinkCredit:
    credit = LinkCredit(kind="selector", window=window, dead_ms=300)
    credit.on_beat(BrokerBeat("b", "boot-1", 1, sent), 0)
    return credit


def test_broker_is_live_from_first_beat_until_timeout() -> None:
    credit = LinkCredit(kind="edge", window=0, dead_ms=300)
    assert not credit.live
    assert credit.on_beat(BrokerBeat("b", "boot-1", 2, 0), 100)
    assert credit.live
    assert not credit.expire(399)
    assert credit.expire(400)
    assert not credit.live
    assert not credit.expire(500), "only once"


def test_stalled_process_does_not_expire_the_broker() -> None:
    credit = live_credit()
    assert not credit.expire(5_000, late_ms=4_900)
    assert credit.live


def test_beat_and_credit_report_consumed_messages() -> None:
    credit = live_credit(1_000, window=8)
    credit.on_work()
    credit.on_work()
    credit.release(1)
    assert credit.beat() == Beat("selector", 8, 1_001, False)
    assert credit.beat(draining=True).draining
    assert credit.credit() == Credit(1_001)


def test_restarted_broker_needs_a_beat_at_once() -> None:
    credit = live_credit(1_000)
    assert not credit.on_beat(BrokerBeat("b", "boot-1", 1, 1_000), 10)
    assert credit.on_beat(BrokerBeat("b", "boot-2", 1, 1_000), 20)


def test_lost_work_counts_as_consumed_at_the_next_beat() -> None:
    credit = live_credit(1_000)
    credit.on_work()
    assert credit.on_beat(BrokerBeat("b", "boot-1", 1, 1_004), 10)
    assert credit.consumed() == 1_003


def test_outstanding_work_survives_a_restart_of_the_broker() -> None:
    credit = live_credit(1_000)
    credit.on_work()
    credit.on_work()
    credit.on_beat(BrokerBeat("b", "boot-2", 1, 9 << 32), 10)
    assert credit.consumed() == (9 << 32) - 2


def test_release_beyond_outstanding_is_harmless() -> None:
    credit = live_credit(1_000)
    credit.release(5)
    assert credit.consumed() == 1_000


@given(st.lists(st.sampled_from(["took", "lost", "done", "beat"]), max_size=60))
def test_every_beat_makes_the_counters_agree(steps: list[str]) -> None:
    credit, sent, held = live_credit(0), 0, 0
    for step in steps:
        if step in ("took", "lost"):
            sent += 1
        if step == "took":
            credit.on_work()
            held += 1
        elif step == "done" and held:
            credit.release(1)
            held -= 1
        elif step == "beat":
            credit.on_beat(BrokerBeat("b", "boot-1", 1, sent), 1)
            assert sent - credit.consumed() == held


def test_credit_is_due_when_a_quarter_of_the_window_is_released() -> None:
    credit = LinkCredit(kind="selector", window=16, dead_ms=3_000)
    for _ in range(8):
        credit.on_work()
    assert [credit.release(1) for _ in range(4)] == [False, False, False, True]
    assert credit.credit() == Credit(4)
    assert not credit.release(1), "reported once"
    credit.beat()
    assert [credit.release(1) for _ in range(3)] == [False, False, False], "a beat reports it too"
