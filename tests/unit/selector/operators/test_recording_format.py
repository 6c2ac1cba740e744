from __future__ import annotations

import zlib

import msgspec
import pytest

from selector.operators.core.recorder import Recording, is_same, run_again
from selector.operators.core.recording_format import FORMAT, RecordingError, pack, unpack
from tests.support.simulation.selector import PLENTY, lived


def differing(recording: Recording) -> list[int]:
    again = run_again(recording, lambda batch: batch.rules)
    return [one.batch.number for one in again if not is_same(one.choice, one.batch.choice)]


def test_oldest_batches_are_dropped_to_fit_the_bytes() -> None:
    world = lived(2, batches=200, per_batch=3)
    whole = pack(world.taken(), PLENTY)
    data = pack(world.taken(), len(whole) // 3)
    assert len(data) <= len(whole) // 3
    recording = unpack(data)
    assert 1 < len(recording.batches) < 200
    assert recording.batches[-1].number == 200
    assert differing(recording) == []


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"nonsense", "no recording"),
        (lambda data: data[:-20], "no recording"),
        (lambda data: zlib.compress(b"\x93\x01\x02\x03"), "no recording"),
        (lambda data: _edited(data, 0, FORMAT + 1), f"format {FORMAT + 1}"),
        (lambda data: _edited(data, 1, ["seen_ms <i8 ()"]), "other columns"),
        (lambda data: _edited(data, 4, [[[3], b"123"]]), "damaged|other columns"),
    ],
)
def test_damaged_recording_is_refused(damage, says: str) -> None:  # type: ignore[no-untyped-def]
    data = pack(lived(7, batches=3, per_batch=1).taken(), PLENTY)
    with pytest.raises(RecordingError, match=says):
        unpack(damage(data))


def _edited(data: bytes, place: int, value: object) -> bytes:
    tree = msgspec.msgpack.decode(zlib.decompress(data))
    tree[place] = value
    return zlib.compress(msgspec.msgpack.encode(tree))
