"""Choices over a table that never stands still, recorded and run again."""

from __future__ import annotations

import numpy as np
import pytest

from mesh.config.weights import Weights
from selector.core.job_rows import job_rows
from selector.core.kernel import NO_ROW, choose
from selector.core.node_table import NodeTable
from selector.operators.core.recorder import Recorder, Recording, is_same, run_again, with_weights
from selector.operators.core.recording_format import pack, unpack
from tests.support.builders.selector import NOW_MS, job
from tests.support.simulation.selector import PLAN, PLENTY, World, lived, rules_at


def differing(recording: Recording) -> list[int]:
    again = run_again(recording, lambda batch: batch.rules)
    return [one.batch.number for one in again if not is_same(one.choice, one.batch.choice)]


def test_ten_thousand_recorded_decisions_come_out_the_same_bit_for_bit() -> None:
    world = lived(seed=3, batches=500, per_batch=20)
    recording = unpack(pack(world.taken(), PLENTY))
    assert sum(len(batch.rows.jobs) for batch in recording.batches) == 10_000
    assert all(is_same(one.choice, kept) for one, kept in zip(recording.batches, world.choices, strict=True))
    placed = sum(int((choice.rows[:, 0] != NO_ROW).sum()) for choice in world.choices)
    assert 5_000 < placed < 10_000, "most of them found a node, some did not"
    assert differing(recording) == []


@pytest.mark.parametrize("seed", range(5))
def test_the_oldest_leave_and_the_rest_can_still_be_run_again(seed: int) -> None:
    world = lived(seed, batches=120, per_batch=3, jobs_max=60)
    assert world.recorder.jobs == 60
    assert len(world.recorder) == 20
    assert differing(world.taken()) == []
    assert differing(unpack(pack(world.taken(), PLENTY))) == []


def test_bytes_are_bounded_too_with_what_others_hold() -> None:
    world = lived(1, batches=60, per_batch=3, bytes_max=100_000)
    assert world.recorder.size_bytes <= 100_000
    kept = len(world.recorder)
    assert 1 < kept < 60
    assert len(world.recorder.trim(also_bytes=50_000)) >= kept // 4
    assert differing(world.taken()) == []


def test_a_tampered_choice_is_found() -> None:
    recording = unpack(pack(lived(4, batches=50, per_batch=4).taken(), PLENTY))
    recording.batches[17].choice.rows[2, 0] += 1
    assert differing(recording) == [18]


def test_a_tampered_row_is_found() -> None:
    recording = unpack(pack(lived(4, batches=50, per_batch=4).taken(), PLENTY))
    first, columns = recording.batches[0], recording.base.columns
    rows = len(first.change.rows)
    start = sum(column[:1].nbytes for column in columns[: columns._fields.index("used")]) * rows
    cells = bytearray(first.change.cells)
    cells[start : start + 4 * rows] = np.full(rows, 99, np.int32).tobytes()
    tampered = first._replace(change=first.change._replace(cells=bytes(cells)))
    assert 1 in differing(recording._replace(batches=[tampered, *recording.batches[1:]]))


def test_other_weights_choose_otherwise_and_the_same_ones_the_same() -> None:
    recording = lived(5, batches=80, per_batch=8).taken()
    other = Weights(busy=0.0, busy_ms=0.0, load_ms=5_000.0)

    def moved(weights: Weights) -> int:
        again = run_again(recording, lambda batch: with_weights(batch.rules, weights))
        return sum(int((one.choice.rows[:, 0] != one.batch.choice.rows[:, 0]).sum()) for one in again)

    assert moved(Weights()) == 0
    assert moved(other) > 50
    assert moved(Weights(strategy="least_connections")) > 50


def test_names_follow_the_nodes_from_row_to_row() -> None:
    world = World(6)
    known = []
    for _ in range(60):
        for _ in range(5):
            world.live()
        world.choose(2)
        known.append(world.table.ids())
    names = [list(one.ids) for one in run_again(world.taken(), lambda batch: batch.rules)]
    assert names == known


def test_nothing_was_decided_yet() -> None:
    assert Recorder(10, 10).taken() is None


def test_a_table_without_nodes_is_recorded_too() -> None:
    table, recorder = NodeTable(nodes_max=10), Recorder(100, PLENTY)
    rules, rows = rules_at(NOW_MS, Weights()), job_rows([job()], table, PLAN)
    choice = choose(table.columns, table.index(), rows, table.speeds.prior(), rules, 3)
    recorder.note(table, rows, table.speeds.prior(), rules, choice, at_ms=1, weights=Weights(), weights_version=0)
    recording = recorder.taken()
    assert recording is not None
    assert differing(unpack(pack(recording, PLENTY))) == []
