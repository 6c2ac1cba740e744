"""Checks that hold for the messages of every direction; test_client and test_node apply them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from mesh.errors import ErrorCode, PeerError
from mesh.messages.base import Message, encode, encode_utf8
from tests.support.builders.messages import Sample

Decode = Callable[[str | bytes], Any]

#: Written on output even if absent from the input: peers of the original require them.
ALWAYS_WRITTEN = {"message", "status", "installed_models", "features_supported"}


def id_of(sample: Sample) -> str:
    return sample.type


def refused(decode: Decode, text: str | bytes) -> PeerError:
    with pytest.raises(PeerError) as caught:
        decode(text)
    assert caught.value.code is ErrorCode.INVALID_MESSAGE
    # The text must be encodable for the peer.
    caught.value.message.encode()
    assert len(caught.value.message) < 400
    return caught.value


def check_round_trip(decode: Decode, sample: Sample) -> None:
    message = decode(json.dumps(sample.message))
    assert isinstance(message, Message)
    written = json.loads(encode(message))
    assert written == sample.message
    assert list(written) == list(sample.message), "the order of the fields differs"
    assert encode_utf8(message).decode() == encode(message)
    assert decode(json.dumps(sample.message).encode()) == message or "tts_audio" in sample.message
    camel = sample.type.title().replace("_", "")
    assert type(message).__name__ in (camel, f"{camel}Message", f"Node{camel}")


#: Required, but any JSON will do; null is JSON.
ANY_VALUE = {("webrtc_offer", "sdp"), ("webrtc_answer", "sdp"), ("webrtc_ice", "candidate")}
NULLABLE = ANY_VALUE | {("node_status", "reason")}


def check_required(decode: Decode, sample: Sample) -> None:
    for name in sample.required.split():
        wrong = [{key: value for key, value in sample.message.items() if key != name}]
        if (sample.type, name) not in NULLABLE:
            wrong.append({**sample.message, name: None})
        if (sample.type, name) not in ANY_VALUE:
            wrong.append({**sample.message, name: [{"no": "such"}]})
        for message in wrong:
            assert name in refused(decode, json.dumps(message)).message


def check_optional(decode: Decode, sample: Sample) -> None:
    bare = {key: value for key, value in sample.message.items() if key not in sample.optional}
    nulls = {**bare, **dict.fromkeys(sample.optional)}
    for given in (bare, nulls):
        written = json.loads(encode(decode(json.dumps(given))))
        if given is nulls:
            written = {key: value for key, value in written.items() if value is not None or key in bare}
        assert set(written) - set(bare) <= ALWAYS_WRITTEN
        assert {key: written[key] for key in bare} == bare


def check_unknown_fields(decode: Decode, sample: Sample) -> None:
    more = {**sample.message, "brand_new": {"a": [1, None]}, "another": None}
    assert json.loads(encode(decode(json.dumps(more)))) == sample.message


# --- input of a hostile or broken peer ------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**18, max_value=10**60)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["\ud800", "\x00", "ONE_WAY", "", "a" * 300, 1e308, -1, 2**64, float("nan")])
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)

ABYSS = [
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"[" * 5_000 + b"]" * 5_000,
    b"",
    b"null",
    b"NaN",
    b'{"type":NaN}',
    b'{"type":null}',
    b'{"type":5}',
    b'{"type":["utterance"]}',
    b'{"type":""}',
    b'{"type":"' + b"x" * 10_000 + b'"}',
    b'{"type":"\\ud800"}',
    b'{"type":"caf\xff"}',
    b"\xff\xfe",
    b'{"type":"error","type":"error"',
    "{\ud800}",
    '"\ud800"',
]


def outcome(decode: Decode, text: str | bytes) -> Message | None:
    """The message or None; anything but PeerError is a failure of the test."""
    try:
        message = decode(text)
    except PeerError as error:
        assert error.code is ErrorCode.INVALID_MESSAGE
        error.message.encode()
        return None
    # Every accepted message can be encoded again.
    encode(message)
    return message  # type: ignore[no-any-return]


def mutated(samples: list[Sample]) -> st.SearchStrategy[dict[str, Any]]:
    """A valid message with one value, at any depth, replaced by anything."""

    @st.composite
    def build(draw: st.DrawFn) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(json.dumps(draw(st.sampled_from(samples)).message))
        place: Any = message
        while True:
            keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                return message
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and draw(st.booleans()):
                place = place[key]
                continue
            place[key] = draw(anything)
            return message

    return build()
