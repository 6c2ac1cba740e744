"""Lets time pass for one node: shifts all its times in Redis into the past."""

from __future__ import annotations

from mesh.cells import cell_of
from mesh.keys import Keys
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS

TIMES = ("last_seen_ms", "registered_ms", "detached_ms", "drain_until_ms")


def pass_time(raw: RedisClient, keys: Keys, node_id: str, ms: int) -> None:
    cell = cell_of(node_id, CELLS)
    record = keys.node(cell, node_id)
    for name in TIMES:
        if int(raw.hget(record, name) or 0):
            raw.hincrby(record, name, -ms)
    for index in (keys.due(cell), keys.nodes(cell)):
        if raw.zscore(index, node_id) is not None:
            raw.zincrby(index, -ms, node_id)
    leases = keys.leases(cell, node_id)
    for member in raw.zrange(leases, 0, -1):
        raw.zincrby(leases, -ms, member)
