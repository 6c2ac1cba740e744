"""Forecast for a job without a node: the nearest miss, the predicted time of a result, the time of the next free slot.

Pure: computed from the kernel's verdict on every node for that job.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from selector.core.filters import Filter, nearest
from selector.core.kernel import LEAST_CONNECTIONS, Examined, Rules
from selector.core.node_table import NodeTable


class Forecast(NamedTuple):
    """The forecast for one job, and for others with the same needs."""

    nearest_node: str = ""
    nearest: str = ""
    #: Time until the result if the best node that lacks only a slot had one now; 0: unknown.
    predicted_ms: int = 0
    #: Mean time of such nodes for a job like this, and the number of their slots in use.
    service_ms: float = 0.0
    slots_in_use: int = 0

    def retry_after_ms(self, ahead: int, least_ms: int, most_ms: int) -> int:
        """When a slot may be free for a job behind `ahead` others."""
        return release_forecast_ms(self.service_ms, self.slots_in_use, ahead, least_ms, most_ms)


UNKNOWN_FORECAST: Final = Forecast()


def forecast_of(examined: Examined, table: NodeTable, rules: Rules) -> Forecast:
    """The forecast for the job that was examined."""
    node_id, text = nearest(examined, table)
    lacking = np.flatnonzero(examined.obstacle == Filter.SLOT)
    # Scores of the other strategy are no milliseconds, so they predict no time.
    if not len(lacking) or rules.strategy == LEAST_CONNECTIONS:
        return Forecast(node_id, text)
    scores = np.maximum(examined.scores[lacking], 0)
    used = int(table.columns.used[lacking].sum())
    return Forecast(node_id, text, int(scores.min()), float(scores.mean()), used)


def release_forecast_ms(service_ms: float, slots_in_use: int, ahead: int, least_ms: int, most_ms: int) -> int:
    """When a slot may come free for the job behind `ahead` others.

    Assumes that the slots, each in use for `service_ms` on average, are released at an even pace.
    """
    if slots_in_use < 1:
        return least_ms
    return max(least_ms, min(most_ms, round(service_ms * (ahead + 1) / slots_in_use)))
