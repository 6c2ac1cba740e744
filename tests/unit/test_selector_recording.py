"""Choices over a table that never stands still, recorded and run again."""

from __future__ import annotations

import random
import zlib

import msgspec
import numpy as np
import pytest

from mesh.choosing import PoolsConfig
from mesh.frames import Dispatch, NodeLoad
from mesh.speeds import Speed
from mesh.weights import Weights
from selector.core.columns import NodeTable
from selector.core.kernel import NO_ROW, Choice, Rules, choose
from selector.core.packing import FORMAT, RecordingError, pack, unpack
from selector.core.pools import PoolPlan
from selector.core.recording import Batch, Recorder, Recording, is_same, run_again, with_weights
from selector.core.requests import job_rows
from tests.unit.selector_samples import NOW_MS, caps, facts, job

PLENTY = 1 << 40
PLAN = PoolPlan(PoolsConfig(enabled=True, pool_count=4))
LANGUAGES = ["en", "zh", "es", "de", "fr"]


def rules_at(now_ms: int, weights: Weights) -> Rules:
    return Rules.of(
        weights,
        now_ms=now_ms,
        heartbeat_timeout_ms=45_000,
        heartbeat_interval_ms=15_000,
        running_fresh_ms=2_000,
        resource_threshold_percent=85.0,
        reconnect_grace_ms=3_000,
        compared_max=32,
    )


class World:
    """A table that changes by itself, and a recorder that listens to what is chosen."""

    def __init__(self, seed: int, *, jobs_max: int = 1_000_000, bytes_max: int = PLENTY) -> None:
        self.chance = random.Random(seed)
        self.table = NodeTable(nodes_max=200)
        self.recorder = Recorder(jobs_max, bytes_max)
        self.choices: list[Choice] = []
        self.now_ms = NOW_MS
        self.version = 1
        self.names = 0
        self.weights = Weights()
        for _ in range(40):
            self._join()

    def _join(self) -> None:
        node_id = f"n-{self.names}"
        self.names += 1
        self._say(node_id)

    def _say(self, node_id: str) -> None:
        chance = self.chance
        its_caps = caps(max_jobs=chance.randint(1, 6), asr_langs=chance.sample(LANGUAGES, 3), semantic_langs=LANGUAGES)
        load = NodeLoad(chance.uniform(0, 95), chance.uniform(0, 60), chance.uniform(0, 60), chance.randint(0, 2))
        its_facts = facts(status=chance.choice(["ready"] * 8 + ["draining", "degraded"]), load=load)
        its_facts = its_facts._replace(
            caps=its_caps,
            pools=PLAN.home_of(node_id, its_caps),
            detached_ms=chance.choice([0] * 9 + [self.now_ms - 500]),
        )
        self.version += 1
        used = chance.randint(0, 3)
        self.table.apply(0, self.version, node_id, used, self.now_ms - chance.randint(0, 20_000), its_facts)

    def live(self) -> None:
        """Something happens to some node."""
        chance, table = self.chance, self.table
        self.now_ms += chance.randint(1, 200)
        self.version += 1
        node_id = chance.choice(table.ids())
        event = chance.randrange(8)
        if event == 0:
            self._join()
        elif event == 1 and len(table) > 20:
            table.apply(0, self.version, node_id, -1, 0, None)
        elif event == 2:
            self._say(node_id)
        elif event == 3:
            table.patch(node_id, chance.randint(0, 4), self.version)
        elif event == 4:
            pairs = ["*", "en>es", "zh>de", "fr>en"]
            table.set_speeds(node_id, {pair: Speed(chance.uniform(0.1, 2), 0.1, 5, self.now_ms) for pair in pairs})
        elif event == 5:
            table.set_marks(node_id, {"asr": self.now_ms + 300})
        elif event == 6:
            table.expire_marks(self.now_ms)
        else:
            table.avoid_edge("edge:b:1" if chance.random() < 0.1 else "edge:c:1", self.now_ms + 100)

    def jobs(self, count: int) -> list[Dispatch]:
        chance, ids = self.chance, self.table.ids()
        return [
            job(
                request_id=f"r-{chance.getrandbits(48)}",
                session_id=f"s-{chance.randrange(100)}",
                src_lang=chance.choice([*LANGUAGES, "auto"]),
                tgt_lang=chance.choice(LANGUAGES),
                audio_ms=chance.randint(100, 8_000),
                excluded=chance.sample(ids, chance.randint(0, 2)),
                warm_node=chance.choice(ids),
                preferred_node=chance.choice(["", *ids]),
            )
            for _ in range(count)
        ]

    def choose(self, count: int) -> Batch:
        table, rules = self.table, rules_at(self.now_ms, self.weights)
        for node_id in self.chance.sample(table.ids(), 18):  # jobs end
            self.version += 1
            table.patch(node_id, self.chance.randint(0, 2), self.version)
        rows, prior = job_rows(self.jobs(count), table, PLAN), table.prior()
        choice = choose(table.columns, table.index(), rows, prior, rules, 3)
        self.choices.append(choice)
        batch = self.recorder.note(
            table, rows, prior, rules, choice, at_ms=self.now_ms, weights=self.weights, weights_version=7
        )
        for row in choice.rows[:, 0].tolist():  # what the commits say
            if row != NO_ROW:
                self.version += 1
                table.patch(table.id_of(row), int(table.columns.used[row]) + 1, self.version)
        return batch

    def taken(self) -> Recording:
        recording = self.recorder.taken()
        assert recording is not None
        return recording


def lived(seed: int, batches: int, per_batch: int, **bounds: int) -> World:
    world = World(seed, **bounds)
    for _ in range(batches):
        for _ in range(world.chance.randint(0, 4)):
            world.live()
        world.choose(per_batch)
        world.recorder.trim()
    world.table.check()
    return world


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


def test_a_recording_can_be_packed_into_less_room_than_it_takes() -> None:
    world = lived(2, batches=200, per_batch=3)
    whole = pack(world.taken(), PLENTY)
    data = pack(world.taken(), len(whole) // 3)
    assert len(data) <= len(whole) // 3
    recording = unpack(data)
    assert 1 < len(recording.batches) < 200
    assert recording.batches[-1].number == 200
    assert differing(recording) == []


def test_a_tampered_choice_is_found() -> None:
    recording = unpack(pack(lived(4, batches=50, per_batch=4).taken(), PLENTY))
    recording.batches[17].choice.rows[2, 0] += 1
    assert differing(recording) == [18]


def test_a_tampered_row_is_found() -> None:
    recording = unpack(pack(lived(4, batches=50, per_batch=4).taken(), PLENTY))
    recording.base.columns.used[:] = 99
    first = recording.batches[0].change
    cells = bytearray(first.cells)
    used_at = sum(column[:1].nbytes * len(first.rows) for column in recording.base.columns[: recording.base.columns._fields.index("used")])  # fmt: skip # noqa: E501
    cells[used_at : used_at + 4 * len(first.rows)] = np.full(len(first.rows), 99, np.int32).tobytes()
    recording.batches[0] = recording.batches[0]._replace(change=first._replace(cells=bytes(cells)))  # type: ignore[index]
    assert differing(recording)


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
    choice = choose(table.columns, table.index(), rows, table.prior(), rules, 3)
    recorder.note(table, rows, table.prior(), rules, choice, at_ms=1, weights=Weights(), weights_version=0)
    recording = recorder.taken()
    assert recording is not None
    assert differing(unpack(pack(recording, PLENTY))) == []


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"nonsense", "no recording"),
        (lambda data: data[:-20], "no recording"),
        (lambda data: zlib.compress(b"\x93\x01\x02\x03"), "no recording"),
        (lambda data: _edited(data, 0, FORMAT + 1), "format 2"),
        (lambda data: _edited(data, 1, ["seen_ms <i8 ()"]), "other columns"),
        (lambda data: _edited(data, 4, [[[3], b"123"]]), "damaged|other columns"),
    ],
)
def test_what_is_no_recording_is_refused(damage, says: str) -> None:  # type: ignore[no-untyped-def]
    data = pack(lived(7, batches=3, per_batch=1).taken(), PLENTY)
    with pytest.raises(RecordingError, match=says):
        unpack(damage(data))


def _edited(data: bytes, place: int, value: object) -> bytes:
    tree = msgspec.msgpack.decode(zlib.decompress(data))
    tree[place] = value
    return zlib.compress(msgspec.msgpack.encode(tree))
