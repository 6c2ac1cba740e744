"""All nodes as numpy columns: what the kernel reads. Fed by snapshots, corrected at once by our own commits.

A copy for choosing only; what is true is in Redis, and every commit asks there. Each row knows the version
(its cell's counter) that it was last written at, so an old answer that arrives late never undoes a newer one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from mesh.frames import NodeCaps, NodeLoad
from selector.core.kernel import LANGUAGE_PLANES, NO_ROW, READY_STATUS, SERVICES_MAX, Columns
from selector.core.vocabulary import UNKNOWN, WORD_BITS, Vocabulary, bits

_INT32_MAX: Final = 2**31 - 1
_FIRST_CAPACITY: Final = 64
#: Distinct tenants that nodes may name.
_TENANTS_MAX: Final = 65_536
#: The services that jobs ask for. They always have a number, whatever else nodes say they can do.
_SERVICES: Final = ("asr", "nmt", "tts", "tone", "semantic", "phonetic", "punctuation")
_PLANED: Final = ("asr", "semantic", "tts")
_TYPES: Final[dict[str, type[np.generic]]] = {
    "seen_ms": np.int64, "unreachable_until_ms": np.int64, "status": np.uint8, "gpus": np.int32,
    "load_percent": np.float64, "accept_public": np.uint8, "tenant": np.int32, "installed": np.uint64,
    "ready": np.uint64, "asr": np.uint64, "semantic": np.uint64, "tts": np.uint64, "tts_named": np.uint8,
    "used": np.int32, "running": np.int32, "max_jobs": np.int32,
}  # fmt: skip


class NodeFacts(NamedTuple):
    """What a view in Redis says of a node."""

    edge: str
    epoch: int
    status: str
    caps: NodeCaps
    load: NodeLoad


def _empty_columns(capacity: int) -> Columns:
    return Columns(
        **{
            name: np.zeros((LANGUAGE_PLANES, capacity) if name in _PLANED else capacity, dtype=kind)
            for name, kind in _TYPES.items()
        }
    )


def _small(number: int) -> int:
    """A peer's number, clipped to what a column holds."""
    return max(0, min(int(number), _INT32_MAX))


def _percent(number: float) -> float:
    """A peer's percentage; what is no number counts as not said."""
    return float(number) if math.isfinite(number) else 0.0


class _Words(NamedTuple):
    """Numbers that a row holds in the vocabularies. Words that did not fit are missing."""

    tenants: tuple[int, ...] = ()
    installed: tuple[int, ...] = ()
    ready: tuple[int, ...] = ()
    asr: tuple[int, ...] = ()
    semantic: tuple[int, ...] = ()
    tts: tuple[int, ...] = ()


_NO_WORDS: Final = _Words()


@dataclass(slots=True)
class _Record:
    """What the kernel does not need of a row."""

    node_id: str
    cell: int
    version: int
    #: None until the row is written for the first time.
    facts: NodeFacts | None
    words: _Words = _NO_WORDS
    #: Some of its words did not fit: try again with what it says next.
    lacks_words: bool = False


class NodeTable:
    """Node id <-> row, and the columns. Rows stay dense: the last row fills the place of a removed one."""

    def __init__(self, nodes_max: int) -> None:
        self.nodes_max = nodes_max
        #: Nodes turned away because the table was full; each try counts.
        self.refused = 0
        self.languages = Vocabulary(LANGUAGE_PLANES * WORD_BITS)
        self.services = Vocabulary(SERVICES_MAX, _SERVICES)
        self.tenants = Vocabulary(_TENANTS_MAX, [""])  # no tenant is tenant 0
        self.columns = _empty_columns(min(_FIRST_CAPACITY, nodes_max))
        self._rows: dict[str, int] = {}
        self._records: list[_Record] = []

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._rows

    def row_of(self, node_id: str) -> int:
        """The row of a node, NO_ROW if it is not known."""
        return self._rows.get(node_id, NO_ROW)

    def id_of(self, row: int) -> str:
        """The node at a row."""
        return self._records[row].node_id

    def epoch_at(self, row: int) -> int:
        """The connection of the node at a row."""
        facts = self._records[row].facts
        return 0 if facts is None else facts.epoch

    def facts_of(self, node_id: str) -> NodeFacts | None:
        """What was last said of a node."""
        row = self._rows.get(node_id)
        return None if row is None else self._records[row].facts

    def used_of(self, node_id: str) -> int:
        """Slots in use as far as we know; 0 for an unknown node."""
        row = self._rows.get(node_id)
        return 0 if row is None else int(self.columns.used[row])

    def ids_in(self, cell: int) -> Iterator[str]:
        """The nodes of one cell."""
        return (record.node_id for record in self._records if record.cell == cell)

    # --- what snapshots say -------------------------------------------------------------------------

    def apply(self, cell: int, version: int, node_id: str, used: int, seen_ms: int, facts: NodeFacts | None) -> bool:
        """Take a changed node over; True if anything was written. used < 0: it is gone. No facts: unchanged."""
        row = self._rows.get(node_id)
        if row is not None and version < self._records[row].version:
            return False
        if used < 0:
            return self.remove(node_id)
        if row is None:
            if facts is None:
                return False
            row = self._add(cell, node_id)
            if row is None:
                return False
        self._records[row].version = version
        self.columns.used[row] = _small(used)
        self.columns.seen_ms[row] = seen_ms
        if facts is not None:
            self._write(row, facts)
        return True

    def remove(self, node_id: str) -> bool:
        """Forget a node; True if it was known."""
        row = self._rows.pop(node_id, None)
        if row is None:
            return False
        self._release(self._records[row].words)
        last = self._records.pop()
        if last.node_id != node_id:
            for column in self.columns:
                column[..., row] = column[..., len(self._records)]
            self._records[row] = last
            self._rows[last.node_id] = row
        return True

    def forget_versions(self, cell: int) -> None:
        """The cell's counter went back (its server lost writes): whatever it says next is news."""
        for record in self._records:
            if record.cell == cell:
                record.version = 0

    # --- what our own commits say -------------------------------------------------------------------

    def patch(self, node_id: str, used: int, version: int) -> bool:
        """A script told the node's load; True if that was news."""
        row = self._rows.get(node_id)
        if row is None or used < 0 or version < self._records[row].version:
            return False
        self._records[row].version = version
        self.columns.used[row] = _small(used)
        return True

    def saturate(self, node_id: str) -> None:
        """A commit found no free slot there: believe it until the next snapshot tells the number."""
        row = self._rows.get(node_id)
        if row is not None:
            self.columns.used[row] = max(self.columns.used[row], self.columns.max_jobs[row])

    def avoid_edge(self, edge: str, until_ms: int) -> int:
        """Frames to this edge bounce: none of its nodes gets work until then; returns how many nodes that are."""
        hit = 0
        for row, record in enumerate(self._records):
            if record.facts is not None and record.facts.edge == edge:
                self.columns.unreachable_until_ms[row] = until_ms
                hit += 1
        return hit

    # --- inside -------------------------------------------------------------------------------------

    def _add(self, cell: int, node_id: str) -> int | None:
        row = len(self._records)
        if row >= self.nodes_max:
            self.refused += 1
            return None
        if row >= len(self.columns.seen_ms):
            self._grow()
        self._rows[node_id] = row
        self._records.append(_Record(node_id, cell, 0, None))
        self.columns.unreachable_until_ms[row] = 0
        return row

    def _grow(self) -> None:
        old = self.columns
        capacity = len(old.seen_ms)
        self.columns = _empty_columns(min(2 * capacity, self.nodes_max))
        for name in Columns._fields:
            getattr(self.columns, name)[..., :capacity] = getattr(old, name)

    def _write(self, row: int, facts: NodeFacts) -> None:
        record, load, columns = self._records[row], facts.load, self.columns
        before, record.facts = record.facts, facts
        if before is None or (before.edge, before.epoch) != (facts.edge, facts.epoch):
            columns.unreachable_until_ms[row] = 0  # it connected again, perhaps elsewhere
        if before is None or before.caps != facts.caps or record.lacks_words:
            self._write_caps(row, facts.caps)
        columns.status[row] = READY_STATUS if facts.status == "ready" else 0
        columns.load_percent[row] = max(
            _percent(load.cpu_percent), _percent(load.gpu_percent), _percent(load.mem_percent)
        )
        columns.running[row] = _small(load.running_jobs)

    def _write_caps(self, row: int, caps: NodeCaps) -> None:
        columns = self.columns
        columns.gpus[row] = _small(caps.gpu_count)
        columns.accept_public[row] = caps.accept_public
        words = self._hold(self._records[row], caps)
        # A tenant that does not fit is nobody's: UNKNOWN would equal an unknown job's tenant.
        columns.tenant[row] = words.tenants[0] if words.tenants else UNKNOWN - 1
        columns.installed[row] = bits(words.installed, 1)[0]
        columns.ready[row] = bits(words.ready, 1)[0]
        columns.asr[:, row] = bits(words.asr, LANGUAGE_PLANES)
        columns.semantic[:, row] = bits(words.semantic, LANGUAGE_PLANES)
        columns.tts[:, row] = bits(words.tts, LANGUAGE_PLANES)
        columns.tts_named[row] = bool(caps.tts_langs)
        columns.max_jobs[row] = _small(caps.max_jobs)

    def _hold(self, record: _Record, caps: NodeCaps) -> _Words:
        """Exchange the words of a row. The old ones go first, so that a full vocabulary has room for the new ones."""
        self._release(record.words)
        refused = self._refused_words()
        record.words = _Words(
            self.tenants.hold_all([caps.tenant_id]),
            self.services.hold_all(caps.services_installed),
            self.services.hold_all(caps.services_ready),
            self.languages.hold_all(caps.asr_langs),
            self.languages.hold_all(caps.semantic_langs),
            self.languages.hold_all(caps.tts_langs),
        )
        record.lacks_words = self._refused_words() > refused
        return record.words

    def _release(self, words: _Words) -> None:
        self.tenants.release(words.tenants)
        for numbers in (words.installed, words.ready):
            self.services.release(numbers)
        for numbers in (words.asr, words.semantic, words.tts):
            self.languages.release(numbers)

    def _refused_words(self) -> int:
        return self.languages.refused + self.services.refused + self.tenants.refused

    def check(self) -> None:
        """Assert that ids, rows and records agree; tests call it after each step."""
        assert len(self._records) == len(self._rows)
        assert all(self._records[row].node_id == node_id for node_id, row in self._rows.items())
        assert len(self._records) <= len(self.columns.seen_ms) <= self.nodes_max
        held = {number for record in self._records for numbers in record.words[3:] for number in numbers}
        assert len(held) == len(self.languages), "every language is held by a node"
