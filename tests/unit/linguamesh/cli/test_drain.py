"""`lingua node drain`: the lines of progress."""

from __future__ import annotations

import pytest

from linguamesh.cli.drain import _progress


@pytest.mark.parametrize(
    ("status", "used", "is_late", "text"),
    [
        ("draining", 2, False, "draining, 2 jobs left ..."),
        ("draining", 1, False, "draining, 1 job left ..."),
        ("draining", 1, True, "draining, the deadline is over, 1 job to hand over ..."),
        ("gone", 0, True, "gone, empty"),
    ],
)
def test_progress_counts_the_remaining_jobs(status: str, used: int, is_late: bool, text: str) -> None:
    assert _progress({"status": status, "used": used}, is_late) == text
