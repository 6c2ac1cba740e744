"""Presence: reports at jittered intervals, with the present counts."""

from __future__ import annotations

from edge.link.link import EdgeLink
from edge.presence import PresenceReporter
from mesh.config import Config
from mesh.frames import EdgeReport, Frame

EVERY_MS = 1_000


class RecordingLink(EdgeLink):
    """A link that is not connected, and records frames for any selector."""

    def __init__(self) -> None:
        super().__init__(Config(), "edge:a:1")
        self.sent: list[Frame] = []

    def to_any_selector(self, frame: Frame) -> str:
        self.sent.append(frame)
        return "broker"


def test_report_is_due_at_once_and_then_at_intervals() -> None:
    link, counts = RecordingLink(), {"accepted": 1}
    presence = PresenceReporter(EVERY_MS, link, lambda: dict(counts))
    now = presence.next_due_ms()
    presence.tick(now - 1)
    assert link.sent == [], "not due yet"
    presence.tick(now)
    counts["accepted"] = 2
    presence.tick(now)
    [report] = link.sent
    assert isinstance(report, EdgeReport) and (report.edge, report.counts) == ("edge:a:1", {"accepted": 1})
    assert now < presence.next_due_ms() <= now + 2 * EVERY_MS
    presence.tick(presence.next_due_ms())
    latest = link.sent[-1]
    assert len(link.sent) == 2 and isinstance(latest, EdgeReport) and latest.counts == {"accepted": 2}
