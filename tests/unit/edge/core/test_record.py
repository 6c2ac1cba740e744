"""Records: immutable, compared by their fields and their class."""

from __future__ import annotations

import msgspec
import pytest

from edge.core.record import Record


class Sent(Record, frozen=True):
    """Two fields, of which one has a default."""

    to: str
    fields: dict[str, int] = msgspec.field(default_factory=dict)


class Received(Record, frozen=True):
    """The same fields."""

    to: str
    fields: dict[str, int] = msgspec.field(default_factory=dict)


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Sent("a").to = "b"  # type: ignore[misc]


def test_records_are_equal_by_class_and_fields() -> None:
    assert Sent("a", {"x": 1}) == Sent("a", {"x": 1})
    assert Sent("a") != Sent("b")
    assert Sent("a") != Received("a")


def test_records_do_not_share_a_mutable_default() -> None:
    first, second = Sent("a"), Sent("a")
    first.fields["x"] = 1
    assert second.fields == {}
