"""Missing models: the first report is forwarded at once, later ones coalesced, a few frames per tick."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.jobs.core.missing_models import (
    FRAMES_PER_TICK,
    INTERVAL_MS,
    SERVICES_PER_NODE_MAX,
    TICK_MS,
    MissingModelReports,
)
from mesh.frames import ModelMissing


def missing(node: str = "n", service: str = "s", **fields: object) -> ModelMissing:
    return ModelMissing(node, 1, service, "asr", "1", str(fields.get("reason", "")))


def test_first_report_is_forwarded_at_once_and_later_ones_are_coalesced() -> None:
    reports = MissingModelReports(10)
    reports.add(missing(), 100)
    assert reports.timers.next_due_ms() == 100
    (sent,) = reports.pop_due(100)
    assert sent == missing() and sent.count == 1
    for number in range(5_000):
        reports.add(missing(reason=str(number)), 101 + number // 10)
    due_ms = reports.timers.next_due_ms()
    assert due_ms is not None and 100 + INTERVAL_MS <= due_ms < 100 + 2 * INTERVAL_MS
    (sent,) = reports.pop_due(due_ms)
    assert (sent.count, sent.reason) == (5_000, "4999")
    assert reports.pop_due(due_ms + 2 * INTERVAL_MS) == [] and reports.timers.next_due_ms() is None
    reports.check()


def test_reports_are_counted_per_node_and_service_and_bounded() -> None:
    reports = MissingModelReports(SERVICES_PER_NODE_MAX + 2)
    for number in range(SERVICES_PER_NODE_MAX + 5):
        reports.add(missing(service=str(number)), 0)
    assert reports.dropped == 5
    for node in ("a", "b", "c"):
        reports.add(missing(node), 0)
        reports.check()
    assert reports.dropped == 6


def test_burst_is_spread_over_ticks_and_jittered() -> None:
    reports = MissingModelReports(1_000)
    for number in range(200):
        reports.add(missing(f"n-{number}"), 0)
    sent: list[int] = []
    for now in range(0, 2 * INTERVAL_MS, TICK_MS):
        sent += [now] * len(reports.pop_due(now))
        reports.check()
        reports.add(missing(f"n-{now % 200}"), now)
    assert max(sent.count(now) for now in sent) <= FRAMES_PER_TICK
    assert sum(now < 200 // FRAMES_PER_TICK * TICK_MS for now in sent) == 200


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 700)), max_size=60))
def test_every_report_is_counted_once_and_frames_keep_their_interval(
    received: list[tuple[int, int, int]],
) -> None:
    reports, now, sent = MissingModelReports(100), 0, 0
    last: dict[tuple[str, str], int] = {}

    def forward() -> int:
        count = 0
        for frame in reports.pop_due(now):
            key = (frame.node_id, frame.service_id)
            assert now - last.get(key, -INTERVAL_MS) >= INTERVAL_MS
            last[key] = now
            count += frame.count
        reports.check()
        return count

    for node, service, wait_ms in received:
        now += wait_ms
        sent += forward()
        reports.add(missing(str(node), str(service)), now)
        reports.check()
        sent += forward()
    while (due_ms := reports.timers.next_due_ms()) is not None:
        now = due_ms
        sent += forward()
    assert sent == len(received)
