"""Hard filters: why a node may not take a job. The kernel counts each by number; refusals name it.

The order is the order in which a node is tested, and a node is counted under the first filter that stops it.
The first group does not depend on the job, so the kernel tests it once per batch. SLOT comes last: a node that
only lacks a free slot is the nearest miss there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final


class Filter(IntEnum):
    """Every hard filter, in testing order."""

    # the node alone
    OFFLINE = 0  # no heartbeat for heartbeat_timeout_ms
    STATUS = 1  # not `ready`
    UNREACHABLE = 2  # frames to its edge bounced a moment ago
    GPU = 3
    RESOURCES = 4  # cpu, gpu or memory above the threshold
    # the node for this job
    PUBLIC = 5
    TENANT = 6
    INSTALLED = 7
    READY = 8
    LANGUAGE = 9
    EXCLUDED = 10
    SLOT = 11


#: Wire names: where the original system had a name for it, that one.
REASON: Final[dict[Filter, str]] = {
    Filter.OFFLINE: "offline",
    Filter.STATUS: "status_not_ready",
    Filter.UNREACHABLE: "edge_unreachable",
    Filter.GPU: "gpu_unavailable",
    Filter.RESOURCES: "resource_threshold_exceeded",
    Filter.PUBLIC: "not_in_public_pool",
    Filter.TENANT: "tenant_mismatch",
    Filter.INSTALLED: "service_not_installed",
    Filter.READY: "service_not_ready",
    Filter.LANGUAGE: "lang_pair_unsupported",
    Filter.EXCLUDED: "excluded",
    Filter.SLOT: "capacity_exceeded",
}
NO_NODES: Final = "no_nodes"

#: These need another node or other software; the others pass by themselves.
LASTING: Final = frozenset({Filter.GPU, Filter.PUBLIC, Filter.TENANT, Filter.INSTALLED, Filter.LANGUAGE})


def removed_by_name(counts: Sequence[int]) -> dict[str, int]:
    """Wire name -> nodes removed, without the zeros."""
    return {REASON[Filter(place)]: int(count) for place, count in enumerate(counts) if count}


def is_hopeless(counts: Sequence[int]) -> bool:
    """True if there are nodes and waiting helps with none of them. Without any nodes, one may come."""
    removed_by = {Filter(place) for place, count in enumerate(counts) if count}
    return bool(removed_by) and removed_by <= LASTING


def main_filter(counts: Sequence[int]) -> Filter | None:
    """The filter that removed most nodes; of equals the last tested, its nodes came closest. None: no nodes."""
    best: Filter | None = None
    most = 0
    for place, count in enumerate(counts):
        if count and count >= most:
            best, most = Filter(place), int(count)
    return best


assert set(REASON) == set(Filter), "every filter needs a wire name"
