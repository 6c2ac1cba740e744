from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from lua.engine.runner import Runner
from lua.store import Store
from lua.store.node_view import unpack_speeds
from lua.store.types.jobs import Advance, Advanced, Release
from mesh.cells import cell_of
from mesh.config import Config
from mesh.keys import Keys
from mesh.states.speed import RATIO_MAX, Speed, observe, ratio_of
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS, node_changes, register, request
from tests.support.reference import lua_functions

NODE = "node-1"
CELL = cell_of(NODE, CELLS)
OBSERVE = """-- learn: observe one after the other.
-- USES speed
-- KEYS
--   node             hash  any
-- ARGV
--   jobs_remembered  int   limit
--   half_life_ms     int   limit
-- ARGV per job
--   took_ms          int   its time
--   audio_ms         int   its audio
--   at_ms            int   when
-- RETURNS
--   packed           list  after each

redis.call('EXISTS', node)
local packed, speed = {}, nil
for _, job in ipairs(jobs) do
  speed = observe(speed, job.took_ms / job.audio_ms, job.at_ms, jobs_remembered, half_life_ms)
  packed[#packed + 1] = cmsgpack.pack({speed = speed})
end
return packed
"""


def test_lua_and_python_agree_bit_by_bit(raw: RedisClient, tmp_path: Path) -> None:
    script = lua_functions.script_of(tmp_path, "learn", OBSERVE)
    dice = random.Random(7)
    now_ms = 1_700_000_000_000
    jobs = []
    for _ in range(3_000):
        now_ms += dice.choice([0, 1, 50, 999, 60_000, 7_000_000, -3])
        jobs.append({"took_ms": dice.randint(0, 90_000), "audio_ms": dice.randint(500, 20_000), "at_ms": now_ms})
    args = {"jobs_remembered": 8, "half_life_ms": 60_000, "jobs": jobs}
    [packed] = lua_functions.run(raw, script, ["{speed}:any"], args)
    speed: Speed | None = None
    for job, found in zip(jobs, packed, strict=True):
        speed = observe(speed, job["took_ms"] / job["audio_ms"], job["at_ms"], 8, 60_000)
        assert unpack_speeds(found) == {"speed": speed}


async def finish(store: Store, request_id: str, pair: str = "zh>en", took_ms: int = 600, **said: object) -> Advanced:
    [job] = await store.commits.commit([request(request_id, [NODE])])
    asked = Advance(job.job_id, 1, NODE, "finish release", pair=pair, audio_ms=2_000, took_ms=took_ms)
    [advanced] = await store.jobs.advance([asked._replace(**said)])
    assert isinstance(advanced, Advanced)
    return advanced


async def speeds_of(store: Store, since: int = 0) -> dict[str, Speed] | None:
    [row] = (await node_changes(store, CELL, since, 10)).rows
    return row.speeds


async def test_finished_job_updates_the_speed_of_its_node(store: Store) -> None:
    await register(store, NODE)
    assert await speeds_of(store) is None
    first = await finish(store, "r-1")
    assert {pair: speed.mean for pair, speed in first.speeds.items()} == {"zh>en": 0.3, "*": 0.3}
    second = await finish(store, "r-2", "en>zh", 1_200)
    assert second.speeds["en>zh"].mean == 0.6
    assert second.speeds["*"].mean == pytest.approx(0.45, rel=0.05) and second.speeds["*"].jobs == pytest.approx(
        2, rel=0.1
    )
    assert await speeds_of(store) == first.speeds | second.speeds
    assert (await speeds_of(store, second.version - 1)) is not None


async def test_speeds_are_sent_only_when_they_changed(store: Store) -> None:
    await register(store, NODE)
    learned = await finish(store, "r-1")
    [placed] = await store.commits.commit([request("r-2", [NODE])])
    [row] = (await node_changes(store, CELL, learned.version, 10)).rows
    assert (row.used, row.view, row.speeds, row.marks) == (1, None, None, None)
    await store.jobs.release(Release(placed.job_id, 1, NODE, "test"))


@pytest.mark.parametrize(
    "said", [{"success": False, "took_ms": -1}, {"took_ms": -1}, {"pair": ""}, {"events": "dispatch accept start"}]
)
async def test_job_without_a_measurement_updates_no_speed(store: Store, said: dict[str, object]) -> None:
    await register(store, NODE)
    assert (await finish(store, "r-1", **said)).speeds == {}  # type: ignore[arg-type]
    assert await speeds_of(store) is None


async def test_failed_job_counts_with_the_time_of_its_retry(store: Store, config: Config) -> None:
    await register(store, NODE)
    learned = (await finish(store, "r-1", success=False)).speeds
    assert learned["zh>en"].mean == ratio_of(600, 2_000, config.speed.audio_ms_min, config.speed.failed_ms) > 1


async def test_repeated_result_updates_the_speed_once(store: Store) -> None:
    await register(store, NODE)
    [job] = await store.commits.commit([request("r-1", [NODE])])
    result = Advance(job.job_id, 1, NODE, "finish release", True, "zh>en", 2_000, 600)
    answers = [(await store.jobs.advance([result]))[0] for _ in range(3)]
    assert [len(one.speeds) for one in answers if isinstance(one, Advanced)] == [2, 0, 0]


async def test_short_audio_and_long_pairs_are_bounded(store: Store) -> None:
    await register(store, NODE)
    assert (await finish(store, "r-1", audio_ms=0)).speeds["*"].mean == 1.2
    assert set((await finish(store, "r-2", "x" * 65)).speeds) == {"*"}


async def test_job_beyond_pairs_max_updates_the_total_only(runner: Runner, keys: Keys, config: Config) -> None:
    speed = msgspec.structs.replace(config.speed, pairs_per_node_max=2)
    store = Store(runner, keys, msgspec.structs.replace(config, speed=speed))
    await register(store, NODE)
    for number, pair in enumerate(["a>b", "b>a", "c>d", "a>b"]):
        await finish(store, f"r-{number}", pair)
    speeds = await speeds_of(store)
    assert speeds is not None and set(speeds) == {"*", "a>b", "b>a"}
    assert (round(speeds["*"].jobs), round(speeds["a>b"].jobs)) == (4, 2)


async def test_undecodable_speeds_do_not_fail_a_result(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, NODE)
    raw.hset(keys.speeds(CELL), NODE, b"\xc1nonsense")
    assert (await finish(store, "r-1")).speeds["*"].mean == 0.3
    assert set(await speeds_of(store) or {}) == {"*", "zh>en"}


async def test_speeds_are_deleted_with_their_node(store: Store, raw: RedisClient, keys: Keys) -> None:
    epoch = (await register(store, NODE)).epoch
    [job] = await store.commits.commit([request("r-1", [NODE])])
    await finish(store, "r-2")
    assert raw.hlen(keys.speeds(CELL)) == 1
    assert await store.nodes.set_offline(NODE, epoch, "closed")
    assert raw.hlen(keys.speeds(CELL)) == 0
    late = Advance(job.job_id, 1, NODE, "finish release", True, "zh>en", 2_000, 600)
    [advanced] = await store.jobs.advance([late])
    assert isinstance(advanced, Advanced) and (advanced.verdict, advanced.speeds) == ("moved", {})
    assert raw.hlen(keys.speeds(CELL)) == 0, "nobody would clean up after it"
    await register(store, NODE)
    assert await speeds_of(store) is None


async def test_ratio_of_one_job_is_bounded(store: Store) -> None:
    await register(store, NODE)
    assert (await finish(store, "r-1", took_ms=3_600_000)).speeds["zh>en"].mean == RATIO_MAX
