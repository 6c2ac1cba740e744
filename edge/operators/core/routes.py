"""Pages: which question to the selectors answers which HTTP address, and how several answers become one. Pure.

| address | question | whom |
|---|---|---|
| /api/v1/explain/<job or request id> | explain | all, the first that remembers |
| /api/v1/metrics | metrics | all, added up |
| /api/v1/recording?selector=<identity> | recording | that one |
| /api/v1/nodes/<id> | node | any, by the node's cell |
| /api/v1/phase3/pools, /api/v1/phase3/simulate, the others below | | any |
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote

from mesh.errors import ErrorCode
from mesh.words import QueryKind

API: Final = "/api/v1/"
#: Names and values in one query.
FIELDS_MAX: Final = 100
#: Entries of a list of the most frequent, and examples beside one of them.
TOP_MAX: Final = 20
EXAMPLES_MAX: Final = 5


class Whom(Enum):
    """Which selectors are asked."""

    ANY = auto()
    FIRST = auto()  # all, until one knows
    SUM = auto()  # all, and added up
    NAMED = auto()


class Route(NamedTuple):
    """One address, as a question."""

    kind: str
    whom: Whom
    params: dict[str, list[str]]
    #: The record whose cell it belongs to, or the selector that is meant; "" = none.
    about: str = ""


class RouteError(Exception):
    """There is no such page, or no answer; `status` as in HTTP."""

    def __init__(self, status: int, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def body(self) -> dict[str, Any]:
        """What the reader is told."""
        return {"code": self.code.name, "message": str(self), "hint": self.code.hint}


_PLAIN: Final = {
    "invariants": QueryKind.INVARIANTS,
    "phase3/pools": QueryKind.POOLS,
    "phase3/simulate": QueryKind.SIMULATE,
    "weights": QueryKind.WEIGHTS,
    "selectors": QueryKind.SELECTORS,
}


def route_of(target: str) -> Route:
    """The question behind a request target; PageError if there is none."""
    path, _, query = target.partition("?")
    try:
        params = parse_qs(query, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise RouteError(400, ErrorCode.INVALID_MESSAGE, f"more than {FIELDS_MAX} parameters") from None
    name = path.removeprefix(API).rstrip("/")
    if name in _PLAIN:
        return Route(_PLAIN[name], Whom.ANY, params)
    if name == "metrics":
        return Route(QueryKind.METRICS, Whom.SUM, params)
    if name == "recording":
        return Route(QueryKind.RECORDING, Whom.NAMED, params, params.get("selector", [""])[-1])
    head, _, rest = name.partition("/")
    record_id = unquote(rest)
    if head == "explain" and record_id:
        key = "job_id" if record_id.startswith("job-") else "request_id"
        return Route(QueryKind.EXPLAIN, Whom.FIRST, {key: [record_id]}, record_id)
    if head == "nodes" and record_id:
        return Route(QueryKind.NODE, Whom.ANY, {"node_id": [record_id]}, record_id)
    raise RouteError(404, ErrorCode.INVALID_MESSAGE, f"there is no page {path[:200]}; see docs/protocol.md")


def added_up(answers: Iterable[Any]) -> Any:
    """Several selectors' counts as one: numbers are added, objects and lists of counts are joined by their names."""
    total: Any = None
    for answer in answers:
        total = answer if total is None else _add(total, answer)
    return total


def _add(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _add(one[name], other[name]) if name in other else one[name] for name in one} | {
            name: value for name, value in other.items() if name not in one
        }
    if isinstance(one, list) and isinstance(other, list):
        return _add_lists(one, other)
    is_count = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    return one + other if is_count else one


def _add_lists(one: list[Any], other: list[Any]) -> list[Any]:
    both = [*one, *other]
    if not all(isinstance(item, dict) for item in both):
        return list(dict.fromkeys(both))[:EXAMPLES_MAX] if all(isinstance(item, str) for item in both) else one
    joined: dict[str, dict[str, Any]] = {}
    for item in both:
        # What is counted is named by the first text in it: `key` or `reason`.
        name = next((value for value in item.values() if isinstance(value, str)), "")
        joined[name] = _add(joined[name], item) if name in joined else item
    return sorted(joined.values(), key=_count, reverse=True)[:TOP_MAX]


def _count(item: dict[str, Any]) -> float:
    return next((value for value in item.values() if isinstance(value, int | float)), 0)
