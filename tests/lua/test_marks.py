from __future__ import annotations

import msgspec
import pytest

from lua.engine.runner import Runner
from lua.store import Store
from lua.store.nodes import MARKS_MAX
from lua.store.types.nodes import Mark, Marked
from mesh.cells import cell_of
from mesh.config import Config
from mesh.keys import Keys
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS, node_changes, register, request

NODE = "node-1"
CELL = cell_of(NODE, CELLS)


@pytest.fixture
async def epoch(store: Store) -> int:
    return (await register(store, NODE)).epoch


async def mark(store: Store, one: Mark) -> Marked:
    [marked] = await store.nodes.mark_models([one])
    assert isinstance(marked, Marked)
    return marked


async def test_mark_reaches_every_snapshot_with_its_expiry(store: Store, epoch: int) -> None:
    before = await node_changes(store, CELL, 0, 10)
    marked = await mark(store, Mark(NODE, epoch, "tts", "piper-tts"))
    assert marked.verdict == "marked" and set(marked.marks) == {"tts"}
    changes = await node_changes(store, CELL, before.version, 10)
    [row] = changes.rows
    assert (row.marks, row.version, row.view) == (marked.marks, marked.version, None)
    assert 0 < marked.marks["tts"] - before.now_ms <= 61_000
    await store.commits.commit([request("r-1", [NODE])])
    [row] = (await node_changes(store, CELL, changes.version, 10)).rows
    assert row.marks is None, "unchanged"


async def test_marks_accumulate_and_expired_ones_are_dropped(
    store: Store, raw: RedisClient, keys: Keys, epoch: int
) -> None:
    await mark(store, Mark(NODE, epoch, "tts", "piper-tts"))
    assert set((await mark(store, Mark(NODE, epoch, "", "odd-service"))).marks) == {"tts", "odd-service"}
    raw.hset(keys.marks(CELL), NODE, msgspec.msgpack.encode({"tts": 1, "asr": 1 << 45}))
    assert set((await mark(store, Mark(NODE, epoch, "nmt", "x"))).marks) == {"asr", "nmt"}


async def test_marks_per_node_are_bounded(store: Store, raw: RedisClient, keys: Keys, epoch: int) -> None:
    full = {f"service-{n}": (1 << 45) + n for n in range(MARKS_MAX)}
    raw.hset(keys.marks(CELL), NODE, msgspec.msgpack.encode(full))
    marks = (await mark(store, Mark(NODE, epoch, "one-more", ""))).marks
    assert len(marks) == MARKS_MAX and "one-more" in marks and "service-0" not in marks


@pytest.mark.parametrize("packed", [b"\xc1", b"nonsense", msgspec.msgpack.encode([1, 2])])
async def test_undecodable_marks_are_replaced(
    store: Store, raw: RedisClient, keys: Keys, epoch: int, packed: bytes
) -> None:
    raw.hset(keys.marks(CELL), NODE, packed)
    assert "tts" in (await mark(store, Mark(NODE, epoch, "tts", ""))).marks


async def test_reports_beyond_the_rate_limit_of_a_node_are_dropped(
    runner: Runner, raw: RedisClient, keys: Keys, config: Config, epoch: int
) -> None:
    models = msgspec.structs.replace(config.models, node_rate_max=10)
    stores = [Store(runner, keys, msgspec.structs.replace(config, models=models)) for _ in range(3)]
    verdicts = [(await mark(stores[n % 3], Mark(NODE, epoch, "tts", "", 4))).verdict for n in range(5)]
    assert verdicts == ["marked", "marked", "marked", "limited", "limited"], "in all processes together"
    assert 0 < raw.pttl(keys.model_words(CELL, NODE)) <= 10_000
    raw.delete(keys.model_words(CELL, NODE))  # the window is over
    assert (await mark(stores[0], Mark(NODE, epoch, "tts", ""))).verdict == "marked"


async def test_only_a_listed_node_with_its_epoch_is_marked(
    store: Store, raw: RedisClient, keys: Keys, epoch: int
) -> None:
    assert (await mark(store, Mark(NODE, epoch - 1, "tts", ""))).verdict == "unknown"
    assert (await mark(store, Mark("nobody", 0, "tts", ""))).verdict == "unknown"
    await mark(store, Mark(NODE, epoch, "tts", ""))
    await store.nodes.set_offline(NODE, epoch, "closed")
    assert not raw.exists(keys.marks(CELL)), "marks leave with their node"
    assert (await mark(store, Mark(NODE, epoch, "tts", ""))).verdict == "unknown"
    assert not raw.exists(keys.marks(CELL))


async def test_debounce_is_true_once_per_window(store: Store, raw: RedisClient, keys: Keys) -> None:
    assert [await store.deployment.debounce("piper-tts", "1") for _ in range(3)] == [True, False, False]
    assert await store.deployment.debounce("piper-tts", "2")
    assert await store.deployment.debounce("piper-tts", "")
    assert 0 < raw.pttl(keys.debounce("piper-tts", "1")) <= 5_000
