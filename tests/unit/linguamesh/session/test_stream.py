"""Packetizers and sources of streamed audio."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linguamesh.session.stream import OpusPacketizer, PcmPacketizer, is_recorded, mix_to_mono, read_source


@given(st.lists(st.binary(max_size=40)), st.sampled_from([(16_000, 1), (8_000, 1), (44_100, 1), (1_000, 5)]))
def test_pcm_packets_have_equal_size_and_lose_no_sample(pieces: list[bytes], shape: tuple[int, int]) -> None:
    packetizer = PcmPacketizer(*shape)
    complete = [packet for piece in pieces for packet in packetizer.add(piece)]
    rest = packetizer.flush()
    sound = b"".join(pieces)
    size = shape[0] * shape[1] // 1_000 * 2
    assert b"".join(packet.audio for packet in complete + rest) == sound[: len(sound) // 2 * 2]
    assert {len(packet.audio) for packet in complete} <= {size}
    assert all(len(packet.audio) < size for packet in rest)


@given(st.lists(st.lists(st.binary(min_size=1, max_size=5), max_size=9)), st.integers(1, 100))
def test_opus_packets_are_never_split(pieces: list[list[bytes]], packet_ms: int) -> None:
    packetizer = OpusPacketizer(packet_ms)
    joined = [packet for piece in pieces for packet in packetizer.add(piece)] + packetizer.flush()
    packets = [packet for piece in pieces for packet in piece]
    assert b"".join(one.audio for one in joined) == b"".join(
        len(packet).to_bytes(2, "little") + packet for packet in packets
    )
    assert sum(one.ms for one in joined) == 20 * len(packets)
    assert all(one.ms <= max(20, packet_ms) for one in joined)


def test_stereo_is_mixed_to_the_mean_of_its_channels() -> None:
    assert mix_to_mono(b"\x0a\x00\x14\x00\x00\x80\x00\x80") == b"\x0f\x00\x00\x80"


def test_files_are_recorded_and_iterators_are_not(tmp_path: Path) -> None:
    assert is_recorded(b"") and is_recorded(tmp_path / "a.wav") and is_recorded(io.BytesIO())
    assert not is_recorded(iter([b""]))


async def test_file_object_with_a_wav_header_is_refused() -> None:
    with pytest.raises(ValueError, match="for a WAV file give its path"):
        async for _ in read_source(io.BytesIO(b"RIFF...."), 16_000):
            pass
