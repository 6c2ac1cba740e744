from __future__ import annotations

from mesh.config.weights import Weights
from mesh.states.speed import Speed
from selector.core.job_rows import job_rows
from selector.core.kernel import examine
from selector.core.node_table import NodeTable
from selector.placement.core.forecast import Forecast, forecast_of, release_forecast_ms
from tests.support.builders.selector import NOW_MS, facts, job, table_of
from tests.support.simulation.selector import PLAN_ANYWHERE, rules_at


def outlook(table: NodeTable, weights: Weights | None = None) -> Forecast:
    rules = rules_at(NOW_MS, weights or Weights())
    rows = job_rows([job(audio_ms=2_000)], table, PLAN_ANYWHERE)
    return forecast_of(examine(table.columns, table.index(), rows, table.speeds.prior(), rules), table, rules)


def busy_table() -> NodeTable:
    table = table_of(("fast", facts(max_jobs=2)), ("slow", facts(max_jobs=2)), used=2)
    table.set_speeds("fast", {"*": Speed(0.2, 0.0, 100, NOW_MS)})
    table.set_speeds("slow", {"*": Speed(2.0, 0.0, 100, NOW_MS)})
    table.apply(0, 1, "deaf", 0, NOW_MS, facts(asr_langs=["zh"]))
    return table


def test_the_cheapest_of_those_that_lack_only_a_slot_is_the_nearest_miss() -> None:
    found = outlook(busy_table())
    assert (found.nearest_node, found.nearest) == ("fast", "has no free slot: all 2 are in use")


def test_slots_come_free_as_fast_as_those_nodes_work() -> None:
    found = outlook(busy_table())
    assert found.slots_in_use == 4
    assert 400 < found.predicted_ms < found.service_ms
    near, far = found.retry_after_ms(0, 10, 60_000), found.retry_after_ms(9, 10, 60_000)
    assert near == round(found.service_ms / 4)
    assert far == round(10 * found.service_ms / 4)


def test_nothing_is_foretold_where_no_slot_is_missing() -> None:
    found = outlook(table_of(("deaf", facts(asr_langs=["zh"]))))
    assert (found.nearest_node, found.predicted_ms, found.slots_in_use) == ("deaf", 0, 0)
    assert found.retry_after_ms(5, 10, 60_000) == 10
    assert outlook(NodeTable(nodes_max=5)) == Forecast()


def test_a_strategy_that_does_not_count_in_milliseconds_foretells_nothing() -> None:
    found = outlook(busy_table(), Weights(strategy="least_connections"))
    assert found.nearest_node in ("fast", "slow")
    assert (found.predicted_ms, found.slots_in_use) == (0, 0)


def test_slots_come_free_at_an_even_pace() -> None:
    assert release_forecast_ms(1_000.0, 10, ahead=0, least_ms=50, most_ms=10_000) == 100
    assert release_forecast_ms(1_000.0, 10, ahead=9, least_ms=50, most_ms=10_000) == 1_000
    assert release_forecast_ms(1_000.0, 1_000, ahead=0, least_ms=50, most_ms=10_000) == 50
    assert release_forecast_ms(1_000.0, 1, ahead=99, least_ms=50, most_ms=10_000) == 10_000
    assert release_forecast_ms(1_000.0, 0, ahead=5, least_ms=50, most_ms=10_000) == 50
