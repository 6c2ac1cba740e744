from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mesh.config.base import Bytes, Count, MemoryBytes, Ms, Percent, Port, Seconds, Section


class Sample(Section, frozen=True):
    """One setting of each base type."""

    ms: Ms = 1
    seconds: Seconds = 1
    count: Count = 1
    port: Port = 0
    size: Bytes = 1_024
    memory: MemoryBytes = 1_024
    share: Percent = 0.0


@pytest.mark.parametrize(
    ("key", "lowest", "highest"),
    [
        ("ms", 1, 86_400_000),
        ("seconds", 1, 86_400),
        ("count", 1, 1_000_000),
        ("port", 0, 65_535),
        ("size", 1_024, 2**26),
        ("memory", 1_024, 2**36),
        ("share", 0, 100),
    ],
)
def test_type_accepts_its_bounds_and_no_more(key: str, lowest: int, highest: int) -> None:
    for good in (lowest, highest):
        assert getattr(msgspec.convert({key: good}, Sample), key) == good
    for bad in (lowest - 1, highest + 1):
        with pytest.raises(msgspec.ValidationError, match=key):
            msgspec.convert({key: bad}, Sample)


@pytest.mark.parametrize("tree", [{"unknown": 1}, {"ms": None}, {"ms": "soon"}])
def test_section_refuses_unknown_keys_and_wrong_types(tree: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(tree, Sample)
