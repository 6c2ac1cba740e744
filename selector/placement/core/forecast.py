"""What a job without a node may expect: who came closest, how long it would take, when a slot comes free.

Pure: from what the kernel says of every node for that job.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from selector.core.filters import Filter, nearest
from selector.core.kernel import LEAST_CONNECTIONS, Examined, Rules
from selector.core.node_table import NodeTable
from selector.placement.core.wait_order import release_forecast_ms


class Forecast(NamedTuple):
    """The prospects of one job, and of others with the same needs."""

    nearest_node: str = ""
    nearest: str = ""
    #: The soonest result, if the best of the nodes that lack only a slot had one now; 0: nothing is known.
    predicted_ms: int = 0
    #: How long such nodes work on a job like this, and how many jobs they have.
    service_ms: float = 0.0
    slots_in_use: int = 0

    def retry_after_ms(self, ahead: int, least_ms: int, most_ms: int) -> int:
        """When a slot may be free for one behind `ahead` others."""
        return release_forecast_ms(self.service_ms, self.slots_in_use, ahead, least_ms, most_ms)


NOTHING_KNOWN: Final = Forecast()


def forecast_of(examined: Examined, table: NodeTable, rules: Rules) -> Forecast:
    """The prospects of the job that was examined."""
    node_id, words = nearest(examined, table)
    lacking = np.flatnonzero(examined.obstacle == Filter.SLOT)
    # Another strategy does not count in milliseconds, so it foretells nothing.
    if not len(lacking) or rules.strategy == LEAST_CONNECTIONS:
        return Forecast(node_id, words)
    scores = np.maximum(examined.scores[lacking], 0)
    used = int(table.columns.used[lacking].sum())
    return Forecast(node_id, words, int(scores.min()), float(scores.mean()), used)
