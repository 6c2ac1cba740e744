"""Counts of MODEL_NOT_AVAILABLE reports: totals, and the most frequent services, reasons and nodes. Bounded.

Nodes choose the strings, so every table holds a limited number of them; later ones are counted as "other".
"""

from __future__ import annotations

import re
from typing import Any, Final

SERVICES_MAX: Final = 200
REASONS_MAX: Final = 200
NODES_MAX: Final = 100
TOP: Final = 20
RAW_CHARS_MAX: Final = 64
UNKNOWN: Final = "unknown"

#: Pattern in the text -> reason; the first match counts. Whole words only, because of "room" and "oom".
_MEANINGS: Final = (
    (re.compile(r"checksum|sha256|hash[ _-]mismatch"), "checksum_mismatch"),
    (re.compile(r"not[ _-]?found|no such|(?<![a-z])missing|not[ _-]installed"), "not_found"),
    (re.compile(r"(?<![a-z])oom(?![a-z])|out[ _-]of[ _-]memory"), "oom"),
    (re.compile(r"time[ _-]?out|timed out"), "timeout"),
    (re.compile(r"load[ _-]fail|fail\w* to load|cannot load"), "load_failed"),
)
_UNPRINTABLE: Final = re.compile(r"[^\x21-\x7e]+")
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9_.:-]")
_ID_CHARS_MAX: Final = 64


def reason_of(text: str) -> str:
    """A node's text as one of a few reasons; a text without a match becomes `raw:...`, truncated."""
    low = text.strip().lower()
    if not low or low == UNKNOWN:
        return UNKNOWN
    for pattern, meaning in _MEANINGS:
        if pattern.search(low):
            return meaning
    return "raw:" + _UNPRINTABLE.sub("_", low)[:RAW_CHARS_MAX]


def as_id(text: str, blank: str = UNKNOWN) -> str:
    """A peer's string as an id: bounded, and safe in a key."""
    return _NOT_IN_IDS.sub("_", text.strip())[:_ID_CHARS_MAX] or blank


class Tally:
    """Counts of the first `bound` distinct strings; the rest together."""

    def __init__(self, bound: int) -> None:
        self.other = 0
        self._bound = bound
        self._counts: dict[str, int] = {}

    def add(self, word: str, count: int) -> bool:
        """Count a string; False if it was counted as other."""
        if word not in self._counts and len(self._counts) >= self._bound:
            self.other += count
            return False
        self._counts[word] = self._counts.get(word, 0) + count
        return True

    def top(self) -> list[dict[str, Any]]:
        """The most frequent strings, equal ones by name."""
        order = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return [{"key": word, "count": count} for word, count in order[:TOP]]


class MissingModelCounts:
    """All reports of missing models that one selector handled."""

    def __init__(self) -> None:
        self.received_total = 0
        self.rate_limited_total = 0
        self.marked_total = 0
        self.services = Tally(SERVICES_MAX)
        self.reasons = Tally(REASONS_MAX)
        self.limited_nodes = Tally(NODES_MAX)
        self.marked_nodes = Tally(NODES_MAX)

    def received(self, service_id: str, reason: str, count: int) -> tuple[bool, bool]:
        """Count a report; False for service or reason: counted as other."""
        self.received_total += count
        return self.services.add(service_id, count), self.reasons.add(reason, count)

    def limited(self, node_id: str, count: int) -> bool:
        """Reports of the node were dropped by the rate limit."""
        self.rate_limited_total += count
        return self.limited_nodes.add(node_id, count)

    def marked(self, node_id: str, count: int) -> bool:
        """The node was marked: it gets no such job for a while."""
        self.marked_total += count
        return self.marked_nodes.add(node_id, count)

    def answer(self) -> dict[str, Any]:
        """The section `model_not_available` of /api/v1/metrics."""
        return {
            "received_total": self.received_total,
            "rate_limited_total": self.rate_limited_total,
            "marked_total": self.marked_total,
            "by_service_top": self.services.top(),
            "by_reason_top": self.reasons.top(),
            "rate_limited_by_node_top": self.limited_nodes.top(),
            "marked_by_node_top": self.marked_nodes.top(),
            "other_service_total": self.services.other,
            "other_reason_total": self.reasons.other,
            "other_rate_limited_node_total": self.limited_nodes.other,
            "other_marked_node_total": self.marked_nodes.other,
        }
