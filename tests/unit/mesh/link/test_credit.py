from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.frames import Beat, BrokerBeat, Credit
from mesh.link.credit import LinkCredit


def met(sent: int = 1_000, *, window: int = 8) -> LinkCredit:
    peering = LinkCredit(kind="selector", window=window, dead_ms=300)
    peering.heard(BrokerBeat("b", "boot-1", 1, sent), 0)
    return peering


def test_a_broker_is_live_from_its_first_beat_until_it_is_silent() -> None:
    peering = LinkCredit(kind="edge", window=0, dead_ms=300)
    assert not peering.live
    assert peering.heard(BrokerBeat("b", "boot-1", 2, 0), 100)
    assert peering.live
    assert not peering.lapse(399)
    assert peering.lapse(400)
    assert not peering.live
    assert not peering.lapse(500), "it is told once"


def test_our_own_pause_is_not_the_brokers_silence() -> None:
    peering = met()
    assert not peering.lapse(5_000, late_ms=4_900)
    assert peering.live


def test_beats_and_credit_tell_what_we_no_longer_hold() -> None:
    peering = met(1_000, window=8)
    peering.took()
    peering.took()
    peering.gave_back(1)
    assert peering.beat() == Beat("selector", 8, 1_001, False)
    assert peering.beat(draining=True).draining
    assert peering.credit() == Credit(1_001)


def test_a_repeated_beat_needs_no_answer_but_a_new_boot_does() -> None:
    peering = met(1_000)
    assert not peering.heard(BrokerBeat("b", "boot-1", 1, 1_000), 10)
    assert peering.heard(BrokerBeat("b", "boot-2", 1, 1_000), 20)


def test_lost_work_is_counted_as_consumed_at_the_next_beat() -> None:
    peering = met(1_000)
    peering.took()
    assert peering.heard(BrokerBeat("b", "boot-1", 1, 1_004), 10)
    assert peering.consumed() == 1_003


def test_what_we_hold_survives_a_restart_of_the_broker() -> None:
    peering = met(1_000)
    peering.took()
    peering.took()
    peering.heard(BrokerBeat("b", "boot-2", 1, 9 << 32), 10)
    assert peering.consumed() == (9 << 32) - 2


def test_giving_back_too_much_is_harmless() -> None:
    peering = met(1_000)
    peering.gave_back(5)
    assert peering.consumed() == 1_000


@given(st.lists(st.sampled_from(["took", "lost", "done", "beat"]), max_size=60))
def test_after_every_beat_the_broker_knows_exactly_what_we_hold(steps: list[str]) -> None:
    peering, sent, held = met(0), 0, 0
    for step in steps:
        if step in ("took", "lost"):
            sent += 1
        if step == "took":
            peering.took()
            held += 1
        elif step == "done" and held:
            peering.gave_back(1)
            held -= 1
        elif step == "beat":
            peering.heard(BrokerBeat("b", "boot-1", 1, sent), 1)
            assert sent - peering.consumed() == held


def test_the_broker_is_told_when_a_quarter_of_the_window_is_given_back() -> None:
    peering = LinkCredit(kind="selector", window=16, dead_ms=3_000)
    for _ in range(8):
        peering.took()
    assert [peering.gave_back(1) for _ in range(4)] == [False, False, False, True]
    assert peering.credit() == Credit(4)
    assert not peering.gave_back(1), "what was told is told"
    peering.beat()
    assert [peering.gave_back(1) for _ in range(3)] == [False, False, False], "a beat tells it too"
