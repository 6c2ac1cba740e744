"""The view of a real table, without Redis; with it: tests/loopback/selector/test_queries.py."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mesh import clock
from mesh.config import Config
from selector.core.node_table import NodeTable
from selector.operators.core.query_params import Params
from selector.operators.core.report_json import SAMPLES_MAX, Oversold
from selector.operators.fleet_view import NODES_AT_ONCE, FleetView
from tests.support.builders.selector import NO_POOLS, NOW_MS, RULES, facts, table_of

ENGLISH = Params({"src_lang": ["en"], "tgt_lang": ["es"]})


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_ms", lambda: NOW_MS)


def view_of(table: NodeTable) -> FleetView:
    async def refresh_anew() -> None:
        table.patch("n", 3, 2)  # a slot that was taken after the last refresh

    snapshot = SimpleNamespace(refresh_anew=refresh_anew, clock_offset_ms=lambda cell: 0)
    context = SimpleNamespace(table=table, snapshot=snapshot, plan=NO_POOLS, config=Config())
    return FleetView(cast(Any, context), cast(Any, SimpleNamespace(rules=RULES)))


async def test_node_is_refreshed_before_it_is_shown() -> None:
    view = view_of(table_of(("n", facts()), seen_ms=NOW_MS - 70))
    answer = await view.node("n")
    assert answer is not None and answer["node_id"] == "n"
    assert (answer["seen_ms_ago"], answer["used"]) == (70, 3)
    assert await view.node("unknown") is None


def test_only_nodes_with_more_jobs_than_slots_are_oversold() -> None:
    table = table_of(("full", facts()), ("over", facts(max_jobs=3)), used=4)
    assert view_of(table).oversold() == [Oversold("over", 4, 3)]


def test_few_nodes_are_named_per_filter() -> None:
    nodes = [(f"d{number:02d}", facts(status="draining")) for number in range(SAMPLES_MAX + 2)]
    stopped = view_of(table_of(("good", facts()), *nodes)).stopped_by()
    assert {name: len(found) for name, found in stopped.items()} == {"draining": SAMPLES_MAX}


async def test_simulation_names_the_node_that_the_kernel_selects() -> None:
    table = table_of(("busy", facts(status="draining")), ("n", facts()))
    answer = await view_of(table).simulate(ENGLISH)
    assert answer["selected_node_id"] == "n"


async def test_long_scan_yields_and_skips_nodes_removed_meanwhile() -> None:
    table = table_of(*((f"n{number}", facts()) for number in range(NODES_AT_ONCE + 5)))
    scan = asyncio.create_task(view_of(table).pools())
    await asyncio.sleep(0)
    assert not scan.done(), "other tasks get a turn"
    table.remove(f"n{NODES_AT_ONCE + 4}")
    [pool] = (await scan)["pools"]
    assert pool["total_nodes"] == pool["online_nodes"] == NODES_AT_ONCE + 4
