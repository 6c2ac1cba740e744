from __future__ import annotations

import asyncio
import itertools

import pytest

from lua.store import Store
from lua.store.types.commits import Committed
from lua.store.types.jobs import Advance, Release, Released
from mesh.cells import cell_of, cell_of_job
from mesh.errors import StoreError
from mesh.keys import Keys, lease_member
from mesh.states.job import JobAction, JobState, advance
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS, advance_job, beat, job_record, node_changes, register, request

NODE = "node-1"
CELL = cell_of(NODE, CELLS)


async def placed(store: Store, request_id: str = "r-1", max_jobs: int = 2) -> Committed:
    await register(store, NODE, max_jobs)
    [one] = await store.commits.commit([request(request_id, [NODE])])
    assert one.verdict == "new"
    return one


async def test_every_state_and_event_agrees_with_the_table(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, NODE, max_jobs=64)
    pairs = list(itertools.product(JobState, JobAction))
    assert len(pairs) == 30
    for number, (state, event) in enumerate(pairs):
        [job] = await store.commits.commit([request(f"r-{number}", [NODE])])
        raw.hset(keys.job(CELL, job.job_id), "state", state)
        advanced = await advance_job(store, job.job_id, 1, NODE, event)
        assert (advanced.verdict, advanced.state) == advance(state, event), f"{state} + {event}"
        assert raw.hget(keys.job(CELL, job.job_id), "state") == advanced.state.encode()


async def test_job_passes_through_all_its_states(store: Store, raw: RedisClient, keys: Keys) -> None:
    job = await placed(store)
    for event, state in (("dispatch", "DISPATCHED"), ("accept", "ACCEPTED"), ("start", "RUNNING")):
        advanced = await advance_job(store, job.job_id, 1, NODE, event)
        assert (advanced.verdict, advanced.state, advanced.leased, advanced.used) == ("moved", state, True, -1)
        assert advanced.request_id == "r-1"
    done = await advance_job(store, job.job_id, 1, NODE, "finish release")
    assert (done.verdict, done.state, done.finished, done.outcome) == ("moved", "RELEASED", True, "ok")
    assert (done.edge, done.session_id, done.request_id, done.used) == ("edge:b:0002", "s-1", "r-1", 0)
    assert raw.zcard(keys.leases(CELL, NODE)) == 0
    times = raw.hmget(keys.job(CELL, job.job_id), *(f"{event.value}_ms" for event in JobAction))
    assert None not in times and times == sorted(times)


async def test_repeated_result_is_idempotent_and_finished(store: Store) -> None:
    job = await placed(store)
    await advance_job(store, job.job_id, 1, NODE, "finish release", success=False)
    again = await advance_job(store, job.job_id, 1, NODE, "finish release", success=True)
    assert (again.verdict, again.finished, again.outcome) == ("same", True, "failed")


async def test_result_after_release_does_not_finish_the_job(store: Store) -> None:
    job = await placed(store)
    await store.jobs.release(Release(job.job_id, 1, NODE, "cancelled"))
    late = await advance_job(store, job.job_id, 1, NODE, "finish release")
    assert (late.verdict, late.state, late.finished) == ("same", "RELEASED", False)


async def test_reconnected_node_keeps_its_job(store: Store, raw: RedisClient, keys: Keys) -> None:
    job = await placed(store)
    later = (await register(store, NODE)).epoch
    assert later > job.node_epoch
    kept = await store.jobs.release(Release(job.job_id, 1, NODE, "node_gone", job.node_epoch))
    assert kept == Released("kept", -1, 0)
    assert raw.hget(keys.job(CELL, job.job_id), "state") == b"CREATED"
    assert raw.zcard(keys.leases(CELL, NODE)) == 1
    assert (await advance_job(store, job.job_id, 1, NODE, "finish release")).finished


@pytest.mark.parametrize("away", ["same connection", "offline", "no record"])
async def test_offline_node_loses_its_job(store: Store, raw: RedisClient, keys: Keys, away: str) -> None:
    job = await placed(store)
    if away == "offline":
        assert await store.nodes.set_offline(NODE, (await register(store, NODE)).epoch, "closed")
    elif away == "no record":
        raw.delete(keys.node(CELL, NODE))
    released = await store.jobs.release(Release(job.job_id, 1, NODE, "node_gone", job.node_epoch))
    assert (released.verdict, released.used) == ("released", 0)


async def test_other_attempts_and_nodes_are_fenced(store: Store, raw: RedisClient, keys: Keys) -> None:
    job = await placed(store)
    for attempt, node_id in ((2, NODE), (0, NODE), (1, "node-2")):
        assert (await advance_job(store, job.job_id, attempt, node_id, "finish release")).verdict == "fenced"
        assert (await store.jobs.release(Release(job.job_id, attempt, node_id, "test"))).verdict == "fenced"
    assert raw.hget(keys.job(CELL, job.job_id), "state") == b"CREATED"
    assert raw.zcard(keys.leases(CELL, NODE)) == 1


async def test_an_unknown_job_is_unknown(store: Store) -> None:
    await register(store, NODE)
    assert (await advance_job(store, "job-03-none", 1, NODE, "finish")).verdict == "unknown"
    released = await store.jobs.release(Release(f"job-{CELL:02d}-none", 1, NODE, "test"))
    assert (released.verdict, released.used) == ("unknown", 0)


async def test_an_unknown_event_changes_nothing(store: Store, raw: RedisClient, keys: Keys) -> None:
    job = await placed(store)
    with pytest.raises(StoreError, match="no such event: explode"):
        await advance_job(store, job.job_id, 1, NODE, "dispatch explode")
    assert raw.hget(keys.job(CELL, job.job_id), "state") == b"CREATED"


async def test_release_frees_exactly_one_slot_once(store: Store) -> None:
    job = await placed(store, max_jobs=5)
    await store.commits.commit([request("r-2", [NODE])])
    verdicts = [await store.jobs.release(Release(job.job_id, 1, NODE, "test")) for _ in range(3)]
    assert [(one.verdict, one.used) for one in verdicts] == [("released", 1), ("same", 1), ("same", 1)]


async def test_used_count_is_never_negative(store: Store, raw: RedisClient, keys: Keys) -> None:
    job = await placed(store)
    raw.delete(keys.leases(CELL, NODE))
    for _ in range(3):
        assert (await store.jobs.release(Release(job.job_id, 1, NODE, "test"))).used == 0
    [row] = (await node_changes(store, CELL, 0, 5)).rows
    assert row.used == 0


async def test_release_frees_the_slot_of_a_job_whose_record_is_lost(store: Store, raw: RedisClient, keys: Keys) -> None:
    job = await placed(store)
    raw.delete(keys.job(CELL, job.job_id))
    assert (await store.jobs.release(Release(job.job_id, 1, NODE, "test"))).verdict == "unknown"
    assert raw.zscore(keys.leases(CELL, NODE), lease_member(job.job_id, 1)) is None


async def test_records_have_their_ttl(store: Store, raw: RedisClient, keys: Keys) -> None:
    job = await placed(store)
    cell = cell_of_job(job.job_id)
    assert 370_000 < raw.pttl(keys.job(cell, job.job_id)) <= 380_000
    assert 360_000 < raw.pttl(keys.leases(cell, NODE)) <= 365_000
    assert 0 < raw.pttl(keys.binding(cell_of("s-1", CELLS), "r-1")) <= 60_000


@pytest.mark.parametrize(
    "job_id", ["", "job", "job-", "job-x-1", "job-99-1", "job--1-1", "job-03-{x}", "job-03-" + "x" * 99]
)
async def test_invalid_job_id_is_unknown(store: Store, job_id: str) -> None:
    assert (await advance_job(store, job_id, 1, NODE, "finish")).verdict == "unknown"
    assert (await store.jobs.release(Release(job_id, 1, NODE, "test"))).verdict == "unknown"


async def test_failed_advance_or_release_of_many_fails_alone(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, NODE, max_jobs=9)
    jobs = await store.commits.commit([request(f"r-{n}", [NODE]) for n in range(4)])
    raw.delete(keys.job(CELL, jobs[1].job_id))
    raw.set(keys.job(CELL, jobs[1].job_id), "not a hash")
    ids = [jobs[0].job_id, jobs[1].job_id, "no job", jobs[2].job_id]
    advanced = await store.jobs.advance([Advance(job_id, 1, NODE, "dispatch accept start") for job_id in ids])
    assert [one if isinstance(one, StoreError) else (one.verdict, one.state) for one in advanced] == [
        ("moved", "RUNNING"),
        advanced[1],
        ("unknown", ""),
        ("moved", "RUNNING"),
    ]
    assert "WRONGTYPE" in str(advanced[1])
    releases = [store.jobs.release(Release(job_id, 1, NODE, "test")) for job_id in [*ids, jobs[3].job_id]]
    released = await asyncio.gather(*releases, return_exceptions=True)
    verdicts = [one.verdict for one in released if isinstance(one, Released)]
    assert verdicts == ["released", "unknown", "released", "released"]
    assert isinstance(released[1], StoreError)


async def test_a_set_of_leases_outlives_its_leases(store: Store, raw: RedisClient, keys: Keys) -> None:
    """Only the first lease and heartbeats give it life, so that a commit need not."""
    job = await placed(store)
    leases = keys.leases(CELL, NODE)
    raw.pexpire(leases, 100_000)
    await store.commits.commit([request("r-2", [NODE])])
    assert raw.pttl(leases) <= 100_000
    await beat(store, NODE, job.node_epoch)
    assert raw.pttl(leases) > 360_000
    raw.pexpire(leases, 100_000)
    await advance_job(store, job.job_id, 1, NODE, "start")
    assert raw.pttl(leases) > 360_000


async def test_job_get_returns_state_fence_and_times(store: Store) -> None:
    job = await placed(store)
    await advance_job(store, job.job_id, 1, NODE, "dispatch start")
    record = await job_record(store, job.job_id)
    assert record is not None
    assert (record.state, record.attempt, record.node_id) == ("RUNNING", 1, NODE)
    assert (record.request_id, record.session_id, record.edge) == ("r-1", "s-1", "edge:b:0002")
    assert set(record.times) == {"created", "dispatch", "start"}
    await store.jobs.release(Release(job.job_id, 1, NODE, "node gone: for good"))
    record = await job_record(store, job.job_id)
    assert record is not None and (record.state, record.reason) == ("RELEASED", "node gone: for good")
    assert record.outcome == "" and "release" in record.times
    assert await job_record(store, "job-03-none") is None


async def test_release_returns_the_version_of_the_node(store: Store) -> None:
    """With the cell's, a snapshot would take a change of the node that it has yet to read for an old one."""
    job = await placed(store)
    neighbour = next(name for name in (f"n{i}" for i in range(1_000)) if cell_of(name, CELLS) == CELL)
    await store.jobs.release(Release(job.job_id, 1, NODE, "test"))
    [row] = (await node_changes(store, CELL, 0, 5)).rows
    await register(store, neighbour)
    assert (await store.jobs.release(Release(job.job_id, 1, NODE, "test"))).version == row.version
