"""HedgeBudget: how many late jobs may run a second time beside the first, and the outcomes of those hedges."""

from __future__ import annotations

from collections import Counter

from mesh.words import HedgeOutcome


class HedgeBudget:
    """The budget of one edge: at most `percent` of the utterances accepted so far. 0: no hedging."""

    def __init__(self, percent: float) -> None:
        self.percent = percent
        self.sent = 0
        self.live = 0
        self.outcomes: Counter[HedgeOutcome] = Counter()

    def take(self, accepted: int) -> bool:
        """True, and counted, if one more hedge is within the budget."""
        if not self.percent:
            return False
        if (self.sent + 1) * 100 > self.percent * accepted:
            self.outcomes[HedgeOutcome.OVER_BUDGET] += 1
            return False
        self.sent += 1
        self.live += 1
        return True

    def ended(self, outcome: HedgeOutcome) -> None:
        """A hedge has its outcome."""
        self.live -= 1
        self.outcomes[outcome] += 1

    def check(self, accepted: int) -> None:
        """The budget was never exceeded, and every hedge is live or has one outcome."""
        assert self.sent * 100 <= self.percent * accepted
        assert self.sent == self.live + self.outcomes.total() - self.outcomes[HedgeOutcome.OVER_BUDGET]
