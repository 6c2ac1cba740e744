from __future__ import annotations

from mesh.words import DispatchOutcome
from selector.core.filters import Filter
from selector.placement.placement import Placement
from tests.support.builders.selector import job


def placement(**fields: object) -> Placement:
    made = Placement(job(), [b"audio"], "broker", "u", 1_000, needs=())
    made.removed = [0] * len(Filter)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_last_round_accepts_all_candidates_and_earlier_ones_only_equal_ones_as_busy_as_expected() -> None:
    one = placement(candidates=["a", "b", "c"], expected=[1, 0, 2], equals=2)
    early, last = one.commit(is_last=False), one.commit(is_last=True)
    assert (early.candidates, list(early.expected)) == (["a", "b"], [1, 0])
    assert (last.candidates, list(last.expected)) == (["a", "b", "c"], [])


def test_retry_forgets_rejected_nodes_but_not_their_reasons() -> None:
    one = placement(rejected={"a": "draining"}, rejected_counted=1, outcome=DispatchOutcome.UNKNOWN, conflicts=3)
    one.removed[Filter.EXCLUDED] = 2
    one.begin_retry()
    assert (one.rejected, one.rejected_counted, one.outcome, one.conflicts) == ({}, 0, "", 0)
    assert (one.removed[Filter.EXCLUDED], one.removed[Filter.DRAINING]) == (1, 1)
    assert one.removed_counts() == one.removed


def test_only_queued_placements_have_waited() -> None:
    assert placement().waited_ms(5_000) == 0
    assert placement(has_waited=True).waited_ms(5_000) == 4_000
    assert placement(has_waited=True).waited_ms(0) == 0, "clocks never make it negative"


def test_placed_by_this_or_another_selector() -> None:
    assert placement(outcome=DispatchOutcome.NEW).is_placed
    assert placement(outcome=DispatchOutcome.BOUND).is_placed
    assert not placement(outcome=DispatchOutcome.UNKNOWN).is_placed
