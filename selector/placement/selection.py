"""Selection: runs the kernel for placements, notes their candidates, and records the choice for operators."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from mesh import clock
from selector.context import SelectorContext
from selector.core.job_rows import JobRowBuilder
from selector.core.kernel import NO_ROW, Choice, Floats, JobRows, Rules, choose
from selector.operators.decision_log import DecisionLog
from selector.placement.placement import Placement
from selector.placement.weights import CurrentWeights

#: Approximate cost of another round: a candidate that is worse by more is accepted only in the last one.
ROUND_MS: Final = 10


class Selected(NamedTuple):
    """The kernel's input and output of one call."""

    rows: JobRows
    prior: Floats
    rules: Rules
    choice: Choice


class Selection:
    """Chooses candidates for batches of placements from the node table."""

    def __init__(self, context: SelectorContext, weights: CurrentWeights, decisions: DecisionLog) -> None:
        self._table = context.table
        self._metrics = context.metrics
        self._candidates_max = context.config.selector.candidates
        self._rows = JobRowBuilder(context.table, context.plan)
        self._weights = weights
        self._decisions = decisions

    def choose(self, placements: list[Placement]) -> Selected:
        """Set the candidates of each placement, and what removed the other nodes."""
        table, started_us = self._table, clock.wall_us()
        rejected = {one.dispatch.request_id: one.rejected for one in placements if one.rejected}
        rows = self._rows.rows([placement.dispatch for placement in placements], rejected)
        rules, prior = self._weights.rules._replace(now_ms=clock.now_ms()), table.speeds.prior()
        choice = choose(table.columns, table.index(), rows, prior, rules, self._candidates_max)
        columns = (choice.rows, choice.scores, choice.expected, choice.late_ms, choice.removed, rows.jobs["barred"])
        found = zip(placements, *(column.tolist() for column in columns), strict=True)
        for placement, best, scores, expected, late_ms, removed, is_barred in found:
            count = best.index(NO_ROW) if NO_ROW in best else len(best)  # the best are first
            placement.candidates, placement.epochs = table.nodes_at(best[:count])
            placement.expected, placement.late_ms = expected[:count], late_ms[:count]
            placement.equals = bisect_right(scores, scores[0] + ROUND_MS, 0, count)
            placement.removed, placement.is_barred = removed, bool(is_barred)
            placement.rejected_counted = sum(node_id in table.rows for node_id in placement.rejected)
        selected_us = clock.wall_us()
        for placement in placements:
            placement.selected_us, placement.select_us = selected_us, selected_us - started_us
        self._metrics.decision_seconds.observe((selected_us - started_us) / 1e6)
        return Selected(rows, prior, rules, choice)

    def record(self, placements: list[Placement], selected: Selected) -> None:
        """Record the choice; must precede any other write into the table."""
        weights = self._weights
        self._decisions.note(placements, self._table, *selected, weights.weights, weights.version)
