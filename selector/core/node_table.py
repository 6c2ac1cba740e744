"""All nodes as numpy columns for the kernel. Written by snapshots, corrected at once by our own commits.

A copy for selection only: Redis has the truth, and every commit checks it. Each row has the version (its cell's
counter) of its last write, so a late answer never overwrites a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from lua.store.types.nodes import NodeFacts
from mesh.frames import NodeCaps
from mesh.states.speed import Speed
from selector.core import pool_index
from selector.core.column_layout import INT32_MAX, empty_columns, write_caps, write_load
from selector.core.interner import NO_INTERNS, Interner, NodeInterners, RowInterns, bits
from selector.core.kernel import Columns, PoolIndex
from selector.core.node_speeds import NodeSpeeds, SpeedWrite, clear
from selector.core.pools import home_among

_FIRST_CAPACITY: Final = 64
#: Distinct home pools; a node in one more is in none.
_POOLS_MAX: Final = 4_096
#: Single values that are remembered for a recording; beyond it their whole rows are.
_WRITES_MAX: Final = 1_024


class Written(NamedTuple):
    """Writes since the last time: whole rows, and single values that were written before those rows were read."""

    rows: list[int]
    #: Row and slots in use, in order.
    loads: list[tuple[int, int]]
    speeds: list[SpeedWrite]


@dataclass(slots=True)
class _Record:
    """Data of a row that the kernel does not read."""

    node_id: str
    cell: int
    #: Versions of its load and of its facts: a commit updates the load alone.
    version: int
    facts_version: int
    #: None until the row is written for the first time.
    facts: NodeFacts | None
    held: RowInterns = NO_INTERNS
    #: Some of its strings were not interned: retry with its next facts.
    lacks_strings: bool = False
    #: Services whose models it reported as missing -> until when the mark holds.
    marks: dict[str, int] = field(default_factory=dict)
    #: As it is counted in its pool: pool, status, installed, ready.
    counted: tuple[int, int, int, int] | None = None
    #: Expected releases that its load has in it; none after a load from Redis.
    expected: int = 0


class NodeTable:
    """Node id <-> row, and the columns. Rows stay dense: the last row fills the place of a removed one."""

    def __init__(self, nodes_max: int, interned: Iterable[str] = ()) -> None:
        """`interned`: services and models that features of a job may need; they always have a number."""
        self.nodes_max = nodes_max
        #: Nodes refused because the table was full; each try counts.
        self.refused = 0
        self.interners = NodeInterners(interned)
        self.speeds = NodeSpeeds()
        self.pools = Interner(_POOLS_MAX, [""])  # no pool is pool 0
        self.columns = empty_columns(min(_FIRST_CAPACITY, nodes_max))
        #: Node id -> row. Only the table writes it.
        self.rows: dict[str, int] = {}
        self._records: list[_Record] = []
        #: The highest version ever applied.
        self.version = 0
        self._written: set[int] = set()
        self._loads: list[tuple[int, int]] = []
        self._learned: list[SpeedWrite] = []
        #: Nodes with a mark.
        self.marked: set[str] = set()
        #: Nodes whose slots did not match their jobs at the last audit -> how many.
        self.drifts: dict[str, int] = {}
        self._counts = pool_index.PoolCounts()
        self._index: PoolIndex | None = None
        #: Parts of the index that are outdated.
        self._groups_changed = True
        self._counts_changed = True

    def __len__(self) -> int:
        return len(self._records)

    def id_of(self, row: int) -> str:
        """The node at a row."""
        return self._records[row].node_id

    def nodes_at(self, rows: Iterable[int]) -> tuple[list[str], list[int]]:
        """The nodes at these rows, and their connections' epochs."""
        records = [self._records[row] for row in rows]
        return [one.node_id for one in records], [0 if one.facts is None else one.facts.epoch for one in records]

    def ids(self) -> list[str]:
        """All nodes, by row."""
        return [record.node_id for record in self._records]

    def facts_of(self, node_id: str) -> NodeFacts | None:
        """The latest facts of a node."""
        row = self.rows.get(node_id)
        return None if row is None else self._records[row].facts

    def used_of(self, node_id: str) -> int:
        """Slots in use as far as we know; 0 for an unknown node."""
        row = self.rows.get(node_id)
        return 0 if row is None else int(self.columns.used[row])

    def marks_of(self, node_id: str) -> dict[str, int]:
        """Services whose models a node reported as missing, and until when the marks hold."""
        row = self.rows.get(node_id)
        return {} if row is None else dict(self._records[row].marks)

    def speeds_of(self, node_id: str) -> dict[str, Speed]:
        """What is known of a node's speed, per pair."""
        row = self.rows.get(node_id)
        return {} if row is None else self.speeds.read(self.columns, row)

    def ids_in(self, cell: int) -> Iterator[str]:
        """The nodes of one cell."""
        return (record.node_id for record in self._records if record.cell == cell)

    def take_written(self) -> Written:
        """Writes since the last call, for a recording. Rows beyond the last node are left out."""
        count = len(self._records)
        rows = sorted(row for row in self._written if row < count) if self._written else []
        written = Written(rows, self._loads, self._learned)
        self._written.clear()
        self._loads, self._learned = [], []
        return written

    def _note_load(self, row: int, used: int) -> None:
        """Slots in use and speeds change with every job: noting them alone is cheaper than their whole row."""
        self._loads.append((row, used))
        if len(self._loads) + len(self._learned) > _WRITES_MAX:
            self._written.update(row for row, _ in self._loads)
            self._written.update(write.row for write in self._learned)
            self._loads, self._learned = [], []

    def words_version(self) -> int:
        """Changes whenever a string of a node gets or loses its number."""
        return self.interners.changes() + self.speeds.pairs.changes

    # --- index for the kernel --------------------------------------------------

    def index(self) -> PoolIndex:
        """The rows by home pool."""
        if self._index is None or self._groups_changed:
            groups = pool_index.grouped(self.columns, len(self._records), self.pools.size)
            self._index = pool_index.summed(*groups, self._counts)
            self._groups_changed = self._counts_changed = False
        elif self._counts_changed:
            self._index = pool_index.summed(self._index.members, self._index.starts, self._counts)
            self._counts_changed = False
        return self._index

    # --- writes by snapshots -------------------------------------------------------------------------

    def apply(self, cell: int, version: int, node_id: str, used: int, seen_ms: int, facts: NodeFacts | None) -> bool:
        """Apply a changed node; True if anything was written. used < 0: it is gone. No facts: unchanged.

        A commit may have written a newer load before these facts arrive: they are written without the load then.
        """
        row = self.rows.get(node_id)
        if row is not None and version < self._records[row].version:
            if facts is None or used < 0 or version < self._records[row].facts_version:
                return False
            self._write_facts(row, version, seen_ms, facts)
            return True
        self.version = max(self.version, version)
        if used < 0:
            return self.remove(node_id)
        if row is None:
            if facts is None:
                return False
            row = self._add(cell, node_id)
            if row is None:
                return False
        self._records[row].version, self._records[row].expected = version, 0
        self.columns.used[row] = min(used, INT32_MAX)
        self.columns.seen_ms[row] = seen_ms
        self._written.add(row)
        if facts is not None:
            self._write_facts(row, version, seen_ms, facts)
        return True

    def remove(self, node_id: str) -> bool:
        """Remove a node; True if it was known."""
        row = self.rows.pop(node_id, None)
        if row is None:
            return False
        self.interners.release(self._records[row].held)
        self._count(self._records[row], None)
        self._leave_pool(row)
        self.speeds.forget(node_id)
        self.marked.discard(node_id)
        self.drifts.pop(node_id, None)
        last = self._records.pop()
        if last.node_id != node_id:
            for column in self.columns:
                column[row] = column[len(self._records)]
            self._records[row] = last
            self.rows[last.node_id] = row
            self._written.add(row)
        self._groups_changed = True
        return True

    def forget_versions(self, cell: int) -> None:
        """The cell's counter went back (its server lost writes): accept any version of it next."""
        for record in self._records:
            if record.cell == cell:
                record.version = record.facts_version = 0

    def set_speeds(self, node_id: str, speeds: Mapping[str, Speed], clock_offset_ms: int = 0) -> bool:
        """Replace a node's speeds, per pair; `clock_offset_ms` converts the times to the caller's clock."""
        row = self.rows.get(node_id)
        if row is None:
            return False
        self.speeds.write(self.columns, row, node_id, speeds, clock_offset_ms)
        self._written.add(row)
        return True

    def learn_speeds(self, node_id: str, learned: Mapping[str, Speed], clock_offset_ms: int = 0) -> bool:
        """Speeds updated by one finished job; other pairs stay."""
        row = self.rows.get(node_id)
        if row is None:
            return False
        self._learned += self.speeds.learn(self.columns, row, node_id, learned, clock_offset_ms)
        return True

    def set_marks(self, node_id: str, marks: Mapping[str, int]) -> bool:
        """Replace a node's marks: service -> until when, on the caller's clock."""
        row = self.rows.get(node_id)
        if row is None:
            return False
        self._records[row].marks = {service.lower(): until_ms for service, until_ms in marks.items()}
        (self.marked.add if marks else self.marked.discard)(node_id)
        self._write_marks(row)
        return True

    def set_drift(self, node_id: str, drift: int) -> None:
        """Drift found by the last audit of a known node."""
        if drift > 0:
            self.drifts[node_id] = drift
        else:
            self.drifts.pop(node_id, None)

    def drift(self) -> int:
        """Drift found by the last audits of all nodes."""
        return sum(self.drifts.values())

    def expire_marks(self, now_ms: int) -> int:
        """Remove expired marks; returns how many."""
        expired = 0
        for node_id in list(self.marked):
            marks = self._records[self.rows[node_id]].marks
            left = {service: until_ms for service, until_ms in marks.items() if until_ms > now_ms}
            if len(left) < len(marks):
                expired += len(marks) - len(left)
                self.set_marks(node_id, left)
        return expired

    # --- writes by our own commits -------------------------------------------------------------------

    def patch(self, node_id: str, used: int, version: int) -> bool:
        """Apply a node's load from a script's answer; True unless it is outdated."""
        row = self.rows.get(node_id)
        if row is None or used < 0 or version < self._records[row].version:
            return False
        self._records[row].version, self._records[row].expected = version, 0
        if version > self.version:
            self.version = version
        used = min(used, INT32_MAX)
        self.columns.used[row] = used
        self._note_load(row, used)
        return True

    def expect_release(self, node_id: str) -> bool:
        """Count one slot less until the script's answer about the release; False if there is none to release."""
        row = self.rows.get(node_id)
        used = 0 if row is None else int(self.columns.used[row])
        if row is None or used < 1:
            return False
        self.columns.used[row] = used - 1
        self._records[row].expected += 1
        self._note_load(row, used - 1)
        return True

    def undo_release(self, node_id: str) -> None:
        """An expected release did not happen, or is unknown: count the slot as in use until the next snapshot."""
        row = self.rows.get(node_id)
        if row is not None and self._records[row].expected:
            self._records[row].expected -= 1
            used = int(self.columns.used[row]) + 1
            self.columns.used[row] = used
            self._note_load(row, used)

    def saturate(self, node_id: str) -> None:
        """A commit found no free slot: count the node as full until the next snapshot."""
        row = self.rows.get(node_id)
        if row is not None:
            self.columns.used[row] = max(self.columns.used[row], self.columns.max_jobs[row])
            self._written.add(row)

    def avoid_edge(self, edge: str, until_ms: int) -> int:
        """Frames to this edge bounce: its nodes get no jobs until then; returns their number."""
        hit = 0
        for row, record in enumerate(self._records):
            if record.facts is not None and record.facts.edge == edge:
                self.columns.unreachable_until_ms[row] = until_ms
                self._written.add(row)
                hit += 1
        return hit

    def is_avoided(self, node_id: str, at_ms: int) -> bool:
        """True if its edge is avoided at that time already; `avoid_edge` scans all nodes."""
        row = self.rows.get(node_id)
        return row is not None and bool(self.columns.unreachable_until_ms[row] > at_ms)

    # --- inside -------------------------------------------------------------------------------------

    def _add(self, cell: int, node_id: str) -> int | None:
        row = len(self._records)
        if row >= self.nodes_max:
            self.refused += 1
            return None
        if row >= len(self.columns.seen_ms):
            self._grow()
        self.rows[node_id] = row
        self._records.append(_Record(node_id, cell, 0, 0, None))
        for column in self.columns:
            column[row] = 0
        clear(self.columns, row)
        self._groups_changed = True
        return row

    def _grow(self) -> None:
        old = self.columns
        capacity = len(old.seen_ms)
        self.columns = empty_columns(min(2 * capacity, self.nodes_max))
        for name in Columns._fields:
            getattr(self.columns, name)[:capacity] = getattr(old, name)

    def _write_facts(self, row: int, version: int, seen_ms: int, facts: NodeFacts) -> None:
        record, columns = self._records[row], self.columns
        before, record.facts, record.facts_version = record.facts, facts, version
        columns.seen_ms[row] = seen_ms
        self._written.add(row)
        if before is None or (before.edge, before.epoch) != (facts.edge, facts.epoch):
            columns.unreachable_until_ms[row] = 0  # it reconnected, perhaps elsewhere
        if before is None or before.caps != facts.caps or record.lacks_strings:
            self._write_caps(row, facts.caps)
        if before is None or before.pools != facts.pools:
            self._enter_pool(row, home_among(facts.pools))
        write_load(columns, row, facts.status, facts.load, facts.detached_ms)
        self._count(
            record,
            (int(columns.pool[row]), int(columns.status[row]), int(columns.installed[row]), int(columns.ready[row])),
        )

    def _write_caps(self, row: int, caps: NodeCaps) -> None:
        record = self._records[row]
        # Release the old strings first, so that a full interner has room for the new ones.
        self.interners.release(record.held)
        refused = self.interners.refused
        record.held = self.interners.hold(caps)
        record.lacks_strings = self.interners.refused > refused
        write_caps(self.columns, row, caps, record.held, self.interners.models(caps))
        self._write_marks(row)

    def _write_marks(self, row: int) -> None:
        """Marks of installed services only: other numbers may be reused for other strings."""
        found = (self.interners.services.find(service) for service in self._records[row].marks)
        marked = bits((number for number in found if number >= 0), 1)[0]
        self.columns.marked[row] = marked & self.columns.installed[row]
        self._written.add(row)

    def _enter_pool(self, row: int, pool: str) -> None:
        self._leave_pool(row)
        number = self.pools.hold(pool) if pool else 0
        self.columns.pool[row] = max(number, 0)
        self._groups_changed = True

    def _leave_pool(self, row: int) -> None:
        if self.columns.pool[row]:
            self.pools.release([int(self.columns.pool[row])])

    def _count(self, record: _Record, counted: tuple[int, int, int, int] | None) -> None:
        if record.counted == counted:
            return
        if record.counted is not None:
            self._counts.add(*record.counted, -1)
        if counted is not None:
            self._counts.add(*counted, 1)
        record.counted = counted
        self._counts_changed = True

    def check(self) -> None:
        """Assert that ids, rows, records and index agree; tests call it after each step."""
        assert len(self._records) == len(self.rows)
        assert all(self._records[row].node_id == node_id for node_id, row in self.rows.items())
        assert len(self._records) <= len(self.columns.seen_ms) <= self.nodes_max
        held = {number for record in self._records for numbers in record.held[5:8] for number in numbers}
        assert len(held) == len(self.interners.languages), "every language is held by a node"
        assert not self.columns.charged.any(), "charges are undone after each batch"
        ours, anew = self.index(), pool_index.index_of(self.columns, len(self._records), self.pools.size)
        for name in PoolIndex._fields:
            assert np.array_equal(getattr(ours, name), getattr(anew, name)), f"{name} of the index is up to date"
