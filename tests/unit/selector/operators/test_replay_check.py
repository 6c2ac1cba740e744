from __future__ import annotations

from mesh.config.weights import Weights
from selector.operators.core.recording_format import pack, unpack
from selector.operators.core.replay_check import check, compare
from tests.support.simulation.selector import PLENTY, lived


def test_what_was_recorded_is_exact() -> None:
    world = lived(11, batches=40, per_batch=5)
    exact = check(unpack(pack(world.taken(), PLENTY)))
    assert (exact.decisions, exact.different, list(exact.batches)) == (200, 0, [])


def test_what_was_tampered_with_is_counted_and_named() -> None:
    recording = unpack(pack(lived(11, batches=40, per_batch=5).taken(), PLENTY))
    recording.batches[3].choice.scores[1, 0] += 1
    recording.batches[3].choice.terms[1, 0, 0] += 1.0
    recording.batches[9].choice.removed[0, 0] += 1
    exact = check(recording)
    assert (exact.different, list(exact.batches)) == (2, [4, 10])


def test_the_same_weights_change_nothing() -> None:
    found = compare(lived(12, batches=40, per_batch=5).taken(), Weights())
    assert (found.decisions, found.moved, found.gained_ms, found.lost_ms) == (200, 0, 0, 0)
    assert found.before == found.after


def test_other_weights_move_jobs_for_a_gain_by_their_own_measure() -> None:
    world = lived(13, batches=60, per_batch=6)
    found = compare(world.taken(), Weights(busy=0.0, busy_ms=0.0, load_ms=5_000.0))
    assert found.moved > 30
    assert found.gained_ms > 0
    assert found.lost_ms > 0
    assert found.before.total() == found.after.total() > 200
    shares = found.shares(10)
    assert len(shares) == 10
    assert any(before != after for _, before, after in shares)
