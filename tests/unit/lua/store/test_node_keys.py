from __future__ import annotations

import pytest

from lua.store.node_keys import NodeKeys
from mesh.cells import cell_of
from mesh.keys import Keys

CELLS = 16
NODE = "node-1"
CELL = cell_of(NODE, CELLS)


@pytest.fixture
def node_keys() -> NodeKeys:
    return NodeKeys(Keys("p"), CELLS)


def test_keys_of_a_node_are_in_its_cell_and_cached(node_keys: NodeKeys) -> None:
    cell, names = node_keys.of(NODE)
    keys = Keys("p")
    assert cell == CELL
    assert names == [keys.node(CELL, NODE), keys.leases(CELL, NODE), keys.ledger(CELL), keys.changes(CELL)]
    assert node_keys.of(NODE)[1] is names


def test_keys_for_a_job_of_another_cell_are_in_that_cell(node_keys: NodeKeys) -> None:
    """All keys of a call must be in one hash slot, also if a node reports a job that cannot be its own."""
    other = (CELL + 1) % CELLS
    assert node_keys.in_cell(CELL, NODE) is node_keys.of(NODE)[1]
    assert all(f"{{c{other:02d}}}" in name for name in node_keys.in_cell(other, NODE))


def test_pools_that_stay_are_neither_joined_twice_nor_left(node_keys: NodeKeys) -> None:
    keys = Keys("p")
    names, args = node_keys.with_pools(NODE, ["b", "a", "b"], "b,c")
    assert args == {"pools_before": "b,c", "pools": "a,b", "joins": [{}, {}], "leaves": [{}]}
    assert names[-3:] == [keys.pool(CELL, "a"), keys.pool(CELL, "b"), keys.pool(CELL, "c")]


def test_node_that_leaves_the_lists_leaves_every_pool(node_keys: NodeKeys) -> None:
    keys = Keys("p")
    names, args = node_keys.with_pools(NODE, None, "a,b")
    assert args == {"pools_before": "a,b", "leaves": [{}, {}]}
    assert names[-4:] == [keys.speeds(CELL), keys.marks(CELL), keys.pool(CELL, "a"), keys.pool(CELL, "b")]


def test_pool_name_that_is_no_id_is_a_bug(node_keys: NodeKeys) -> None:
    with pytest.raises(AssertionError, match="pool names are ids"):
        node_keys.with_pools(NODE, ["a,b"], "")


def test_every_cell_has_snapshot_keys(node_keys: NodeKeys) -> None:
    assert len({tuple(names) for names in node_keys.snapshot}) == CELLS
    for cell, names in enumerate(node_keys.snapshot):
        assert all(f"{{c{cell:02d}}}" in name for name in names)
