"""Routes: the query to selectors behind each HTTP path, and the merging of several replies. Pure.

A page of the HTTP API is one row of PAGES; its kind is in mesh.words.QueryKind.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote

from mesh.errors import ErrorCode
from mesh.words import COMMAND_KINDS, QueryKind

API: Final = "/api/v1/"
#: Names and values in one query string.
FIELDS_MAX: Final = 100
#: Entries of a list of the most frequent, and examples beside one of them.
TOP_MAX: Final = 20
EXAMPLES_MAX: Final = 5


class QueryTarget(Enum):
    """Which selectors receive the query."""

    #: One; if the page is about a record, the one of its cell.
    ANY = auto()
    #: All, until one has a result.
    FIRST = auto()
    #: All; their counts are added up.
    SUM = auto()
    #: The one that the parameter `selector` names.
    NAMED = auto()


class Page(NamedTuple):
    """A row of the HTTP API."""

    #: Behind /api/v1/. A path that ends with "/" is followed by the id of a record.
    path: str
    kind: QueryKind
    target: QueryTarget = QueryTarget.ANY


PAGES: Final = (
    Page("explain/", QueryKind.EXPLAIN, QueryTarget.FIRST),
    Page("invariants", QueryKind.INVARIANTS),
    Page("metrics", QueryKind.METRICS, QueryTarget.SUM),
    Page("nodes/", QueryKind.NODE),
    Page("phase3/pools", QueryKind.POOLS),
    Page("phase3/simulate", QueryKind.SIMULATE),
    Page("recording", QueryKind.RECORDING, QueryTarget.NAMED),
    Page("selectors", QueryKind.SELECTORS),
    Page("weights", QueryKind.WEIGHTS),
)
_BY_PATH: Final = {page.path: page for page in PAGES}
assert {page.kind for page in PAGES} == set(QueryKind) - COMMAND_KINDS, "every kind of query has its page"


class Route(NamedTuple):
    """A request for a page, as a query."""

    kind: QueryKind
    target: QueryTarget
    params: dict[str, list[str]]
    #: The record that the page is about, or the selector that is named; "" = none.
    subject: str = ""


class RouteError(Exception):
    """There is no such page, or no reply; `status` as in HTTP."""

    def __init__(self, status: int, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def body(self) -> dict[str, Any]:
        """The JSON body of the response."""
        return {"code": self.code.name, "message": str(self), "hint": self.code.hint}


def route_of(request_target: str) -> Route:
    """The query for a request target; RouteError if there is no such page."""
    path, _, query = request_target.partition("?")
    try:
        params = parse_qs(query, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise RouteError(400, ErrorCode.INVALID_MESSAGE, f"more than {FIELDS_MAX} parameters") from None
    name = path.removeprefix(API).rstrip("/")
    page = _BY_PATH.get(name)
    if page is not None:
        subject = params.get("selector", [""])[-1] if page.target is QueryTarget.NAMED else ""
        return Route(page.kind, page.target, params, subject)
    head, slash, rest = name.partition("/")
    page, record_id = _BY_PATH.get(head + slash), unquote(rest)
    if page is None or not record_id:
        raise RouteError(404, ErrorCode.INVALID_MESSAGE, f"there is no page {path[:200]}; see docs/protocol.md")
    return Route(page.kind, page.target, {_id_param(page.kind, record_id): [record_id]}, record_id)


def _id_param(kind: QueryKind, record_id: str) -> str:
    if kind is QueryKind.NODE:
        return "node_id"
    return "job_id" if record_id.startswith("job-") else "request_id"


def sum_counts(bodies: Iterable[Any]) -> Any:
    """The counts of several selectors as one: numbers are added, objects and lists of counts are merged by name."""
    total: Any = None
    for body in bodies:
        total = body if total is None else _add(total, body)
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
        # The name of a count is the first text in it: `key` or `reason`.
        name = next((value for value in item.values() if isinstance(value, str)), "")
        joined[name] = _add(joined[name], item) if name in joined else item
    return sorted(joined.values(), key=_count, reverse=True)[:TOP_MAX]


def _count(item: dict[str, Any]) -> float:
    return next((value for value in item.values() if isinstance(value, int | float)), 0)
