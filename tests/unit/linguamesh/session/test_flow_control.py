"""How fast a session may send, and in which order its ends come: the pure parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linguamesh.session.flow_control import SLOW_EVERY_MS, WISH_MS_DEFAULT, WISH_MS_MAX, FlowControl
from linguamesh.session.result_order import SPEAKERS_MAX, ResultOrder, Speakers
from linguamesh.session.source import OpusCutter, PcmCutter


@pytest.mark.parametrize("action", ["PAUSE", "BUSY"])
def test_a_pause_lasts_as_long_as_the_mesh_said(action: str) -> None:
    pace = FlowControl()
    assert pace.wait_ms(1_000) == 0
    pace.asked(action, 300, 1_000)
    pace.asked(action, 10, 1_000)
    assert (pace.wait_ms(1_000), pace.wait_ms(1_299), pace.wait_ms(1_300)) == (300, 1, 0)
    assert pace.join_ms(1_000) == 0


def test_a_slow_mesh_gets_a_message_now_and_then() -> None:
    pace = FlowControl()
    pace.asked("SLOW_DOWN", 1_200, 1_000)
    assert (pace.wait_ms(1_000), pace.join_ms(1_000)) == (0, SLOW_EVERY_MS)
    pace.sent(1_000)
    assert pace.wait_ms(1_100) == SLOW_EVERY_MS - 100
    pace.sent(2_000)
    assert pace.wait_ms(2_000) == 200, "not longer than the mesh asked for"
    assert (pace.wait_ms(2_200), pace.join_ms(2_200)) == (0, 0)


def test_a_wish_has_a_default_and_a_bound() -> None:
    pace = FlowControl()
    pace.asked("PAUSE", None, 0)
    assert pace.wait_ms(0) == WISH_MS_DEFAULT
    pace.asked("PAUSE", 10**9, 0)
    assert pace.wait_ms(0) == WISH_MS_MAX


def test_what_was_refused_waits_even_if_the_mesh_does_not_say_how_long() -> None:
    pace = FlowControl()
    pace.refused(0)
    assert pace.wait_ms(0) == WISH_MS_DEFAULT
    pace.asked("BUSY", 2_000, 1_000)
    pace.refused(1_000)
    assert pace.wait_ms(1_000) == 2_000


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_ends_leave_by_index_each_once(order: list[int], unwanted: set[int]) -> None:
    ends: ResultOrder[int] = ResultOrder()
    left: list[int] = []
    for index in order:
        left += ends.put(index, None if index in unwanted else index)
        assert ends.put(index, 99) == [] and not ends.is_new(index)
    assert left == [index for index in range(8) if index not in unwanted]


def test_what_waited_for_others_leaves_at_the_end() -> None:
    ends: ResultOrder[str] = ResultOrder()
    assert ends.put(3, "d") == ends.put(1, "b") == ends.put(2, None) == []
    assert ends.flush() == ["b", "d"]
    assert ends.put(4, "e") == ["e"]


def test_speakers_are_remembered_up_to_a_bound() -> None:
    speakers = Speakers()
    assert speakers.is_new("a", 5) and not speakers.is_new("a", 5) and not speakers.is_new("a", 2)
    assert (speakers.last_index("a"), speakers.last_index("b")) == (5, -1)
    for number in range(SPEAKERS_MAX):
        speakers.is_new(str(number), 0)
    assert speakers.last_index("a") == -1


@given(st.lists(st.binary(max_size=40)), st.sampled_from([(16_000, 1), (8_000, 1), (44_100, 1), (1_000, 5)]))
def test_pcm_is_cut_into_equal_packets_and_nothing_is_lost(pieces: list[bytes], shape: tuple[int, int]) -> None:
    cutter = PcmCutter(*shape)
    full = [packet for piece in pieces for packet in cutter.put(piece)]
    rest = cutter.rest()
    sound = b"".join(pieces)
    size = shape[0] * shape[1] // 1_000 * 2
    assert b"".join(packet.audio for packet in full + rest) == sound[: len(sound) // 2 * 2]
    assert {len(packet.audio) for packet in full} <= {size}
    assert all(len(packet.audio) < size for packet in rest)


@given(st.lists(st.lists(st.binary(min_size=1, max_size=5), max_size=9)), st.integers(1, 100))
def test_opus_packets_are_kept_whole(pieces: list[list[bytes]], packet_ms: int) -> None:
    cutter = OpusCutter(packet_ms)
    cut = [packet for piece in pieces for packet in cutter.put(piece)] + cutter.rest()
    packets = [packet for piece in pieces for packet in piece]
    assert b"".join(one.audio for one in cut) == b"".join(
        len(packet).to_bytes(2, "little") + packet for packet in packets
    )
    assert sum(one.ms for one in cut) == 20 * len(packets)
    assert all(one.ms <= max(20, packet_ms) for one in cut)
