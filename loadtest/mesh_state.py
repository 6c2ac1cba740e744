"""The mesh as its HTTP API reports it: registered nodes, jobs in flight, invariants."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

_SCHEMES: Final = {"ws": "http", "wss": "https"}
_POLL_S: Final = 0.1
_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class MeshState:
    """One answer of /api/v1/invariants."""

    nodes: int
    in_flight: int
    #: "" if every invariant holds.
    broken: str

    @classmethod
    def from_json(cls, page: dict[str, Any]) -> MeshState:
        """Read the page."""
        counts = [edge["counts"] for edge in page["edges"]]
        broken = "" if page["ok"] else f"oversold {page['oversold']}, jobs {page['jobs']}"
        return cls(sum(one["nodes"] for one in counts), sum(one["in_flight"] for one in counts), broken)


def read(edges: Sequence[str]) -> MeshState | None:
    """The state of the mesh; None if the edge does not answer."""
    parts = urlsplit(edges[0])
    url = f"{_SCHEMES.get(parts.scheme, parts.scheme)}://{parts.netloc}/api/v1/invariants"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            return MeshState.from_json(json.loads(answer.read()))
    except (OSError, urllib.error.URLError, KeyError, ValueError):
        return None


def wait_for(edges: Sequence[str], condition: Callable[[MeshState], bool], timeout_s: float) -> bool:
    """True once the condition holds; False after the timeout."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        state = read(edges)
        if state and condition(state):
            return True
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S)
