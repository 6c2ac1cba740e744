"""Hard filters: the reasons why a node may not take a job. The kernel counts them by number; refusals name them.

The order is the testing order, and a node is counted under the first filter that removes it. POOL comes first: whole
pools are skipped without reading their nodes. Then EXCLUDED: nothing else about such a node matters. SLOT comes last: a
node that only lacks a free slot is the nearest possible miss. How to add a filter: docs/changing.md, recipe 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from mesh.words import FilterName

if TYPE_CHECKING:
    from selector.core.kernel import Examined
    from selector.core.node_table import NodeTable


class Filter(IntEnum):
    """Every hard filter, in testing order."""

    POOL = 0  # not in a pool that the job may use
    EXCLUDED = 1  # by the job itself: it failed there before
    # the node alone
    OFFLINE = 2  # no heartbeat for heartbeat_timeout_ms, or detached for longer than the reconnect grace
    STATUS = 3  # registering or degraded
    DRAINING = 4
    UNREACHABLE = 5  # frames to its edge bounced a moment ago
    GPU = 6
    RESOURCES = 7  # cpu, gpu or memory above the threshold
    # the node for this job
    PUBLIC = 8
    TENANT = 9
    INSTALLED = 10  # a service, or a model that a feature needs
    READY = 11
    MODEL = 12  # it reported the model of a service as missing within models.unavailable_ms
    ASR = 13
    AUTO = 14  # the same for a job whose spoken language is unknown
    PAIR = 15
    TTS = 16
    SLOT = 17


#: Wire names.
REASON: Final[dict[Filter, FilterName]] = {one: FilterName[one.name] for one in Filter}

#: Predicate about a node for the nearest miss of a refusal.
_TEXTS: Final[dict[Filter, str]] = {
    Filter.POOL: "is not in a pool that this job may use",
    Filter.EXCLUDED: "failed this job before, or was left out by name",
    Filter.OFFLINE: "is silent or has gone away",
    Filter.STATUS: "is not ready",
    Filter.DRAINING: "is being drained",
    Filter.UNREACHABLE: "hangs on an edge that cannot be reached at the moment",
    Filter.GPU: "has no GPU",
    Filter.RESOURCES: "has its cpu, gpu or memory above the threshold",
    Filter.PUBLIC: "takes no public jobs",
    Filter.TENANT: "takes jobs of its own tenant only",
    Filter.INSTALLED: "has not installed a service or model that the job needs",
    Filter.READY: "has a service that is not ready yet",
    Filter.MODEL: "said a moment ago that it lacks a model for this",
    Filter.ASR: "does not understand the spoken language",
    Filter.AUTO: "does not understand every language that may be spoken",
    Filter.PAIR: "does not translate between these languages",
    Filter.TTS: "does not speak the target language",
    Filter.SLOT: "has no free slot",
}

#: Waiting does not help: these need another node or other software. POOL is not among them: the next node that
#: registers may be in the right pool. A job that no pool will ever take is `barred` in its row.
LASTING: Final = frozenset(
    (Filter.GPU, Filter.PUBLIC, Filter.TENANT, Filter.INSTALLED, Filter.ASR, Filter.AUTO, Filter.PAIR, Filter.TTS)
)
# Plain integers, because sets of enum members cost more than all that is done with them.
_LASTING_PLACES: Final = tuple(sorted(int(one) for one in LASTING))
#: Places of the filters of nodes that a job may use later.
PASSING: Final = tuple(int(one) for one in Filter if one not in LASTING and one is not Filter.POOL)


def removed_by_name(counts: Sequence[int]) -> dict[str, int]:
    """Wire name -> nodes removed, without the zeros."""
    return {REASON[Filter(place)]: int(count) for place, count in enumerate(counts) if count}


def is_hopeless(counts: Sequence[int]) -> bool:
    """True if there are nodes that the job may use and all of them are removed by lasting filters.

    Nodes of other pools do not count: without any node in its own pools, one may come.
    """
    return not any(counts[place] for place in PASSING) and any(counts[place] for place in _LASTING_PLACES)


def main_filter(counts: Sequence[int]) -> Filter | None:
    """The filter that removed most nodes; of equal ones the last tested, the nearest miss. None: no nodes."""
    best: Filter | None = None
    most = 0
    for place, count in enumerate(counts):
        if count and count >= most:
            best, most = Filter(place), int(count)
    return best


def nearest(examined: Examined, table: NodeTable) -> tuple[str, str]:
    """The nearest miss: node id and the reason as text; two empty strings if there is none.

    Nearest: removed by the latest filter in testing order; among equal ones the lowest score.
    """
    stopped = np.flatnonzero(examined.obstacle >= 0)
    if not len(stopped):
        return "", ""
    row = int(stopped[np.lexsort((stopped, examined.scores[stopped], -examined.obstacle[stopped]))[0]])
    return table.id_of(row), _text_of(Filter(int(examined.obstacle[row])), row, table)


def _text_of(obstacle: Filter, row: int, table: NodeTable) -> str:
    text = _TEXTS[obstacle]
    if obstacle == Filter.STATUS:
        facts = table.facts_of(table.id_of(row))
        return f"{text}: {facts.status}" if facts is not None else text
    if obstacle == Filter.RESOURCES:
        return f"{text}: {table.columns.load_percent[row]:.0f} %"
    if obstacle == Filter.SLOT:
        return f"{text}: all {table.columns.max_jobs[row]} are in use"
    return text


assert set(_TEXTS) == set(Filter), "every filter needs a text"
assert [one.name for one in Filter] == [name.name for name in FilterName], "every wire name needs a filter"
