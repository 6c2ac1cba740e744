"""Slots beside running jobs: both are set right by heartbeats, and never is a slot sold twice."""

from __future__ import annotations

import pytest

from lua.engine.runner import Runner
from lua.store import Store
from lua.store.types.commits import Committed
from lua.store.types.jobs import Release
from mesh.cells import cell_of
from mesh.keys import Keys, lease_member
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS, advance_job, beat, in_cell, job_record, node_changes, register, request
from tests.support.reference.redis_time import pass_time

NODE = "node-1"
CELL = cell_of(NODE, CELLS)
SESSION = in_cell("s-", CELL)
GRACE_MS = 5_000


@pytest.fixture
async def epoch(store: Store) -> int:
    return (await register(store, NODE)).epoch


async def place(store: Store, request_id: str) -> Committed:
    """A job whose slot is held for as long as a job's slot is, on a cluster too."""
    [placed] = await store.commits.commit([request(request_id, [NODE], session_id=SESSION)])
    return placed


def members(raw: RedisClient, keys: Keys) -> set[str]:
    return {member.decode() for member in raw.zrange(keys.leases(CELL, NODE), 0, -1)}


async def test_orphaned_lease_is_released(store: Store, raw: RedisClient, keys: Keys, epoch: int) -> None:
    lost, kept = await place(store, "r-1"), await place(store, "r-2")
    said = [lease_member(kept.job_id, 1)]
    early = await beat(store, NODE, epoch, jobs=said)
    assert (early.used, early.leaked) == (2, 0), "it may have crossed what the node said"
    pass_time(raw, keys, NODE, GRACE_MS)
    beaten = await beat(store, NODE, epoch, jobs=said)
    assert (beaten.used, beaten.leaked, beaten.missing) == (1, 1, 0)
    assert members(raw, keys) == set(said)
    record = await job_record(store, lost.job_id)
    assert record is not None and (record.state, record.reason, record.outcome) == ("RELEASED", "audit", "")
    [row] = (await node_changes(store, CELL, 0, 10)).rows
    assert (row.used, row.version) == (1, beaten.version)
    [again] = await store.commits.commit([request("r-1", [NODE], session_id=SESSION)])
    assert (again.verdict, again.state, again.finished) == ("bound", "RELEASED", False), (
        "its edge tries another attempt"
    )


async def test_drift_is_stored_until_an_audit_finds_none(
    store: Store, raw: RedisClient, keys: Keys, epoch: int
) -> None:
    async def drift() -> int:
        [row] = (await node_changes(store, CELL, 0, 10)).rows
        return row.drift

    await place(store, "r-1")
    lost = await place(store, "r-2")
    assert await drift() == 0
    pass_time(raw, keys, NODE, GRACE_MS)
    running = [lease_member(lost.job_id, 1)]
    raw.zrem(keys.leases(CELL, NODE), *running)
    beaten = await beat(store, NODE, epoch, jobs=running)
    assert (beaten.leaked, beaten.missing) == (1, 1)
    assert await drift() == 2
    await beat(store, NODE, epoch)
    assert await drift() == 2, "it named no jobs, so nothing was compared"
    await beat(store, NODE, epoch, jobs=running)
    assert await drift() == 0
    assert (await beat(store, NODE, epoch, jobs=[f"job-{CELL:02d}-x#1"])).missing == 1
    await store.nodes.set_offline(NODE, epoch, "gone")
    assert not raw.hexists(keys.ledger(CELL), f"{NODE}#d")


async def test_heartbeat_without_job_list_audits_nothing(
    store: Store, raw: RedisClient, keys: Keys, epoch: int
) -> None:
    await place(store, "r-1")
    pass_time(raw, keys, NODE, GRACE_MS)
    assert (await beat(store, NODE, epoch)).used == 1
    assert (await beat(store, NODE, epoch, jobs=[f"job-{CELL:02d}-x#1"] * 1 + ["x"] * 2_000)).leaked == 0, "too many"
    assert (await beat(store, NODE, epoch, jobs=[])).leaked == 1


async def test_lost_lease_of_a_running_job_is_restored(store: Store, raw: RedisClient, keys: Keys, epoch: int) -> None:
    job = await place(store, "r-1")
    member = lease_member(job.job_id, 1)
    raw.delete(keys.leases(CELL, NODE))
    beaten = await beat(store, NODE, epoch, jobs=[member])
    assert (beaten.used, beaten.missing, beaten.leaked) == (1, 1, 0)
    assert members(raw, keys) == {member}
    assert raw.pttl(keys.leases(CELL, NODE)) > 0
    assert (await advance_job(store, job.job_id, 1, NODE, "finish release")).used == 0


async def test_running_job_with_a_lost_record_is_leased_and_released(
    store: Store, raw: RedisClient, keys: Keys, epoch: int
) -> None:
    job = await place(store, "r-1")
    raw.delete(keys.leases(CELL, NODE), keys.job(CELL, job.job_id))
    assert (await beat(store, NODE, epoch, jobs=[lease_member(job.job_id, 1)])).missing == 1
    done = await advance_job(store, job.job_id, 1, NODE, "finish release")
    assert (done.verdict, done.used) == ("unknown", 0)


@pytest.mark.parametrize("how", ["released", "finished", "another attempt", "another node"])
async def test_ended_or_foreign_job_gets_no_lease(
    store: Store, raw: RedisClient, keys: Keys, epoch: int, how: str
) -> None:
    job = await place(store, "r-1")
    raw.delete(keys.leases(CELL, NODE))
    if how == "released":
        await store.jobs.release(Release(job.job_id, 1, NODE, "cancelled"))
    elif how == "finished":
        raw.hset(keys.job(CELL, job.job_id), "state", "FINISHED")
    elif how == "another node":
        raw.hset(keys.job(CELL, job.job_id), "holder", "1 node-2")
    attempt = 2 if how == "another attempt" else 1
    beaten = await beat(store, NODE, epoch, jobs=[lease_member(job.job_id, attempt)])
    assert (beaten.used, beaten.missing) == (0, 0)


async def test_restored_leases_never_exceed_the_slots(store: Store, raw: RedisClient, keys: Keys, epoch: int) -> None:
    first, second = await place(store, "r-1"), await place(store, "r-2")
    raw.zrem(keys.leases(CELL, NODE), lease_member(first.job_id, 1))
    third = await place(store, "r-3")
    assert third.used == 2
    said = [lease_member(job.job_id, 1) for job in (first, second, third)]
    assert (await beat(store, NODE, epoch, jobs=said)).missing == 0
    assert members(raw, keys) == set(said[1:])
    await advance_job(store, second.job_id, 1, NODE, "finish release")
    beaten = await beat(store, NODE, epoch, jobs=said)
    assert (beaten.missing, beaten.used) == (1, 2), "there is room now, and what finished does not come back"


async def test_heartbeats_renew_the_leases_of_long_jobs(store: Store, raw: RedisClient, keys: Keys, epoch: int) -> None:
    job = await place(store, "r-1")
    for _ in range(5):
        pass_time(raw, keys, NODE, 15_000)
        beaten = await beat(store, NODE, epoch, jobs=[lease_member(job.job_id, 1)])
        assert (beaten.used, beaten.missing) == (1, 0)


@pytest.mark.parametrize(
    "said", ["", "#1", "job-99-x#1", f"job-{CELL:02d}-x", f"job-{CELL:02d}-x#x", "job-x#1", "a#b#c"]
)
async def test_reported_job_of_another_cell_or_with_an_invalid_id_is_skipped(
    store: Store, raw: RedisClient, keys: Keys, epoch: int, said: str
) -> None:
    beaten = await beat(store, NODE, epoch, jobs=[said])
    assert (beaten.verdict, beaten.used, beaten.missing) == ("ok", 0, 0)
    assert not raw.exists(keys.leases(CELL, NODE))


async def test_lease_renewed_before_its_audit_is_kept(
    store: Store, runner: Runner, raw: RedisClient, keys: Keys, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat found it unused; before that is acted on, the job's edge hands it over after all."""
    job = await place(store, "r-1")
    pass_time(raw, keys, NODE, GRACE_MS)
    call_many = runner.call_many

    async def with_an_event_between(script: str, calls: list) -> list:  # type: ignore[type-arg]
        if script == "lease_audit":
            assert (await advance_job(store, job.job_id, 1, NODE, "dispatch")).leased
        return await call_many(script, calls)

    monkeypatch.setattr(runner, "call_many", with_an_event_between)
    beaten = await beat(store, NODE, epoch, jobs=[])
    assert (beaten.leaked, beaten.used) == (0, 1)
    record = await job_record(store, job.job_id)
    assert record is not None and record.state == "DISPATCHED"


@pytest.mark.parametrize("redis_config", ["cluster"], indirect=True)
async def test_provisional_lease_is_not_audited(store: Store, raw: RedisClient, keys: Keys, epoch: int) -> None:
    far = next(name for name in (f"s-{n}" for n in range(100)) if cell_of(name, CELLS) != CELL)
    [placed] = await store.commits.commit([request("r-1", [NODE], session_id=far)])
    assert placed.verdict == "new"
    assert (await beat(store, NODE, epoch, jobs=[])).leaked == 0
    pass_time(raw, keys, NODE, GRACE_MS)
    assert (await beat(store, NODE, epoch, jobs=[])).used == 0
