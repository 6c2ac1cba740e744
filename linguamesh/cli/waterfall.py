"""The stages of one utterance as a waterfall: each bar begins where the one before it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mesh.words import LatencyStage

BAR_WIDTH: Final = 40
_BAR: Final = "█"
_UNKNOWN: Final = "stages: unknown; this mesh does not report them"

#: Stage -> its meaning, for readers who do not know the code.
MEANINGS: Final = {
    LatencyStage.EDGE_IN: "at the session's edge",
    LatencyStage.BROKER: "to the selector",
    LatencyStage.QUEUE: "waiting for a node",
    LatencyStage.SELECT: "selecting the node",
    LatencyStage.COMMIT: "committing to Redis",
    LatencyStage.DELIVER: "to the node",
    LatencyStage.NODE: "on the node",
    LatencyStage.BACK: "back to the session's edge",
    LatencyStage.ORDER: "waiting for its turn",
}
assert set(MEANINGS) == set(LatencyStage), "every stage has a meaning"


def waterfall(stages: Mapping[str, int]) -> str:
    """A line per stage, microseconds as ms, and their sum. Stages that this version does not know come last."""
    if not stages:
        return _UNKNOWN
    known = [stage.value for stage in LatencyStage if stage.value in stages]
    names = [*known, *(name for name in stages if name not in known)]
    total_us = sum(stages[name] for name in names)
    lines, start_us = [], 0
    for name in names:
        bar = _bar(start_us, stages[name], total_us)
        meaning = MEANINGS.get(LatencyStage(name), "") if name in known else ""
        lines.append(f"{name:<8} {stages[name] / 1_000:>10.3f} ms  {bar:<{BAR_WIDTH}}  {meaning}".rstrip())
        start_us += stages[name]
    return "\n".join([*lines, f"{'sum':<8} {total_us / 1_000:>10.3f} ms"])


def _bar(start_us: int, length_us: int, total_us: int) -> str:
    """Spaces up to the start, then the bar: at least one column for a stage that took any time."""
    if not length_us:
        return ""
    columns = max(1, round(BAR_WIDTH * length_us / total_us))
    indent = min(round(BAR_WIDTH * start_us / total_us), BAR_WIDTH - columns)
    return " " * indent + _BAR * columns
