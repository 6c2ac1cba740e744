"""Presence: reports at jittered intervals, with the present counts."""

from __future__ import annotations

from edge.core.timers import Schedule
from edge.link.link import EdgeLink
from edge.presence import PresenceReporter
from mesh.clock import now_ms
from mesh.config import Config
from mesh.frames import EdgeReport, Frame

EVERY_MS = 1_000


class RecordingLink(EdgeLink):
    """A link that is not connected, and records frames for any selector."""

    def __init__(self) -> None:
        super().__init__(Config(), "edge:a:1", Schedule())
        self.sent: list[Frame] = []

    def to_any_selector(self, frame: Frame) -> str:
        self.sent.append(frame)
        return "broker"


def test_report_is_due_at_once_and_then_at_intervals() -> None:
    link, counts, schedule = RecordingLink(), {"accepted": 1}, Schedule()
    presence = PresenceReporter(EVERY_MS, link, schedule, lambda: dict(counts))
    assert schedule.next_due_ms() is None, "not before the edge has started"
    presence.start()
    now = schedule.next_due_ms()
    assert now is not None and now <= now_ms()
    [tick] = schedule.pop_due(now)
    tick(now)
    counts["accepted"] = 2
    [report] = link.sent
    assert isinstance(report, EdgeReport) and (report.edge, report.counts) == ("edge:a:1", {"accepted": 1})
    due_ms = schedule.next_due_ms()
    assert due_ms is not None and now < due_ms <= now + 2 * EVERY_MS
    assert schedule.pop_due(due_ms) == [tick]
    tick(due_ms)
    latest = link.sent[-1]
    assert len(link.sent) == 2 and isinstance(latest, EdgeReport) and latest.counts == {"accepted": 2}
