"""Binary frames: layouts byte by byte, round trips, and whatever a peer may send instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import ErrorCode, PeerError
from mesh.messages.audio_frames import AudioFrame, BinaryFrame, FinalFrame, PingFrame, PongFrame, decode, encode

U32 = st.integers(0, 2**32 - 1)
IDS = st.text(min_size=1, max_size=63).filter(lambda text: text.isprintable())
SHORT = [FinalFrame, PingFrame, PongFrame]
FRAMES = st.one_of(
    st.builds(AudioFrame, IDS, U32, U32, st.booleans(), st.binary(max_size=4_000)),
    *(st.builds(kind, IDS, U32, U32) for kind in SHORT),
)


def refusal(data: bytes) -> str:
    with pytest.raises(PeerError) as caught:
        decode(data)
    assert caught.value.code is ErrorCode.INVALID_MESSAGE
    return caught.value.message


def test_audio_chunk_has_the_layout_of_the_original() -> None:
    frame = AudioFrame("s-1", 0x01020304, 0x0A0B0C0D, True, b"\xaa\xbb")
    data = bytes.fromhex("01 03 04030201 0d0c0b0a 01 00") + b"s-1\xaa\xbb"
    assert encode(frame) == data and decode(data) == frame


@pytest.mark.parametrize(("kind", "number"), [(FinalFrame, 2), (PingFrame, 0x10), (PongFrame, 0x11)])
def test_short_frame_has_the_layout_of_the_original(kind: type[FinalFrame], number: int) -> None:
    frame = kind("s-é", 7, 2**32 - 1)
    data = bytes([number, 4]) + bytes.fromhex("07000000 ffffffff") + "s-é".encode()
    assert encode(frame) == data and decode(data) == frame and type(decode(data)) is kind


def test_pong_is_the_ping_with_another_type() -> None:
    ping = PingFrame("s-1", 5, 6)
    assert encode(PongFrame(*ping)) == b"\x11" + encode(ping)[1:]


@given(FRAMES)
def test_frame_round_trips(frame: BinaryFrame) -> None:
    again = decode(encode(frame))
    assert again == frame and type(again) is type(frame)


def test_time_is_reduced_to_32_bits() -> None:
    now = 1_790_000_000_123
    assert decode(encode(FinalFrame("s", 0, now))) == FinalFrame("s", 0, now % 2**32)
    assert decode(encode(FinalFrame("s", 0, -1))) == FinalFrame("s", 0, 2**32 - 1)


def test_audio_chunk_may_be_empty_and_any_nonzero_mark_is_final() -> None:
    data = bytearray(encode(AudioFrame("s", 0, 0, False, b"")))
    assert decode(bytes(data)) == AudioFrame("s", 0, 0, False, b"")
    data[10], data[11] = 0x80, 0xFF
    assert decode(bytes(data)) == AudioFrame("s", 0, 0, True, b"")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b"\x00" + bytes(20), "unknown type 0x00"),
        (b"\x7f", "unknown type 0x7f"),
        (b"\x01", "too short: an audio chunk has at least 12 bytes, this one 1"),
        (b"\x01\x01" + bytes(9), "too short"),
        (b"\x02\x01" + bytes(7), "too short: FinalFrame has at least 10 bytes, this one 9"),
        (b"\x01\x05" + bytes(10) + b"s-1", "ends within the session id: 5 bytes promised, 3 there"),
        (b"\x10\x01" + bytes(8), "ends within the session id: 1 bytes promised, 0 there"),
        (b"\x01\x00" + bytes(10) + b"audio", "empty session id"),
        (b"\x11\x00" + bytes(8), "empty session id"),
        (b"\x01\x02" + bytes(10) + b"\xc3\x28", "not UTF-8"),
        (b"\x02\x02" + bytes(8) + b"s1xyz", "3 bytes behind the session id"),
    ],
)
def test_malformed_frame_is_refused_by_name(data: bytes, says: str) -> None:
    assert says in refusal(data)


@given(st.binary(max_size=64))
def test_arbitrary_bytes_are_a_frame_or_a_peer_error(noise: bytes) -> None:
    try:
        frame = decode(noise)
    except PeerError as error:
        assert error.code is ErrorCode.INVALID_MESSAGE
    else:
        again = encode(frame)
        # Two bytes have room for more than they mean: the mark and the one without meaning.
        assert len(again) == len(noise) and again[:10] == noise[:10] and again[12:] == noise[12:]


@given(FRAMES, st.data())
def test_truncated_frame_is_refused_unless_only_audio_is_missing(frame: BinaryFrame, data: st.DataObject) -> None:
    whole = encode(frame)
    least = len(whole) - (len(frame.audio) if isinstance(frame, AudioFrame) else 0)
    length = data.draw(st.integers(0, len(whole)))
    if length < least:
        refusal(whole[:length])
    else:
        assert decode(whole[:length])[:3] == frame[:3]


@pytest.mark.parametrize(("session_id", "seq"), [("", 0), ("é" * 128, 0), ("s", -1), ("s", 2**32)])
def test_value_that_does_not_fit_is_an_assertion_error(session_id: str, seq: int) -> None:
    with pytest.raises(AssertionError):
        encode(FinalFrame(session_id, seq, 0))
