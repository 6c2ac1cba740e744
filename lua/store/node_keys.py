"""Names of the Redis keys of nodes, in the order of the scripts' headers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from mesh.cells import cell_of
from mesh.ids import is_id
from mesh.keys import Keys

#: Nodes whose key names are cached: formatting them is most of the work of a call.
NODES_CACHED: Final = 65_536


class NodeKeys:
    """Keys of nodes by node id; those of the hot path are cached."""

    def __init__(self, keys: Keys, cells: int) -> None:
        self._keys = keys
        self._cells = cells
        #: Cell of a node, and its keys: node, leases, ledger, changes.
        self.of = lru_cache(NODES_CACHED)(self._make)
        #: Per cell: the keys that a snapshot reads.
        self.snapshot = [self._make_snapshot(cell) for cell in range(cells)]
        #: Per cell: the key of its nodes' speeds.
        self.speeds = [keys.speeds(cell) for cell in range(cells)]

    def in_cell(self, cell: int, node_id: str) -> list[str]:
        """Keys of the node in the cell of a job. A node of another cell has no keys there; the script finds none."""
        own_cell, names = self.of(node_id)
        return names if own_cell == cell else self._ledger_keys(cell, node_id)

    def state(self, node_id: str) -> list[str]:
        """Keys of the scripts that change a node's state, but not its pools."""
        keys, cell = self._keys, cell_of(node_id, self._cells)
        return [keys.node(cell, node_id), keys.due(cell), keys.ledger(cell), keys.changes(cell), keys.view(cell)]

    def with_pools(
        self, node_id: str, pools: Sequence[str] | None, pools_before: str
    ) -> tuple[list[str], dict[str, Any]]:
        """Keys, and arguments about pools, of the scripts that move a node from `pools_before` to `pools`.

        `pools` None: the node leaves all pools and lists.
        """
        keys, cell = self._keys, cell_of(node_id, self._cells)
        joined = sorted(set(pools or ()))
        assert all(is_id(pool) for pool in joined), f"pool names are ids: {joined}"
        left = sorted(set(pools_before.split(",") if pools_before else ()) - set(joined))
        lists = [keys.nodes(cell), keys.due(cell), keys.ledger(cell), keys.changes(cell), keys.view(cell)]
        args: dict[str, Any] = {"pools_before": pools_before, "leaves": [{}] * len(left)}
        if pools is None:
            names = [keys.node(cell, node_id), *lists, keys.speeds(cell), keys.marks(cell)]
        else:
            names = [keys.node(cell, node_id), keys.leases(cell, node_id), *lists]
            names += [keys.pool(cell, pool) for pool in joined]
            args |= {"pools": ",".join(joined), "joins": [{}] * len(joined)}
        return names + [keys.pool(cell, pool) for pool in left], args

    def _make(self, node_id: str) -> tuple[int, list[str]]:
        cell = cell_of(node_id, self._cells)
        return cell, self._ledger_keys(cell, node_id)

    def _ledger_keys(self, cell: int, node_id: str) -> list[str]:
        keys = self._keys
        return [keys.node(cell, node_id), keys.leases(cell, node_id), keys.ledger(cell), keys.changes(cell)]

    def _make_snapshot(self, cell: int) -> list[str]:
        keys = self._keys
        lists = [keys.nodes(cell), keys.ledger(cell), keys.changes(cell)]
        return [*lists, keys.view(cell), keys.speeds(cell), keys.marks(cell)]
