from __future__ import annotations

import random

import numpy as np
import pytest

from selector.core.column_layout import empty_columns
from selector.core.kernel import DRAINING_STATUS, READY_STATUS, STATUSES, Columns
from selector.core.pool_index import PoolCounts, counts_of, grouped, index_of, summed

ASR, NMT, TTS = 1, 2, 4
#: The highest bit of a word: a signed shift would lose it.
LAST = 1 << 63


def columns_of(*nodes: tuple[int, int, int, int]) -> Columns:
    """Pool, status, installed and ready services of each node."""
    columns = empty_columns(len(nodes))
    for row, (pool, status, installed, ready) in enumerate(nodes):
        columns.pool[row], columns.status[row] = pool, status
        columns.installed[row], columns.ready[row] = installed, ready
    return columns


def test_rows_are_grouped_by_pool_and_ordered_in_each() -> None:
    columns = columns_of(*((pool, READY_STATUS, 0, 0) for pool in (2, 0, 2, 3, 0)))
    index = index_of(columns, 5)
    members = [index.members[start:end].tolist() for start, end in zip(index.starts, index.starts[1:], strict=False)]
    assert members == [[1, 4], [], [0, 2], [3]]


def test_rows_beyond_the_count_belong_to_no_pool() -> None:
    columns = columns_of((1, READY_STATUS, ASR, ASR), (0, READY_STATUS, TTS, TTS))
    index = index_of(columns, 1, pools=3)
    assert (index.members.tolist(), index.starts.tolist()) == ([0], [0, 0, 1, 1])
    assert index.installed.tolist() == index.ready.tolist() == [0, ASR, 0]


def test_pool_has_the_services_of_all_its_nodes_and_ready_ones_of_its_ready_nodes() -> None:
    columns = columns_of(
        (0, READY_STATUS, ASR | NMT, ASR), (0, DRAINING_STATUS, TTS, TTS), (1, READY_STATUS, LAST, LAST)
    )
    index = index_of(columns, 3)
    assert index.installed.tolist() == [ASR | NMT | TTS, LAST]
    assert index.ready.tolist() == [ASR, LAST]
    assert index.by_status[:, [READY_STATUS, DRAINING_STATUS]].tolist() == [[1, 1], [1, 0]]


def test_service_is_lost_with_its_last_node_only() -> None:
    counts = PoolCounts(pools=1)
    columns = columns_of()
    for _ in range(2):
        counts.add(0, READY_STATUS, ASR, ASR, 1)
    installed = []
    for _ in range(2):
        counts.add(0, READY_STATUS, ASR, ASR, -1)
        installed.append(summed(*grouped(columns, 0, 1), counts).installed.tolist())
    assert installed == [[ASR], [0]]


@pytest.mark.parametrize("seed", range(5))
def test_counts_kept_step_by_step_are_those_counted_anew(seed: int) -> None:
    draw = random.Random(seed)
    counts = PoolCounts()
    nodes: list[tuple[int, int, int, int]] = []
    for _ in range(60):
        if nodes and draw.random() < 0.4:
            counts.add(*nodes.pop(draw.randrange(len(nodes))), -1)
        else:
            node = (draw.randrange(6), draw.randrange(STATUSES), draw.getrandbits(64), draw.getrandbits(64))
            nodes.append(node)
            counts.add(*node, 1)
    anew = counts_of(columns_of(*nodes), len(nodes), pools=6)
    for name in ("by_status", "installed", "ready"):
        kept = getattr(counts, name)
        np.testing.assert_array_equal(kept[:6], getattr(anew, name)[: len(kept)], name)
        assert not kept[6:].any()
