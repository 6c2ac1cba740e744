"""Reads what node_changes answers: the nodes of a cell that changed."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lua.engine.batch import Answer
from lua.store.node_view import unpack_marks, unpack_speeds, unpack_view
from lua.store.types import ChangedNode, Changes
from mesh.errors import StoreError

#: Fields of one row.
ROW: Final = 11


def read_changes(answer: Answer) -> Changes | StoreError:
    """One cell's answer. Rows that cannot be read are counted: others wrote what lies in Redis."""
    if isinstance(answer, StoreError):
        return answer
    version, now_ms, more, reset, flat = answer
    rows, unreadable = [], 0
    for start in range(0, len(flat), ROW):
        try:
            rows.append(_row(*flat[start : start + ROW]))
        except (ValueError, TypeError, AttributeError, msgspec.DecodeError):
            unreadable += 1
    return Changes(version, now_ms, bool(more), rows, bool(reset), unreadable)


def _row(
    node_id: bytes, version: int, used: int, last_seen_ms: int, caps: Any, now: Any, load: Any, pools: Any,
    speeds: Any, marks: Any, drift: int,
) -> ChangedNode:  # fmt: skip
    name = node_id.decode()
    view = None if caps is None else unpack_view(name, caps, now, load, pools)
    return ChangedNode(
        name, used, last_seen_ms, view, version,
        None if speeds is None else unpack_speeds(speeds), None if marks is None else unpack_marks(marks),
        drift,
    )  # fmt: skip
