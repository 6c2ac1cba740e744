from __future__ import annotations

import pytest

from selector.fleet.core.missing_model_counts import (
    NODES_MAX,
    REASONS_MAX,
    SERVICES_MAX,
    TOP,
    MissingModelCounts,
    as_id,
    reason_of,
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unknown"),
        ("  ", "unknown"),
        ("unknown", "unknown"),
        ("not_found", "not_found"),
        ("Model NOT FOUND on disk", "not_found"),
        ("checksum_mismatch", "checksum_mismatch"),
        ("sha256 differs: file not found", "checksum_mismatch"),
        ("load_failed", "load_failed"),
        ("failed to load weights", "load_failed"),
        ("timeout", "timeout"),
        ("the request timed out", "timeout"),
        ("oom", "oom"),
        ("CUDA out of memory", "oom"),
        ("no room", "raw:no_room"),
        ("Strange\n\tthing", "raw:strange_thing"),
        ("x" * 500, "raw:" + "x" * 64),
        ("模型损坏", "raw:_"),
    ],
)
def test_reasons_become_a_few_words(text: str, reason: str) -> None:
    assert reason_of(text) == reason


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [("nmt-m2m100", "nmt-m2m100"), ("", "unknown"), (" a b\n{c} ", "a_b__c_"), ("x" * 99, "x" * 64), ("语", "_")],
)
def test_names_become_ids(text: str, cleaned: str) -> None:
    assert as_id(text) == cleaned


def test_totals_and_top_lists() -> None:
    counts = MissingModelCounts()
    counts.received("nmt-m2m100", "not_found", 3)
    counts.received("piper-tts", "oom", 5)
    counts.limited("node-1", 2)
    counts.marked("node-1", 1)
    counts.marked("node-2", 1)
    assert counts.answer() == {
        "received_total": 8,
        "rate_limited_total": 2,
        "marked_total": 2,
        "by_service_top": [{"key": "piper-tts", "count": 5}, {"key": "nmt-m2m100", "count": 3}],
        "by_reason_top": [{"key": "oom", "count": 5}, {"key": "not_found", "count": 3}],
        "rate_limited_by_node_top": [{"key": "node-1", "count": 2}],
        "marked_by_node_top": [{"key": "node-1", "count": 1}, {"key": "node-2", "count": 1}],
        "other_service_total": 0,
        "other_reason_total": 0,
        "other_rate_limited_node_total": 0,
        "other_marked_node_total": 0,
    }


def test_words_beyond_the_bounds_are_counted_together() -> None:
    counts = MissingModelCounts()
    for number in range(1_000):
        counts.received(f"service-{number:04}", f"raw:{number}", 1)
        counts.limited(f"node-{number}", 1)
        counts.marked(f"node-{number}", 2)
    answer = counts.answer()
    assert (answer["received_total"], answer["marked_total"]) == (1_000, 2_000)
    assert answer["other_service_total"] == 1_000 - SERVICES_MAX
    assert answer["other_reason_total"] == 1_000 - REASONS_MAX
    assert answer["other_rate_limited_node_total"] == 1_000 - NODES_MAX
    assert answer["other_marked_node_total"] == 2 * (1_000 - NODES_MAX)
    tops = ("by_service_top", "by_reason_top", "rate_limited_by_node_top", "marked_by_node_top")
    assert all(len(answer[name]) == TOP for name in tops)
    counts.received("service-0007", "raw:7", 9)
    assert counts.answer()["by_service_top"][0] == {"key": "service-0007", "count": 10}, "a known word stays known"
