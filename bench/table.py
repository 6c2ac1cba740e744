"""Printing figures: plain columns, and percentiles of a list of seconds."""

from __future__ import annotations

from collections.abc import Sequence


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A titled table; the first column is text, the others are right-aligned."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    print(title)
    for row in [header, *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("  " + "  ".join(cells))


def percentile(seconds: Sequence[float], share: float) -> float:
    """The value below which `share` of the samples lie."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def ms(seconds: float) -> str:
    """Seconds, as milliseconds with three digits after the point."""
    return f"{seconds * 1000:.3f}"
