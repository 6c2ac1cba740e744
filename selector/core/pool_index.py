"""The nodes of each home pool, and the union of their services; a pure function of the columns.

Rows are regrouped only when a node is added, removed or changes its pool. The services of a pool are counted up and
down with every written row, so that neither needs a scan of the fleet during work.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from selector.core.kernel import READY_STATUS, SERVICES_MAX, STATUSES, Columns, PoolIndex

_BITS: Final = np.arange(SERVICES_MAX, dtype=np.uint64)


def _counted(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """[..., bit]: 1 where a word has the bit."""
    spread: npt.NDArray[np.int32] = (words[..., None] >> _BITS & np.uint64(1)).astype(np.int32)
    return spread


def _joined(counts: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """Per pool the bitset of all bits that are counted at least once."""
    joined: npt.NDArray[np.uint64] = np.bitwise_or.reduce(
        np.where(counts > 0, np.uint64(1) << _BITS, np.uint64(0)), axis=1
    )
    return joined


class PoolCounts:
    """Members of each pool, counted by status and service."""

    def __init__(self, pools: int = 1) -> None:
        self.by_status = np.zeros((pools, STATUSES), dtype=np.int32)
        #: [pool, service]: members that have it installed; ready ones that have it ready.
        self.installed = np.zeros((pools, SERVICES_MAX), dtype=np.int32)
        self.ready = np.zeros((pools, SERVICES_MAX), dtype=np.int32)

    def add(self, pool: int, status: int, installed: int, ready: int, sign: int) -> None:
        """Count a node in (`sign` 1) or out (-1)."""
        while pool >= len(self.by_status):
            self._grow()
        self.by_status[pool, status] += sign
        self.installed[pool] += sign * _counted(np.array(installed, dtype=np.uint64))
        if status == READY_STATUS:
            self.ready[pool] += sign * _counted(np.array(ready, dtype=np.uint64))

    def _grow(self) -> None:
        for name in ("by_status", "installed", "ready"):
            counts = getattr(self, name)
            setattr(self, name, np.concatenate([counts, np.zeros_like(counts)]))


def grouped(columns: Columns, count: int, pools: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """`members` and `starts` of the first `count` rows."""
    home = columns.pool[:count]
    # A stable sort of 16-bit numbers takes time in proportion to their count.
    members = np.argsort(home.astype(np.uint16), kind="stable").astype(np.int32)
    starts = np.zeros(pools + 1, dtype=np.int32)
    np.cumsum(np.bincount(home, minlength=pools), out=starts[1:])
    return members, starts


def summed(members: npt.NDArray[np.int32], starts: npt.NDArray[np.int32], counts: PoolCounts) -> PoolIndex:
    """The index from its two parts."""
    pools = len(starts) - 1
    return PoolIndex(
        members,
        starts,
        _joined(counts.installed[:pools]),
        _joined(counts.ready[:pools]),
        np.ascontiguousarray(counts.by_status[:pools]),
    )


def counts_of(columns: Columns, count: int, pools: int) -> PoolCounts:
    """What the first `count` rows have, counted anew."""
    counts = PoolCounts(pools)
    home, status = columns.pool[:count], columns.status[:count]
    np.add.at(counts.by_status, (home, status), 1)
    np.add.at(counts.installed, home, _counted(columns.installed[:count]))
    is_ready = status == READY_STATUS
    np.add.at(counts.ready, home[is_ready], _counted(columns.ready[:count][is_ready]))
    return counts


def index_of(columns: Columns, count: int, pools: int = 0) -> PoolIndex:
    """The index of the first `count` rows, from nothing else: for recordings and checks."""
    pools = pools or int(columns.pool[:count].max(initial=0)) + 1
    return summed(*grouped(columns, count, pools), counts_of(columns, count, pools))
