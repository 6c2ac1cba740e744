"""Codec of recordings: msgpack around the arrays' own bytes, compressed. The format is versioned.

Only the version that wrote a recording can read it: the columns must have the same names, types and widths, otherwise
a replay would be meaningless.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final, get_type_hints

import msgspec
import numpy as np

from mesh.config.weights import Weights
from selector.core.filters import Filter
from selector.core.kernel import JOB_ROW, Choice, Columns, JobRows, Rules
from selector.core.node_speeds import SpeedWrite
from selector.operators.core.recorder import Array, Batch, Change, Image, Recording, arrays_of

#: Bumped whenever an older reader would misread a recording.
FORMAT: Final = 2
#: Fast rather than small: rows repeat themselves so much that any level finds it.
COMPRESSION: Final = 1
#: A larger file is no recording of ours.
UNPACKED_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024

Packed = tuple[list[int], bytes]
_Load = tuple[int, int]

_ROWS: Final[dict[str, Any]] = {"jobs": JOB_ROW, "languages": np.uint64, "lists": np.int32, "pools": np.int32}
_CHOICE: Final[dict[str, Any]] = {
    "rows": np.int32,
    "scores": np.int64,
    "expected": np.int32,
    "terms": np.float64,
    "removed": np.int32,
    "pool": np.int32,
    "compared": np.int32,
    "late_ms": np.int64,
}
_RULE_TYPES: Final = tuple(get_type_hints(Rules).values())
assert tuple(_ROWS) == JobRows._fields, "a new array of JobRows needs its type here"
assert tuple(_CHOICE) == Choice._fields, "a new array of Choice needs its type here"


class RecordingError(ValueError):
    """The bytes are no recording, or one that this version cannot replay."""


class _PackedBatch(msgspec.Struct, array_like=True):
    """One batch; `weights` is a place in the list of the recording."""

    number: int
    at_ms: int
    snapshot_version: int
    weights_version: int
    weights: int
    rules: list[int | float]
    rows: list[Packed]
    choice: list[Packed]
    change: tuple[int, int, bytes, bytes, dict[int, str], int, bytes, bytes, list[_Load], list[SpeedWrite]]


class _PackedRecording(msgspec.Struct, array_like=True):
    """The whole recording. `layout` describes the columns, a job's row and the rules of the writing version."""

    format: int
    layout: list[str]
    #: The base: rows in use, their names, the columns, the fleet's speeds.
    count: int
    ids: list[str]
    columns: list[Packed]
    prior: bytes
    weights: list[Weights]
    batches: list[_PackedBatch]


def pack(recording: Recording, bytes_max: int) -> bytes:
    """The recording as bytes; the oldest batches are dropped if it would be larger than `bytes_max`."""
    while True:
        data = zlib.compress(_encode(recording), COMPRESSION)
        batches = len(recording.batches)
        if len(data) <= bytes_max or batches <= 1:
            return data
        # The size follows the number of batches only roughly: leave a tenth more out.
        keep = min(batches - 1, int(batches * 0.9 * bytes_max / len(data)))
        recording = _without_oldest(recording, max(1, keep))


def unpack(data: bytes) -> Recording:
    """The recording from bytes; RecordingError if this version cannot replay it."""
    try:
        packed = msgspec.msgpack.decode(_unzipped(data), type=_PackedRecording)
    except (zlib.error, msgspec.DecodeError) as error:
        raise RecordingError(f"this is no recording: {error}") from None
    if packed.format != FORMAT:
        raise RecordingError(f"the recording has format {packed.format}, this version reads {FORMAT}")
    try:
        columns = Columns(*(_array(one, dtype) for one, dtype in zip(packed.columns, _types(packed), strict=True)))
        if packed.layout != _layout(columns):
            raise RecordingError(
                "the recording was made by a version whose columns, jobs or rules differ from this one's"
            )
        image = Image(columns)
        image.count, image.ids, image.columns = packed.count, packed.ids, columns
        image.prior = np.frombuffer(packed.prior, np.float64).copy()
        return Recording(image, [_unpack_batch(one, packed.weights) for one in packed.batches])
    except (ValueError, TypeError, IndexError) as error:
        raise (
            error if isinstance(error, RecordingError) else RecordingError(f"the recording is damaged: {error}")
        ) from None


def _unzipped(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    plain = stream.decompress(data, UNPACKED_BYTES_MAX)
    if not stream.eof:
        raise zlib.error("it is cut short or too large")
    return plain


def _without_oldest(recording: Recording, keep: int) -> Recording:
    base = recording.base.copy()
    for batch in recording.batches[:-keep]:
        base.apply(batch.change)
    return Recording(base, recording.batches[-keep:])


def _layout(columns: Columns) -> list[str]:
    """Everything that must be equal for a choice to be reproducible."""
    return [
        *(
            f"{name} {column.dtype.str} {column.shape[1:]}"
            for name, column in zip(Columns._fields, arrays_of(columns), strict=True)
        ),
        *(f"job {name} {JOB_ROW[name].str}" for name in JOB_ROW.names or ()),
        *(f"rule {name}" for name in Rules._fields),
        *(f"filter {one.name}" for one in Filter),
    ]


def _types(packed: _PackedRecording) -> list[str]:
    """The types that the layout names, in the order of the columns."""
    types = [words.split()[1] for words in packed.layout[: len(packed.columns)]]
    if len(types) != len(Columns._fields):
        raise RecordingError("the recording was made by a version with other columns")
    return types


def _encode(recording: Recording) -> bytes:
    base, batches = recording
    columns = Columns(*(column[: max(1, base.count)] for column in arrays_of(base.columns)))
    weights: list[Weights] = []
    packed_batches = [_pack_batch(batch, _place_in(weights, batch.weights)) for batch in batches]
    return msgspec.msgpack.encode(
        _PackedRecording(
            format=FORMAT,
            layout=_layout(columns),
            count=base.count,
            ids=base.ids,
            columns=[_packed(column) for column in columns],
            prior=base.prior.tobytes(),
            weights=weights,
            batches=packed_batches,
        )
    )


def _place_in(known: list[Weights], weights: Weights) -> int:
    if not known or known[-1] != weights:
        known.append(weights)
    return len(known) - 1


def _pack_batch(batch: Batch, weights: int) -> _PackedBatch:
    change = batch.change
    return _PackedBatch(
        batch.number,
        batch.at_ms,
        batch.snapshot_version,
        batch.weights_version,
        weights,
        list(batch.rules),
        [_packed(array) for array in batch.rows],
        [_packed(array) for array in batch.choice],
        (
            *(change.nodes, change.pools, change.rows.tobytes(), change.cells, change.names),
            *(change.pairs, change.prior_at.tobytes(), change.prior.tobytes()),
            *(list(change.loads), list(change.speeds)),
        ),
    )


def _unpack_batch(packed: _PackedBatch, weights: Sequence[Weights]) -> Batch:
    count, pools, rows, cells, names, pairs, prior_at, prior, loads, speeds = packed.change
    change = Change(
        nodes=count,
        pools=pools,
        rows=np.frombuffer(rows, np.int32),
        cells=cells,
        names=names,
        pairs=pairs,
        prior_at=np.frombuffer(prior_at, np.int32),
        prior=np.frombuffer(prior, np.float64),
        loads=loads,
        speeds=speeds,
    )
    return Batch(
        packed.number,
        packed.at_ms,
        packed.snapshot_version,
        packed.weights_version,
        weights[packed.weights],
        _rules(packed.rules),
        JobRows(*(_array(one, dtype) for one, dtype in zip(packed.rows, _ROWS.values(), strict=True))),
        Choice(*(_array(one, dtype) for one, dtype in zip(packed.choice, _CHOICE.values(), strict=True))),
        change,
        0,
    )


def _rules(values: list[int | float]) -> Rules:
    """With the types that the kernel was compiled for: msgpack may write a whole float as it likes."""
    return Rules(*(kind(value) for value, kind in zip(values, _RULE_TYPES, strict=True)))


def _packed(array: Array) -> Packed:
    return list(array.shape), array.tobytes()


def _array(packed: Packed, dtype: Any) -> Array:
    """A copy that may be written: the kernel was compiled for such arrays."""
    shape, data = packed
    return np.frombuffer(data, dtype).reshape(shape).copy()
