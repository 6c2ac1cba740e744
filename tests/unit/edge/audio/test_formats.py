"""Streamed audio: whole samples and packets only, and how long they sound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.audio.core.formats import OPUS_PACKETS_MAX, duration_ms, opus_packets, sound_of, whole_packets, whole_samples
from mesh.errors import ErrorCode, PeerError

PACKETS = st.lists(st.binary(min_size=1, max_size=300), max_size=20)


def plan_a(packets: list[bytes]) -> bytes:
    return b"".join(len(packet).to_bytes(2, "little") + packet for packet in packets)


def refusal(audio: bytes, audio_format: str) -> str:
    with pytest.raises(PeerError) as caught:
        sound_of(audio_format, 16_000).measure(audio)
    assert caught.value.code is ErrorCode.INVALID_AUDIO
    return caught.value.message


@given(st.binary(max_size=100))
def test_pcm_is_whole_samples(audio: bytes) -> None:
    if len(audio) % 2:
        assert f"{len(audio)} bytes end within one" in refusal(audio, "pcm16")
    else:
        assert whole_samples(audio) == len(audio) // 2


@given(PACKETS)
def test_opus_is_whole_packets(packets: list[bytes]) -> None:
    audio = plan_a(packets)
    assert whole_packets(audio) == len(packets) == opus_packets(audio)


@given(PACKETS, st.binary(min_size=1, max_size=300), st.data())
def test_truncated_packet_is_refused_with_its_position(
    packets: list[bytes], cut_off: bytes, data: st.DataObject
) -> None:
    whole, last = plan_a(packets), plan_a([cut_off])
    part = last[: data.draw(st.integers(1, len(last) - 1))]
    assert f"packet {len(packets)} at byte {len(whole)} is truncated" in refusal(whole + part, "opus")


@given(st.binary(max_size=60))
def test_opus_of_any_bytes_is_counted_in_full_or_refused(noise: bytes) -> None:
    try:
        packets = whole_packets(noise)
    except PeerError as error:
        assert error.code is ErrorCode.INVALID_AUDIO
    else:
        assert packets == opus_packets(noise)


def test_error_text_names_the_fault_of_the_packet() -> None:
    assert "packet 1 at byte 4 is truncated: it has half a length field" in refusal(b"\x02\x00ab\x05", "opus")
    assert "packet 1 at byte 4 is truncated: 5 bytes announced, 1 present" in refusal(b"\x02\x00ab\x05\x00x", "opus")
    assert "packet 0 at byte 0 is truncated: 256 bytes announced, 0 present" in refusal(b"\x00\x01", "opus")
    assert "packet 1 at byte 4 is empty" in refusal(b"\x02\x00ab\x00\x00", "opus")


def test_packets_per_chunk_are_bounded() -> None:
    assert whole_packets(b"\x01\x00x" * OPUS_PACKETS_MAX) == OPUS_PACKETS_MAX
    assert f"packet {OPUS_PACKETS_MAX} at byte" in refusal(b"\x01\x00x" * (OPUS_PACKETS_MAX + 1), "opus")


@given(st.lists(st.integers(0, 900), max_size=200), st.sampled_from([8_000, 11_025, 16_000, 44_100, 48_000]))
def test_small_chunks_of_pcm_add_up_without_drift(samples: list[int], rate: int) -> None:
    sound = sound_of("pcm16", rate)
    units = sum(sound.measure(bytes(2 * each)) for each in samples)
    assert sound.ms(units) == duration_ms(bytes(2 * sum(samples)), "pcm16", rate)


@given(st.integers(0, 30_000), st.sampled_from([("opus", 16_000), ("pcm16", 11_025), ("S16LE", 44_100)]))
def test_units_are_the_least_that_last_at_least_that_long(ms: int, stream: tuple[str, int]) -> None:
    sound = sound_of(*stream)
    units = sound.units(ms)
    assert units * 1_000 >= ms * sound.units_per_s
    assert units == 0 or (units - 1) * 1_000 < ms * sound.units_per_s
    assert sound.ms(units) >= ms


def test_opus_sounds_20_ms_per_packet_at_any_rate() -> None:
    sound = sound_of("OPUS", 48_000)
    assert sound.ms(sound.measure(plan_a([b"x"] * 7))) == 140


@pytest.mark.parametrize(("audio_format", "rate"), [("mp3", 16_000), ("pcm16", 0)])
def test_format_outside_session_init_is_an_assertion_error(audio_format: str, rate: int) -> None:
    with pytest.raises(AssertionError):
        sound_of(audio_format, rate)
