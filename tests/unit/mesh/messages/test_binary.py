"""Binary messages: layout, round trips, and arbitrary bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import ErrorCode, PeerError
from mesh.messages import audio_frames, binary
from mesh.messages.audio import NOT_SENT, audio_bytes
from mesh.messages.client import TranslationResult, Utterance, decode_from_client, decode_from_server
from mesh.messages.node import JobAssign, JobResult, decode_from_node, decode_from_scheduler
from tests.support.builders.messages import FROM_CLIENT, FROM_NODE, FROM_SCHEDULER, FROM_SERVER

CLASSES: dict[type[Any], tuple[int, Any, Any]] = {
    Utterance: (0x20, decode_from_client, FROM_CLIENT),
    JobAssign: (0x21, decode_from_scheduler, FROM_SCHEDULER),
    JobResult: (0x22, decode_from_node, FROM_NODE),
    TranslationResult: (0x23, decode_from_server, FROM_SERVER),
}


def sample_of(cls: type[Any]) -> dict[str, Any]:
    tag = cls.__struct_config__.tag
    return next(dict(sample.message) for sample in CLASSES[cls][2] if sample.type == tag)


def head_of(cls: type[Any]) -> Any:
    message = CLASSES[cls][1](json.dumps(sample_of(cls)))
    return msgspec.structs.replace(message, **{cls.audio_field: NOT_SENT})


def test_types_are_apart_from_those_of_streams() -> None:
    streams = {audio_frames.AUDIO_CHUNK, audio_frames.FINAL, audio_frames.PING, audio_frames.PONG}
    assert {number for number, _, _ in CLASSES.values()} == binary.TYPES and not binary.TYPES & streams


@pytest.mark.parametrize("cls", CLASSES)
def test_layout(cls: type[Any]) -> None:
    head, audio = binary.encode(head_of(cls), b"\x00\xffraw")
    length = int.from_bytes(head[1:5], "little")
    assert head[0] == CLASSES[cls][0] and len(head) == 5 + length and audio == b"\x00\xffraw"
    written, sample = json.loads(head[5:]), sample_of(cls)
    del sample[cls.audio_field]
    assert cls.audio_field not in written and written.keys() == sample.keys()


def test_example_of_the_documentation() -> None:
    text = (Path(__file__).parents[4] / "docs" / "protocol.md").read_text()
    found = re.search(r"has (\d+) bytes;[^{]*?\n\n    (20(?: \w\w){4})\n    (\{.*\})\n    (\w\w(?: \w\w){3})\n", text)
    assert found is not None
    size, prefix, head, audio = found.groups()
    frame = bytes.fromhex(prefix) + head.encode() + bytes.fromhex(audio)
    utterance = binary.decode(frame)
    assert isinstance(utterance, Utterance) and len(frame) == int(size)
    assert b"".join(binary.encode(msgspec.structs.replace(utterance, audio=NOT_SENT), bytes.fromhex(audio))) == frame


@pytest.mark.parametrize("cls", CLASSES)
@given(audio=st.binary(max_size=300))
def test_round_trip_shares_the_audio(cls: type[Any], audio: bytes) -> None:
    message = head_of(cls)
    frame = b"".join(binary.encode(message, audio))
    decoded = binary.decode(frame)
    sound = getattr(decoded, cls.audio_field)
    assert sound == audio and sound.obj is frame
    assert msgspec.structs.replace(decoded, **{cls.audio_field: NOT_SENT}) == message


@pytest.mark.parametrize("cls", CLASSES)
def test_json_form_is_the_same_message(cls: type[Any]) -> None:
    message = head_of(cls)
    parts = binary.split(b"".join(binary.encode(message, b"sound")))
    text = binary.json_of(cls, parts.head, parts.audio)
    decoded = CLASSES[cls][1](text)
    assert bytes(audio_bytes(getattr(decoded, cls.audio_field))) == b"sound"
    assert msgspec.structs.replace(decoded, **{cls.audio_field: NOT_SENT}) == message


@pytest.mark.parametrize("cls", [Utterance, JobAssign, TranslationResult])
def test_json_without_its_audio_is_refused(cls: type[Any]) -> None:
    sample = sample_of(cls)
    for fault in ({}, {cls.audio_field: None}, {cls.audio_field: 5}, {cls.audio_field: ["A"]}):
        sample.pop(cls.audio_field, None)
        with pytest.raises(PeerError, match=cls.audio_field):
            CLASSES[cls][1](json.dumps({**sample, **fault}))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "too short"),
        (b"\x20\x01\x00\x00", "too short"),
        (b"\x01\x00\x00\x00\x00", "unknown type 0x01"),
        (b"\x20\x02\x00\x00\x00{", "ends within its head"),
        (b"\x20\xff\xff\xff\xff{}", "ends within its head"),
        (b"\x20\x02\x00\x00\x00{}", "type"),
        (b"\x20\x00\x00\x00\x00", "not JSON"),
    ],
)
def test_malformed_message_is_named(data: bytes, text: str) -> None:
    with pytest.raises(PeerError, match=text) as caught:
        binary.decode(data)
    assert caught.value.code is ErrorCode.INVALID_MESSAGE


@pytest.mark.parametrize("cls", CLASSES)
def test_head_with_audio_is_refused(cls: type[Any]) -> None:
    head = json.dumps(sample_of(cls)).encode()
    with pytest.raises(PeerError, match="in its head"):
        binary.decode(b"".join(binary.encode_parts(cls, head, b"x")))


@given(st.binary(max_size=200), st.sampled_from(sorted(binary.TYPES)), st.integers(0, 250))
def test_arbitrary_bytes_raise_nothing_but_peer_error(data: bytes, number: int, length: int) -> None:
    for frame in (data, bytes((number,)) + length.to_bytes(4, "little") + data):
        try:
            binary.decode(frame)
        except PeerError as error:
            assert error.code is ErrorCode.INVALID_MESSAGE
