"""The budget of hedges: a share of accepted utterances, and one outcome for each hedge."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.requests.core.hedge_budget import HedgeBudget
from mesh.words import HedgeOutcome


def test_budget_of_zero_percent_allows_and_counts_nothing() -> None:
    budget = HedgeBudget(0.0)
    assert not budget.take(1_000) and not budget.outcomes


def test_budget_is_a_share_of_accepted_utterances() -> None:
    budget = HedgeBudget(5.0)
    assert not budget.take(19) and budget.take(20)
    assert not budget.take(39) and budget.take(40)
    assert budget.outcomes == {HedgeOutcome.OVER_BUDGET: 2} and (budget.sent, budget.live) == (2, 2)


def test_ended_hedge_is_not_returned_to_the_budget() -> None:
    budget = HedgeBudget(10.0)
    assert budget.take(10)
    budget.ended(HedgeOutcome.WON)
    assert budget.live == 0 and not budget.take(10)
    budget.check(10)


@given(st.floats(0, 100), st.lists(st.booleans(), max_size=50))
def test_budget_holds_after_any_sequence(percent: float, takes: list[bool]) -> None:
    budget = HedgeBudget(percent)
    for accepted, take in enumerate(takes, 1):
        if take:
            budget.take(accepted)
        elif budget.live:
            budget.ended(HedgeOutcome.LOST)
        budget.check(accepted)
