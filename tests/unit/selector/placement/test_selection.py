"""Selection: what the kernel's choice means for a placement, and that it can be explained."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import CollectorRegistry

from mesh import clock
from mesh.config import Config
from mesh.config.weights import Weights
from selector.core.filters import Filter
from selector.core.node_table import NodeTable
from selector.metrics import SelectorMetrics
from selector.operators.decision_log import DecisionLog
from selector.placement.placement import Placement
from selector.placement.selection import Selection
from tests.support.builders.selector import NO_POOLS, facts, job, rules_of, table_of


def selection_of(table: NodeTable) -> tuple[Selection, DecisionLog]:
    config = Config()
    context = SimpleNamespace(table=table, metrics=SelectorMetrics(CollectorRegistry()), config=config, plan=NO_POOLS)
    weights = SimpleNamespace(rules=rules_of(Weights(), clock.now_ms()), weights=Weights(), version=1)
    decisions = DecisionLog(config)
    return Selection(cast(Any, context), cast(Any, weights), decisions), decisions


def fleet(*used: int) -> NodeTable:
    """Nodes of 4 slots, named by their number."""
    table = table_of(*((f"n-{number}", facts()) for number in range(len(used))), seen_ms=clock.now_ms())
    for number, count in enumerate(used):
        assert table.patch(f"n-{number}", count, 2)
    return table


def placement(request_id: str = "r-1", **changes: Any) -> Placement:
    return Placement(job(request_id=request_id, **changes), [], "broker", "u", clock.now_ms(), needs=())


def test_candidates_are_the_best_nodes_with_what_the_commit_must_find() -> None:
    selection, _ = selection_of(fleet(3, 0, 4))
    one = placement()
    selection.choose([one])
    assert (one.candidates, one.expected, one.epochs) == (["n-1", "n-0"], [0, 3], [1, 1])
    assert one.equals == 1, "n-0 is busier by more than a round costs"
    assert one.removed[Filter.SLOT] == 1 and one.select_us >= 0 and one.selected_us > 0


def test_each_pick_is_charged_before_the_next() -> None:
    selection, _ = selection_of(fleet(0, 0))
    pair = [placement("r-1"), placement("r-2")]
    selection.choose(pair)
    assert {one.candidates[0] for one in pair} == {"n-0", "n-1"}
    assert [one.equals for one in pair] == [2, 1], "the second finds the first one's node busier"


def test_rejected_nodes_are_excluded_and_counted() -> None:
    selection, _ = selection_of(fleet(0, 0))
    one = placement()
    one.rejected = {"n-0": "draining", "gone": "gone"}
    selection.choose([one])
    assert one.candidates == ["n-1"] and one.rejected_counted == 1
    assert one.removed[Filter.EXCLUDED] == 1


def test_placement_without_a_candidate_has_the_reasons() -> None:
    selection, _ = selection_of(fleet(4, 4))
    one = placement()
    selection.choose([one])
    assert (one.candidates, one.equals, one.removed[Filter.SLOT]) == ([], 0, 2)


def test_recorded_choice_can_be_explained() -> None:
    selection, decisions = selection_of(fleet(0, 1))
    one = placement()
    selection.record([one], selection.choose([one]))
    decisions.end(one, "refused")
    found = decisions.find("r-1")
    assert found is not None
    assert [candidate["node_id"] for candidate in found["rounds"][0]["candidates"]] == ["n-0", "n-1"]
