from __future__ import annotations

import json
from typing import Any, Literal

import msgspec
import pytest
from msgspec import inspect

from mesh.errors import ErrorCode, PeerError
from mesh.messages.base import (
    Codec,
    Message,
    Part,
    always,
    encode,
    error_message,
    error_of,
    mend,
)


class Inner(Part, frozen=True, kw_only=True):
    size: int
    note: str | None = None


class SoftSpoken(Message, frozen=True, kw_only=True):
    mood: Literal["calm", "LOUD"]
    inner: Inner | None = None
    many: list[Inner] = always([])
    weights: dict[str, int] | None = None
    number: int | float = 0
    free: Any = None


CODEC: Codec[SoftSpoken] = Codec(SoftSpoken, (SoftSpoken,))
SHAPE = inspect.type_info(SoftSpoken)


def test_class_name_is_the_type() -> None:
    assert CODEC.types == {"soft_spoken"}
    assert encode(SoftSpoken(mood="calm")) == '{"type":"soft_spoken","mood":"calm","many":[]}'


def test_default_list_is_not_shared() -> None:
    one, other = SoftSpoken(mood="calm"), SoftSpoken(mood="calm")
    assert one.many is not other.many


def test_deviations_are_repaired_at_every_depth() -> None:
    text = (
        '{"type":"Soft_Spoken","mood":" loud","inner":{"size":3.0,"note":null,"x":1},'
        '"many":[{"size":4.0}],"weights":{"a":1.0,"b":null},"number":2.5,"free":{"keep":null}}'
    )
    assert CODEC.decode(text) == SoftSpoken(
        mood="LOUD",
        inner=Inner(size=3),
        many=[Inner(size=4)],
        weights={"a": 1},
        number=2.5,
        free={"keep": None},
    )


@pytest.mark.parametrize("value", [5, "text", [1], {"mood": 5}, None, {"many": 7, "inner": []}])
def test_other_faults_are_left_to_the_decoder(value: Any) -> None:
    mended = mend(value, SHAPE)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(mended, SoftSpoken)


def test_infinity_does_not_become_an_integer() -> None:
    assert mend(float("inf"), inspect.type_info(int)) == float("inf")


def test_error_names_the_path() -> None:
    with pytest.raises(PeerError, match=r"\$\.many\[1\]\.size"):
        CODEC.decode('{"type":"soft_spoken","mood":"calm","many":[{"size":1},{"size":"x"}]}')


def test_error_message_keeps_the_shape_of_the_original() -> None:
    message = error_message(ErrorCode.NO_AVAILABLE_NODE, "none free", {"offline": 3})
    written = json.loads(encode(message))
    assert list(written) == ["type", "code", "message", "details"]
    assert written["code"] == "NO_AVAILABLE_NODE"
    assert written["details"] == {"offline": 3, "number": 400, "hint": ErrorCode.NO_AVAILABLE_NODE.hint}


def test_peer_error_becomes_an_error_message() -> None:
    message = error_of(PeerError(ErrorCode.INVALID_ID, "bad id", {"id": "{"}))
    assert (message.code, message.message, message.details["id"]) == ("INVALID_ID", "bad id", "{")
