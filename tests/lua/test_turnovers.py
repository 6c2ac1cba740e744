"""A job ends and a waiting request gets its slot, in one call; on a server and on a cluster."""

from __future__ import annotations

import asyncio
import random

import pytest

from lua.engine.runner import Runner
from lua.store import Store
from lua.store.types.commits import CommitRequest, Committed
from lua.store.types.jobs import Advance, Advanced
from lua.store.types.turnovers import TurnedOver, Turnover
from mesh.cells import cell_of
from mesh.config.network import RedisConfig
from mesh.errors import StoreError
from mesh.keys import Keys, lease_member
from tests.lua.conftest import Connect, RedisClient
from tests.support.builders.store import CELLS, in_cell, job_record, node_changes, register, request, sampled

NODE, OTHER = "node-1", "node-2"
CELL = cell_of(NODE, CELLS)
#: In the node's hash slot: on a cluster too, everything fits one call.
NEAR = in_cell("s-", CELL)
FAR = in_cell("s-", (CELL + 1) % CELLS)


def finish_of(job: Committed, *, attempt: int = 1, took_ms: int = 600) -> Advance:
    return Advance(job.job_id, attempt, job.node_id, "", True, "zh>en", 2_000, took_ms)


async def turn(store: Store, job: Committed, waiting: CommitRequest | None = None, **said: int) -> TurnedOver:
    [turned] = await store.turnovers.turn_over([Turnover(finish_of(job, **said), waiting)])
    return turned


async def commit(store: Store, one: CommitRequest) -> Committed:
    [placed] = await store.commits.commit([one])
    return placed


def leases_of(raw: RedisClient, keys: Keys, node_id: str = NODE) -> set[str]:
    return {member.decode() for member in raw.zrange(keys.leases(cell_of(node_id, CELLS), node_id), 0, -1)}


@pytest.mark.parametrize("session_id", [NEAR, FAR])
async def test_slot_passes_from_a_finished_job_to_a_waiting_request(
    store: Store, raw: RedisClient, keys: Keys, session_id: str
) -> None:
    await register(store, NODE, max_jobs=1)
    job = await commit(store, request("r-1", [NODE]))
    finished, placed = await turn(store, job, request("r-2", [NODE], session_id=session_id)._replace(expected=[0]))
    assert isinstance(finished, Advanced) and placed is not None
    assert (finished.verdict, finished.state, finished.outcome, finished.used) == ("moved", "RELEASED", "ok", 0)
    assert finished.request_id == "r-1" and finished.speeds["*"].mean == 0.3
    assert (placed.verdict, placed.node_id, placed.used, placed.state) == ("new", NODE, 1, "CREATED")
    assert leases_of(raw, keys) == {lease_member(placed.job_id, 1)}
    [row] = (await node_changes(store, CELL, 0, 5)).rows
    assert (row.used, row.version) == (1, max(finished.version, placed.version))
    assert row.speeds == finished.speeds
    record = await job_record(store, placed.job_id)
    assert record is not None and (record.state, record.request_id, record.session_id) == ("CREATED", "r-2", session_id)


async def test_turnover_without_a_request_is_the_end_of_the_job(store: Store) -> None:
    await register(store, NODE, max_jobs=2)
    jobs = [await commit(store, request(f"r-{n}", [NODE])) for n in range(2)]
    turned = await store.turnovers.turn_over([Turnover(finish_of(job)) for job in jobs])
    assert [one.committed for one in turned] == [None, None]
    assert [one.finished.used for one in turned if isinstance(one.finished, Advanced)] == [1, 0]
    record = await job_record(store, jobs[0].job_id)
    assert record is not None and set(record.times) == {"created", "finish", "release"}


@pytest.mark.parametrize("session_id", [NEAR, FAR])
async def test_the_same_call_twice_changes_nothing_and_finds_the_job(
    store: Store, raw: RedisClient, keys: Keys, session_id: str
) -> None:
    await register(store, NODE, max_jobs=1)
    job = await commit(store, request("r-1", [NODE]))
    waiting = request("r-2", [NODE], session_id=session_id)
    first = await turn(store, job, waiting)
    before, version = leases_of(raw, keys), (await node_changes(store, CELL, 0, 5)).version
    again = await turn(store, job, waiting)
    assert isinstance(again.finished, Advanced) and first.committed is not None and again.committed is not None
    assert (again.finished.verdict, again.finished.finished, again.finished.speeds) == ("same", True, {})
    assert again.committed.job_id == first.committed.job_id
    # Reserved and bound apart, a retried bind of the same job counts as new.
    assert again.committed.verdict == ("new" if store.turnovers._runner.is_cluster and session_id == FAR else "bound")
    assert again.committed.state == "CREATED", "its Assign may be lost"
    assert leases_of(raw, keys) == before
    assert (await node_changes(store, CELL, 0, 5)).version == version


async def test_duplicate_end_never_releases_the_slot_of_the_next_job(
    store: Store, raw: RedisClient, keys: Keys
) -> None:
    await register(store, NODE, max_jobs=1)
    job = await commit(store, request("r-1", [NODE]))
    await turn(store, job, request("r-2", [NODE], session_id=NEAR))
    for _ in range(3):
        turned = await turn(store, job, request("r-3", [NODE], session_id=NEAR))
        assert turned.committed is not None and turned.committed.verdict == "full"
    assert len(leases_of(raw, keys)) == 1


async def test_end_of_another_attempt_is_fenced_and_frees_no_slot(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, NODE, max_jobs=1)
    job = await commit(store, request("r-1", [NODE]))
    finished, placed = await turn(store, job, request("r-2", [NODE], session_id=NEAR), attempt=2)
    assert isinstance(finished, Advanced) and (finished.verdict, finished.used) == ("fenced", -1)
    assert placed is not None and (placed.verdict, placed.reasons, placed.seen[0][1]) == ("full", ("full",), 1)
    assert leases_of(raw, keys) == {lease_member(job.job_id, 1)}


async def test_expired_lease_is_no_slot_of_its_own(store: Store, raw: RedisClient, keys: Keys) -> None:
    """Its slot went to another job meanwhile: its end must not make room for a third."""
    await register(store, NODE, max_jobs=1)
    job = await commit(store, request("r-1", [NODE]))
    raw.zadd(keys.leases(CELL, NODE), {lease_member(job.job_id, 1): 1})
    second = await commit(store, request("r-2", [NODE], session_id=NEAR))
    assert second.verdict == "new"
    finished, placed = await turn(store, job, request("r-3", [NODE], session_id=NEAR))
    assert isinstance(finished, Advanced) and (finished.verdict, finished.used) == ("moved", 1)
    assert placed is not None and placed.verdict == "full"
    assert leases_of(raw, keys) == {lease_member(second.job_id, 1)}


async def test_job_without_a_record_still_gives_its_slot(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, NODE, max_jobs=1)
    job = await commit(store, request("r-1", [NODE]))
    raw.delete(keys.job(CELL, job.job_id))
    finished, placed = await turn(store, job, request("r-2", [NODE], session_id=NEAR))
    assert isinstance(finished, Advanced) and (finished.verdict, finished.used) == ("unknown", 0)
    assert placed is not None and placed.verdict == "new"


async def test_request_may_go_to_another_node_than_the_one_that_was_freed(
    store: Store, raw: RedisClient, keys: Keys
) -> None:
    await register(store, NODE, max_jobs=1)
    await register(store, OTHER, max_jobs=1)
    job = await commit(store, request("r-1", [NODE]))
    finished, placed = await turn(store, job, request("r-2", [OTHER, NODE]))
    assert isinstance(finished, Advanced) and placed is not None
    assert (placed.verdict, placed.node_id, placed.used) == ("new", OTHER, 1)
    assert (leases_of(raw, keys), len(leases_of(raw, keys, OTHER))) == (set(), 1)
    for node_id, used, version in ((NODE, 0, finished.version), (OTHER, 1, placed.version)):
        rows = (await node_changes(store, cell_of(node_id, CELLS), 0, 5)).rows
        assert [(row.used, row.version) for row in rows if row.node_id == node_id] == [(used, version)]


async def test_invalid_job_id_costs_neither_its_neighbours_nor_its_request(store: Store) -> None:
    await register(store, NODE, max_jobs=2)
    job = await commit(store, request("r-1", [NODE]))
    broken = job._replace(job_id="not a job")
    one, two = await store.turnovers.turn_over(
        [Turnover(finish_of(broken), request("r-2", [NODE])), Turnover(finish_of(job))]
    )
    assert isinstance(one.finished, Advanced) and one.finished.verdict == "unknown"
    assert one.committed is not None and one.committed.verdict == "new"
    assert isinstance(two.finished, Advanced) and two.finished.verdict == "moved"


async def test_failed_call_leaves_its_request_unknown(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, NODE, max_jobs=2)
    jobs = [await commit(store, request(f"r-{n}", [NODE])) for n in range(2)]
    raw.delete(keys.job(CELL, jobs[0].job_id))
    raw.set(keys.job(CELL, jobs[0].job_id), "not a hash")
    steps = [Turnover(finish_of(jobs[0]), request("r-8", [NODE], session_id=NEAR)), Turnover(finish_of(jobs[1]))]
    one, two = await store.turnovers.turn_over(steps)
    assert isinstance(one.finished, StoreError) and one.committed is not None and one.committed.verdict == "unknown"
    assert isinstance(two.finished, Advanced) and two.finished.verdict == "moved"


async def test_turnovers_of_concurrent_selectors_sell_no_slot_twice(
    connect: Connect, redis_config: RedisConfig, store: Store, raw: RedisClient, keys: Keys
) -> None:
    """Six selectors end jobs and place others, with duplicates, against nodes that are always full."""
    nodes, slots, selectors, rounds = [f"node-{n}" for n in range(6)], 2, 6, 40
    for node_id in nodes:
        await register(store, node_id, slots)
    running: list[Committed] = []
    for number in range(len(nodes) * slots):
        running.append(await commit(store, request(f"first-{number}", [nodes[number % len(nodes)]])))
    ended: set[str] = set()
    placed: dict[str, str] = {}

    async def select(number: int, runner: Runner) -> None:
        own, dice = Store(runner, keys, store_config), random.Random(number)
        for step in range(rounds):
            jobs = [running.pop(dice.randrange(len(running))) for _ in range(min(len(running), 2))]
            wanted = [
                request(
                    f"r-{number}-{step}-{at}", [job.node_id, dice.choice(nodes)], session_id=dice.choice([NEAR, FAR])
                )
                for at, job in enumerate(jobs)
            ]
            steps = [Turnover(finish_of(job), one) for job, one in zip(jobs, wanted, strict=True)]
            if dice.random() < 0.3:
                steps += steps[:1]  # a retried Finished, with the same request
            for turnover, turned in zip(steps, await own.turnovers.turn_over(steps), strict=True):
                assert isinstance(turned.finished, Advanced) and turned.committed is not None
                ended.add(turnover.finish.job_id)
                if turned.committed.verdict != "new":
                    continue
                assert turnover.request is not None
                name, job_id = turnover.request.request_id, turned.committed.job_id
                if name not in placed:
                    running.append(turned.committed)
                assert placed.setdefault(name, job_id) == job_id, "placed twice"

    store_config = store.turnovers._commits._config
    runners = [await connect(redis_config) for _ in range(selectors)]
    with sampled(raw, keys, nodes) as seen:
        await asyncio.gather(*(select(number, runner) for number, runner in enumerate(runners)))
    assert seen[0] <= slots, "never more than max"
    assert len(set(placed.values())) == len(placed) > selectors * rounds // 2
    leases = {member.rsplit("#", 1)[0] for node_id in nodes for member in leases_of(raw, keys, node_id)}
    assert leases == {job.job_id for job in running}, "exactly the running jobs hold slots"
    assert not leases & ended
