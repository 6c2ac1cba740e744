"""Routes: paths as queries, and the counts of several selectors as one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.operators.core.routes import EXAMPLES_MAX, TOP_MAX, QueryTarget, Route, RouteError, route_of, sum_counts


@pytest.mark.parametrize(
    ("target", "route"),
    [
        ("/api/v1/invariants", Route("invariants", QueryTarget.ANY, {})),
        ("/api/v1/phase3/pools/", Route("pools", QueryTarget.ANY, {})),
        (
            "/api/v1/phase3/simulate?required=asr&required=tts",
            Route("simulate", QueryTarget.ANY, {"required": ["asr", "tts"]}),
        ),
        ("/api/v1/metrics", Route("metrics", QueryTarget.SUM, {})),
        ("/api/v1/recording", Route("recording", QueryTarget.NAMED, {})),
        (
            "/api/v1/recording?selector=a&selector=b",
            Route("recording", QueryTarget.NAMED, {"selector": ["a", "b"]}, "b"),
        ),
        ("/api/v1/nodes/n-1", Route("node", QueryTarget.ANY, {"node_id": ["n-1"]}, "n-1")),
        ("/api/v1/explain/job-01-a", Route("explain", QueryTarget.FIRST, {"job_id": ["job-01-a"]}, "job-01-a")),
        ("/api/v1/explain/s:1:en:t", Route("explain", QueryTarget.FIRST, {"request_id": ["s:1:en:t"]}, "s:1:en:t")),
    ],
)
def test_path_is_a_query(target: str, route: Route) -> None:
    assert route_of(target) == route


@pytest.mark.parametrize("target", ["/api/v1/", "/api/v1/drain", "/api/v1/weights_set", "/api/v1/explain", "//["])
def test_path_of_no_page_is_a_route_error(target: str) -> None:
    with pytest.raises(RouteError) as error:
        route_of(target)
    assert error.value.status in (400, 404) and error.value.body()["message"]


COUNTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 9), max_size=8)


@settings(deadline=None)
@given(st.lists(COUNTS, min_size=1, max_size=5))
def test_counts_are_added_by_name(selectors: list[dict[str, int]]) -> None:
    total: Counter[str] = Counter()
    for counts in selectors:
        total.update(counts)
    answers = [{"top": [{"key": key, "count": count} for key, count in counts.items()]} for counts in selectors]
    top = sum_counts(answers)["top"]
    assert {item["key"]: item["count"] for item in top} == dict(total)
    if len(selectors) > 1:
        assert [item["count"] for item in top] == sorted(total.values(), reverse=True)


def test_lists_are_bounded_and_unlike_values_are_not_merged() -> None:
    many: list[dict[str, Any]] = []
    for half in "ab":
        top = [{"key": f"{half}{number}", "count": number} for number in range(TOP_MAX)]
        many.append({"top": top, "nodes": [f"{half}{number}" for number in range(4)]})
    joined = sum_counts(many)
    assert len(joined["top"]) == TOP_MAX and joined["top"][0]["count"] == TOP_MAX - 1
    assert joined["nodes"] == ["a0", "a1", "a2", "a3", "b0"] and len(joined["nodes"]) == EXAMPLES_MAX
    assert sum_counts([{"a": 1, "on": True, "s": "x"}, {"a": "x", "on": True, "b": 2}]) == {
        "a": 1, "on": True, "s": "x", "b": 2,
    }  # fmt: skip
    assert sum_counts([]) is None
