from __future__ import annotations

import pytest

from mesh.states.speed import Speed
from mesh.words import FilterName, RefusalReason
from selector.core.filters import LASTING, REASON, Filter, is_hopeless, main_filter, nearest
from selector.core.job_rows import job_rows
from selector.core.kernel import PASSED, examine
from tests.support.builders.selector import NO_POOLS, NOW_MS, RULES, facts, job, table_of


@pytest.mark.parametrize("obstacle", Filter)
def test_only_lasting_filters_are_hopeless(obstacle: Filter) -> None:
    counts = [int(place == obstacle) for place in range(len(Filter))]
    assert is_hopeless(counts) is (obstacle in LASTING)
    counts[Filter.SLOT] = 1
    assert not is_hopeless(counts), "a slot may become free"


def test_without_any_node_a_job_is_not_hopeless() -> None:
    assert not is_hopeless([0] * len(Filter))
    assert set(REASON.values()) == set(FilterName)
    assert not set(RefusalReason) & set(FilterName)


def test_nearest_miss_is_the_node_that_only_lacks_a_slot() -> None:
    table = table_of(("far", facts(status="degraded")), ("near", facts()), ("nearer", facts()))
    table.patch("near", 4, 2)
    table.patch("nearer", 4, 2)
    table.set_speeds("near", {"*": Speed(0.9, 0.0, 8.0, NOW_MS)})
    examined = examine(table.columns, table.index(), job_rows([job()], table, NO_POOLS), table.speeds.prior(), RULES)
    assert nearest(examined, table) == ("nearer", "has no free slot: all 4 are in use")


def test_no_near_miss_when_every_node_passes() -> None:
    table = table_of(("n", facts()))
    examined = examine(table.columns, table.index(), job_rows([job()], table, NO_POOLS), table.speeds.prior(), RULES)
    assert examined.obstacle.tolist() == [PASSED]
    assert nearest(examined, table) == ("", "")


def test_every_filter_has_its_own_wire_name() -> None:
    assert len(set(REASON.values())) == len(Filter)


def counts(**removed: int) -> list[int]:
    return [removed.get(place.name, 0) for place in Filter]


def test_main_filter_of_equal_counts_is_the_last_tested() -> None:
    assert main_filter(counts(OFFLINE=2, SLOT=2)) is Filter.SLOT
    assert main_filter(counts()) is None
