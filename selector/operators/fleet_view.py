"""The operators' view of the fleet: pools, single nodes, simulation of a job. Reads the snapshot, changes nothing.

A scan of a large fleet takes long, so it yields every NODES_AT_ONCE nodes: placements go first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import numpy as np

from lua.store.types.nodes import NodeFacts
from mesh import clock
from mesh.cells import cell_of
from selector.context import SelectorContext
from selector.core import kernel
from selector.core.filters import REASON, Filter, nearest
from selector.core.job_rows import job_rows, order_of
from selector.core.pools import home_among
from selector.operators.core.query_params import Params, simulated
from selector.operators.core.report_json import SAMPLES_MAX, Oversold, PoolReport, Standing, node_answer, pool_number
from selector.operators.core.simulate import Routing, SimulationVerdict, simulation_answer
from selector.placement.weights import CurrentWeights

#: Nodes that are scanned before other tasks get a turn.
NODES_AT_ONCE: Final = 200


class FleetView:
    """Answers queries about nodes."""

    def __init__(self, context: SelectorContext, weights: CurrentWeights) -> None:
        self._table = context.table
        self._snapshot = context.snapshot
        self._plan = context.plan
        self._config = context.config
        self._weights = weights
        self._tenants = frozenset(one.tenant_id for one in context.config.pools.tenant_overrides)

    async def pools(self) -> dict[str, Any]:
        """The nodes of each pool."""
        report = PoolReport(self._config.pools, self._config.models)
        async for _, node in self._standings(self._table.ids()):
            report.add(node)
        return report.answer()

    async def node(self, node_id: str) -> dict[str, Any] | None:
        """One node, as Redis has it now; None if it is not there."""
        await self._snapshot.refresh_anew()
        facts = self._table.facts_of(node_id)
        if facts is None:
            return None
        now_ms = clock.now_ms()
        seen_ms = int(self._table.columns.seen_ms[self._table.rows[node_id]])
        return node_answer(
            node_id,
            facts,
            used=self._table.used_of(node_id),
            seen_ms_ago=max(0, now_ms - seen_ms),
            speeds=self._table.speeds_of(node_id),
            marks=self._table.marks_of(node_id),
            clock_offset_ms=-self._snapshot.clock_offset_ms(cell_of(node_id, self._config.mesh.cells)),
        )

    def oversold(self) -> list[Oversold]:
        """Nodes with more slots in use than they have."""
        columns, count = self._table.columns, len(self._table)
        rows = np.nonzero(columns.used[:count] > columns.max_jobs[:count])[0]
        return [
            Oversold(self._table.id_of(row), int(columns.used[row]), int(columns.max_jobs[row]))
            for row in rows.tolist()
        ]

    def drift(self) -> int:
        """Slots that did not match the running jobs, at each node's last audit."""
        return self._table.drift()

    def stopped_by(self) -> dict[str, list[str]]:
        """Filter -> a few nodes that it would remove for any job at present."""
        _, any_job = simulated(Params({}), frozenset())
        table = self._table
        rows, rules = job_rows([any_job], table, self._plan), self._weights.rules._replace(now_ms=clock.now_ms())
        examined = kernel.examine(table.columns, table.index(), rows, table.speeds.prior(), rules)
        found: dict[str, list[str]] = {}
        for obstacle in np.unique(examined.obstacle).tolist():
            if obstacle not in (kernel.PASSED, Filter.POOL):
                first = np.nonzero(examined.obstacle == obstacle)[0][:SAMPLES_MAX]
                found[REASON[Filter(obstacle)]] = [table.id_of(row) for row in first.tolist()]
        return found

    async def simulate(self, params: Params) -> dict[str, Any]:
        """Simulate the placement of a job with the real kernel."""
        routing_key, dispatch = simulated(params, self._tenants)
        table = self._table
        rows, rules = job_rows([dispatch], table, self._plan), self._weights.rules._replace(now_ms=clock.now_ms())
        index, prior = table.index(), table.speeds.prior()
        choice = kernel.choose(table.columns, index, rows, prior, rules, 1)
        examined = kernel.examine(table.columns, index, rows, prior, rules)
        found = int(choice.rows[0, 0])
        selected = None if found == kernel.NO_ROW else table.id_of(found)
        closest = nearest(examined, table)
        verdicts, selected_pool = [], None
        async for row, node in self._standings(table.ids()):
            obstacle = int(examined.obstacle[row])
            terms = dict(zip(kernel.TERMS, examined.terms[row].tolist(), strict=True))
            verdicts.append(
                SimulationVerdict(
                    node,
                    self._home(node.node_id),
                    None if obstacle == kernel.PASSED else Filter(obstacle),
                    int(examined.scores[row]),
                    terms,
                )
            )
            if node.node_id == selected:
                selected_pool = node.pool_id
        order = order_of(dispatch, self._plan)
        routing = Routing(
            routing_key,
            len(self._config.pools.pools) or (self._config.pools.pool_count if self._config.pools.enabled else 1),
            self._number(order.preferred),
            [number for home in order.order if (number := self._number(home)) is not None],
            selected_pool,
        )
        # Sorting and counting ten thousand nodes takes a tenth of a second: not in the event loop.
        return await asyncio.to_thread(simulation_answer, routing, dispatch.services, verdicts, selected, closest)

    async def _standings(self, node_ids: Sequence[str]) -> AsyncIterator[tuple[int, Standing]]:
        """Every node with its index in the list; nodes removed meanwhile are skipped."""
        for place, node_id in enumerate(node_ids):
            if place % NODES_AT_ONCE == NODES_AT_ONCE - 1:
                await asyncio.sleep(0)
            facts = self._table.facts_of(node_id)
            if facts is not None:
                yield place, self._standing(node_id, facts)

    def _standing(self, node_id: str, facts: NodeFacts) -> Standing:
        now_ms, config = clock.now_ms(), self._config
        seen_ms = int(self._table.columns.seen_ms[self._table.rows[node_id]])
        is_gone = facts.detached_ms and now_ms - facts.detached_ms >= config.edge.reconnect_grace_ms
        is_online = facts.status != "offline" and now_ms - seen_ms < config.node.heartbeat_timeout_ms and not is_gone
        return Standing(node_id, self._number(home_among(facts.pools)), facts.caps, is_online, facts.status == "ready")

    def _number(self, home: str) -> int | None:
        """The number that reports give a home pool. Without pools all nodes are in the first."""
        return pool_number(home) if self._config.pools.enabled else 0

    def _home(self, node_id: str) -> str:
        facts = self._table.facts_of(node_id)
        return home_among(facts.pools) if facts is not None else ""
