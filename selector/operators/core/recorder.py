"""Recorder of choices that can be replayed bit for bit: the kernel's input and output.

Event-sourced: an image of the columns at the beginning, then batch by batch the values and rows that were written since
the previous batch, the jobs, the rules and the choice. The oldest batches are evicted when the recording grows too
large; their writes are merged into the image, so the others can still be replayed. All of it is plain numbers;
recording_format.py encodes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mesh.config.weights import Weights
from selector.core.kernel import Choice, Columns, Floats, JobRows, PoolIndex, Rules, choose
from selector.core.node_speeds import SpeedWrite
from selector.core.node_table import NodeTable
from selector.core.pool_index import index_of

#: Overhead of an array, and of a batch.
ARRAY_BYTES: Final = 112
BATCH_BYTES: Final = 1_024
#: Overhead of a written value that is not part of a row.
WRITE_BYTES: Final = 160
#: Up to as many pairs the fleet's speeds are stored as a whole, which costs less than finding the changed ones.
FEW_PAIRS: Final = 64
#: See Recorder._cells.
FEW_ROWS: Final = 6
#: Columns that a pool's index is made of.
_INDEXED: Final = ("pool", "status", "installed", "ready")
_NONE: Final = np.zeros(0, dtype=np.int32)
_NO_VALUES: Final = np.zeros(0)
#: Shapes of choices whose size is cached.
SHAPES_MAX: Final = 1_024

Array = npt.NDArray[Any]


def arrays_of(arrays: Iterable[Any]) -> list[Array]:
    """The arrays of a tuple, whatever their types."""
    return list(arrays)


class Change(NamedTuple):
    """Writes since the previous batch: whole rows, and the fleet's speeds."""

    #: Nodes afterwards, and home pools.
    nodes: int
    pools: int
    rows: npt.NDArray[np.int32]
    #: The rows' values, column after column.
    cells: bytes
    #: Rows that belong to another node than before.
    names: dict[int, str]
    #: How many pairs there are, which of them changed, and their speeds.
    pairs: int
    prior_at: npt.NDArray[np.int32]
    prior: Floats
    #: Single values, written before the rows were read: slots in use by row, and speeds.
    loads: Sequence[tuple[int, int]] = ()
    speeds: Sequence[SpeedWrite] = ()


class Batch(NamedTuple):
    """One call of the kernel."""

    #: Counts up; 1 is the first.
    number: int
    #: Wall clock, for people.
    at_ms: int
    snapshot_version: int
    weights_version: int
    weights: Weights
    rules: Rules
    rows: JobRows
    choice: Choice
    change: Change
    size_bytes: int


class Image:
    """The columns, the names of their rows and the fleet's speeds at one moment."""

    def __init__(self, like: Columns) -> None:
        self.count = 0
        self.ids: list[str] = []
        #: With at least one row, so that the width of a row can be measured.
        self.columns = _wider(like, 0, 1)
        self.prior: Floats = np.zeros(0)

    def apply(self, change: Change) -> None:
        """Write a change in."""
        have = len(self.columns.seen_ms)
        if have < change.nodes:
            self.columns = _wider(self.columns, have, max(change.nodes, 2 * have))
        used = self.columns.used
        for row, count in change.loads:
            if row < change.nodes:
                used[row] = count
        for write in change.speeds:
            if write.row < change.nodes:
                write.put(self.columns)
        at = 0
        for column in self.columns if len(change.rows) else ():
            size = column[:1].nbytes * len(change.rows)
            cells = np.frombuffer(change.cells, column.dtype, size // column.itemsize, at)
            column[change.rows] = cells.reshape((len(change.rows), *column.shape[1:]))
            at += size
        self.count = change.nodes
        del self.ids[change.nodes :]
        self.ids += [""] * (change.nodes - len(self.ids))
        for row, name in change.names.items():
            self.ids[row] = name
        if len(self.prior) != change.pairs:
            self.prior = np.zeros(change.pairs)  # then all of them are in the change
        self.prior[change.prior_at] = change.prior

    def copy(self) -> Image:
        """Another one with the same contents, without the spare room."""
        image = Image(self.columns)
        image.count, image.ids, image.prior = self.count, list(self.ids), self.prior.copy()
        image.columns = Columns(*(column[: max(1, self.count)].copy() for column in arrays_of(self.columns)))
        return image


def _wider(columns: Columns, used: int, rows: int) -> Columns:
    wider = [np.zeros((rows, *column.shape[1:]), column.dtype) for column in arrays_of(columns)]
    for old, new in zip(arrays_of(columns), wider, strict=True):
        new[:used] = old[:used]
    return Columns(*wider)


class Recording(NamedTuple):
    """What is needed to run choices again."""

    base: Image
    batches: Sequence[Batch]


class Recorder:
    """Notes batches; bounded by jobs and by bytes. The image comes on top: it is as large as the table itself."""

    def __init__(self, jobs_max: int, bytes_max: int) -> None:
        self._jobs_max = jobs_max
        self._bytes_max = bytes_max
        self._batches: deque[Batch] = deque()
        self._base: Image | None = None
        #: Number of pairs -> all their places.
        self._few_places: dict[int, npt.NDArray[np.int32]] = {}
        #: The node of each row, and the fleet's speeds, at the last batch.
        self._names: list[str] = []
        self._prior: Floats = np.zeros(0)
        self.jobs = 0
        self.size_bytes = 0
        #: Number of the last batch, 0 before the first.
        self.newest = 0
        #: The columns as bytes, and the size of a row in each; made anew when the table grows.
        self._viewed: Columns | None = None
        #: Shape of a choice -> bytes of its arrays.
        self._choice_bytes: dict[tuple[int, ...], int] = {}
        self._views: list[tuple[memoryview, int]] = []

    def __len__(self) -> int:
        return len(self._batches)

    def note(
        self,
        table: NodeTable,
        rows: JobRows,
        prior: Floats,
        rules: Rules,
        choice: Choice,
        *,
        at_ms: int,
        weights: Weights,
        weights_version: int,
    ) -> Batch:
        """Record a choice. Must precede any other write into the table."""
        if self._base is None:
            self._base = Image(table.columns)
        change = self._change(table, prior)
        jobs = len(rows.jobs)
        size_bytes = (
            self._size_of(rows, choice)
            + change.prior.nbytes
            + len(change.cells)
            + WRITE_BYTES * (len(change.loads) + len(change.speeds))
        )
        self.newest += 1
        batch = Batch(
            self.newest, at_ms, table.version, weights_version, weights, rules, rows, choice, change, size_bytes
        )
        self._batches.append(batch)
        self.jobs += jobs
        self.size_bytes += size_bytes
        return batch

    def _size_of(self, rows: JobRows, choice: Choice) -> int:
        """Memory of a batch without its change; that of the arrays of a choice follows from their shape."""
        shape = choice.rows.shape
        if shape not in self._choice_bytes:
            if len(self._choice_bytes) >= SHAPES_MAX:
                self._choice_bytes.clear()
            self._choice_bytes[shape] = sum(array.nbytes for array in arrays_of(choice))
        arrays = len(JobRows._fields) + len(Choice._fields) + 3
        sizes = rows.jobs.nbytes + rows.languages.nbytes + rows.lists.nbytes + rows.pools.nbytes
        return BATCH_BYTES + ARRAY_BYTES * arrays + sizes + self._choice_bytes[shape]

    def trim(self, also_bytes: int = 0) -> list[Batch]:
        """Evict the oldest batches beyond the bounds; `also_bytes`: memory of others that counts. Returns them."""
        evicted = []
        while len(self._batches) > 1 and (self.jobs > self._jobs_max or self.size_bytes + also_bytes > self._bytes_max):
            batch = self._batches.popleft()
            assert self._base is not None
            self._base.apply(batch.change)
            self.jobs -= len(batch.rows.jobs)
            self.size_bytes -= batch.size_bytes
            evicted.append(batch)
        return evicted

    def taken(self) -> Recording | None:
        """A copy of the recording; None before the first batch."""
        return None if self._base is None else Recording(self._base.copy(), list(self._batches))

    def _change(self, table: NodeTable, prior: Floats) -> Change:
        count, known = len(table.rows), self._names
        names: dict[int, str] = {}
        written, loads, speeds = table.take_written()
        if len(known) != count:
            del known[count:]
            known += [""] * (count - len(known))
        rows, cells = _NONE, b""
        if written:
            for row, name in zip(written, table.nodes_at(written)[0], strict=True):
                if known[row] != name:
                    known[row] = names[row] = name
            rows, cells = np.array(written, dtype=np.int32), self._cells(table.columns, written)
        prior_at, values = self._changed_prior(prior)
        return Change(count, table.pools.size, rows, cells, names, len(prior), prior_at, values, loads, speeds)

    def _changed_prior(self, prior: Floats) -> tuple[npt.NDArray[np.int32], Floats]:
        """Which of the fleet's speeds changed since the last batch, and their values."""
        before, self._prior = self._prior, prior
        if prior is before:
            return _NONE, _NO_VALUES
        size = len(prior)
        if size <= FEW_PAIRS:
            places = self._few_places.get(size)
            if places is None:
                places = self._few_places[size] = np.arange(size, dtype=np.int32)
            return places, prior
        if size != len(before):
            return np.arange(size, dtype=np.int32), prior
        changed = np.flatnonzero(prior != before).astype(np.int32)
        return changed, prior[changed]

    def _cells(self, columns: Columns, written: list[int]) -> bytes:
        """The written rows of each column. Few rows, as most batches have, are faster to copy one by one."""
        if len(written) > FEW_ROWS:
            places = np.array(written, dtype=np.intp)
            return b"".join([column.take(places, axis=0).tobytes() for column in columns])
        if self._viewed is not columns:
            self._viewed = columns
            self._views = [(column.data.cast("B"), column[:1].nbytes) for column in arrays_of(columns)]
        return b"".join([view[row * size : (row + 1) * size] for view, size in self._views for row in written])


# --- replay ----------------------------------------------------------------------------------------


class Rerun(NamedTuple):
    """A replayed batch, with the node ids of the rows at that moment."""

    batch: Batch
    choice: Choice
    ids: Sequence[str]


def run_again(recording: Recording, rules_of: Callable[[Batch], Rules], best: int = 0) -> Iterator[Rerun]:
    """Replay every batch under the rules of `rules_of`, with `best` candidates (0: as many as recorded)."""
    image = recording.base.copy()
    index: PoolIndex | None = None
    pools = 0
    for batch in recording.batches:
        change = batch.change
        before = (pools, image.count, _indexed(image, change))
        image.apply(change)
        if index is None or before != (change.pools, image.count, _indexed(image, change)):
            index, pools = index_of(image.columns, image.count, change.pools), change.pools
        rules, count = rules_of(batch), best or batch.choice.rows.shape[1]
        yield Rerun(batch, choose(image.columns, index, batch.rows, image.prior, rules, count), image.ids)


def is_same(one: Choice, other: Choice) -> bool:
    """True if two choices are equal bit for bit."""
    return all(
        mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()
        for mine, theirs in zip(arrays_of(one), arrays_of(other), strict=True)
    )


def with_weights(rules: Rules, weights: Weights) -> Rules:
    """The same moment and limits under other prices."""
    return Rules.of(
        weights,
        now_ms=rules.now_ms,
        heartbeat_timeout_ms=rules.heartbeat_timeout_ms,
        heartbeat_interval_ms=rules.heartbeat_interval_ms,
        running_fresh_ms=rules.running_fresh_ms,
        resource_threshold_percent=rules.resource_threshold_percent,
        reconnect_grace_ms=rules.reconnect_grace_ms,
        compared_max=rules.compared_max,
        audio_ms_min=rules.audio_ms_min,
    )


def _indexed(image: Image, change: Change) -> bytes:
    """What the index is made of, of the rows that change; it need not be made anew while that stays the same."""
    rows = change.rows[change.rows < image.count]
    return b"".join(getattr(image.columns, name)[rows].tobytes() for name in _INDEXED)
