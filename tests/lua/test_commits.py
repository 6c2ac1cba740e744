from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from lua.engine.runner import Runner
from lua.store import Store
from lua.store.types.commits import PASSED_OVER, Bound, CommitRequest, Committed
from lua.store.types.jobs import Release
from mesh.cells import cell_of, cell_of_job
from mesh.config import Config
from mesh.errors import StoreError
from mesh.keys import Keys, lease_member
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS, EDGE, advance_job, caps, in_cell, node_changes, register, request

NODE, OTHER = "node-1", "node-2"


async def commit(store: Store, one: CommitRequest) -> Committed:
    [placed] = await store.commits.commit([one])
    return placed


def leases_of(raw: RedisClient, keys: Keys, node_id: str) -> set[str]:
    return {member.decode() for member in raw.zrange(keys.leases(cell_of(node_id, CELLS), node_id), 0, -1)}


async def test_commit_writes_lease_job_and_binding(store: Store, raw: RedisClient, keys: Keys) -> None:
    epoch = (await register(store, NODE)).epoch
    placed = await commit(store, request("r-1", [NODE]))
    assert (placed.verdict, placed.node_id, placed.node_edge, placed.node_epoch) == ("new", NODE, EDGE, epoch)
    assert (placed.attempt, placed.state, placed.finished, placed.used) == (1, "CREATED", False, 1)
    assert cell_of_job(placed.job_id) == cell_of(NODE, CELLS)
    assert leases_of(raw, keys, NODE) == {lease_member(placed.job_id, 1)}
    job = raw.hgetall(keys.job(cell_of_job(placed.job_id), placed.job_id))
    assert (job[b"state"], job[b"holder"], job[b"request"], job[b"about"]) == (
        b"CREATED",
        b"1 node-1",
        b"r-1 s-1 edge:b:0002",
        b"7 99000 trace-1",
    )
    binding = raw.get(keys.binding(cell_of("s-1", CELLS), "r-1"))
    assert binding.decode() == f"1 {placed.job_id} {NODE} {EDGE} {epoch}"
    assert await store.commits.find("r-1", "s-1") == Bound(placed.job_id, NODE, EDGE, epoch, attempt=1)
    assert await store.commits.find("r-2", "s-1") is None


async def test_repeated_request_is_placed_once(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, NODE)
    await register(store, OTHER)
    first = await commit(store, request("r-1", [NODE]))
    again = await commit(store, request("r-1", [OTHER, NODE]))
    assert (again.verdict, again.job_id, again.node_id) == ("bound", first.job_id, NODE)
    assert (again.state, again.finished) == ("CREATED", False)
    assert leases_of(raw, keys, OTHER) == set() and len(leases_of(raw, keys, NODE)) == 1


@pytest.mark.parametrize("session_id", [in_cell("s-", cell_of(NODE, CELLS)), in_cell("s-", 3)])
async def test_binding_outlives_the_retries_of_its_edge(
    store: Store, raw: RedisClient, keys: Keys, config: Config, session_id: str
) -> None:
    """Were it gone while its job runs, a repeat would be a second job."""
    await register(store, NODE)
    await commit(store, request("r-1", [NODE], session_id=session_id))
    assert config.job.lease_ms < config.job.deadline_ms
    left_ms = raw.pttl(keys.binding(cell_of(session_id, CELLS), "r-1"))
    assert left_ms > config.job.deadline_ms - 5_000


async def test_hundred_concurrent_duplicates_create_one_job(store: Store, raw: RedisClient, keys: Keys) -> None:
    nodes = [f"node-{n}" for n in range(10)]
    for node_id in nodes:
        await register(store, node_id, max_jobs=20)
    copies = [request("r-1", [nodes[n % 10], nodes[(n + 3) % 10]]) for n in range(100)]
    answers = await asyncio.gather(*(commit(store, copy) for copy in copies))
    assert sum(answer.verdict == "new" for answer in answers) == 1
    assert len({answer.job_id for answer in answers}) == 1
    assert sum(len(leases_of(raw, keys, node_id)) for node_id in nodes) == 1


async def test_duplicate_is_bound_when_every_node_is_full(store: Store) -> None:
    await register(store, NODE, max_jobs=1)
    first = await commit(store, request("r-1", [NODE]))
    again = await commit(store, request("r-1", [NODE]))
    assert (again.verdict, again.job_id) == ("bound", first.job_id)


async def test_candidates_are_tried_in_order(store: Store) -> None:
    await register(store, NODE, max_jobs=1)
    await register(store, OTHER, max_jobs=1)
    placed = [await commit(store, request(f"r-{n}", [NODE, OTHER])) for n in range(3)]
    assert [one.node_id for one in placed] == [NODE, OTHER, ""]
    assert placed[2].verdict == "full" and placed[2].reasons == ("full", "full")


async def test_every_reason_for_skipping_a_candidate(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, "draining")
    await store.nodes.drain("draining", 1_000, "test")
    await store.nodes.register("new", EDGE, caps(), [])
    await register(store, "silent")
    await store.nodes.set_offline("left", (await register(store, "left")).epoch, "closed")
    raw.hincrby(keys.node(cell_of("silent", CELLS), "silent"), "last_seen_ms", -45_001)
    placed = await commit(store, request("r-1", ["nobody", "draining", "new", "silent", "left"]))
    assert (placed.verdict, placed.reasons) == ("unavailable", ("gone", "draining", "not_ready", "stale", "gone"))
    assert placed.verdict in PASSED_OVER and placed.seen == (), "their slots are not the reason"


@pytest.mark.parametrize("session_id", [in_cell("s-", cell_of(NODE, CELLS)), in_cell("s-", 3)])
async def test_candidates_without_records_are_unavailable_and_not_full(
    store: Store, raw: RedisClient, keys: Keys, session_id: str
) -> None:
    """A replica that takes over may have missed it; only a registration brings it back."""
    await register(store, NODE, max_jobs=1)
    await register(store, OTHER, max_jobs=1)
    raw.delete(keys.node(cell_of(NODE, CELLS), NODE))
    lost = await commit(store, request("r-1", [NODE], session_id=session_id))
    assert (lost.verdict, lost.reasons, lost.seen) == ("unavailable", ("gone",), ())
    assert (await commit(store, request("r-1", [NODE, OTHER], session_id=session_id))).node_id == OTHER
    full = await commit(store, request("r-2", [NODE, OTHER], session_id=session_id))
    assert (full.verdict, full.reasons) == ("full", ("gone", "full")), "waiting for a slot helps"
    await register(store, NODE, max_jobs=1)
    assert (await commit(store, request("r-2", [NODE], session_id=session_id))).verdict == "new"


async def test_expired_leases_free_their_slots(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, NODE, max_jobs=1)
    raw.zadd(keys.leases(cell_of(NODE, CELLS), NODE), {"job-old#1": 1})
    assert (await commit(store, request("r-1", [NODE]))).verdict == "new"
    assert len(leases_of(raw, keys, NODE)) == 1


async def test_no_candidates_is_unavailable(store: Store) -> None:
    placed = await commit(store, request("r-1", []))
    assert (placed.verdict, placed.verdict in PASSED_OVER, placed.reasons) == ("unavailable", True, ())
    assert await store.commits.commit([]) == []


async def test_higher_attempt_replaces_the_binding_and_a_lower_one_does_not(store: Store) -> None:
    await register(store, NODE)
    await register(store, OTHER)
    first = await commit(store, request("r-1", [NODE], attempt=1))
    second = await commit(store, request("r-1", [OTHER], attempt=2))
    assert (second.verdict, second.node_id, second.attempt) == ("new", OTHER, 2)
    late = await commit(store, request("r-1", [NODE], attempt=1))
    assert (late.verdict, late.job_id, late.attempt) == ("bound", second.job_id, 2)
    assert first.job_id != second.job_id


async def test_bound_result_carries_the_state_of_the_job(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, NODE, max_jobs=9)
    done = await commit(store, request("r-done", [NODE]))
    given_up = await commit(store, request("r-up", [NODE]))
    lost = await commit(store, request("r-lost", [NODE]))
    await advance_job(store, done.job_id, 1, NODE, "finish release")
    await store.jobs.release(Release(given_up.job_id, 1, NODE, "assign_failed"))
    raw.delete(keys.job(cell_of_job(lost.job_id), lost.job_id))
    answers = [await commit(store, request(name, [NODE])) for name in ("r-done", "r-up", "r-lost")]
    assert [(one.verdict, one.state, one.finished) for one in answers] == [
        ("bound", "RELEASED", True),
        ("bound", "RELEASED", False),
        ("bound", "RELEASED", False),
    ]
    assert [one.asked_by for one in answers] == ["edge:b:0002", "edge:b:0002", ""]
    raw.hincrby(keys.job(cell_of_job(done.job_id), done.job_id), "finish_ms", -30_000)
    older = await commit(store, request("r-done", [NODE]))
    assert 0 <= answers[0].ended_for_ms < 30_000 <= older.ended_for_ms
    assert [one.ended_for_ms for one in answers[1:]] == [-1, -1]


async def test_failed_call_of_a_batch_fails_alone(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, NODE, max_jobs=9)
    raw.hset(keys.binding(cell_of("s-1", CELLS), "r-2"), "not", "a string")
    placed = await store.commits.commit([request(f"r-{n}", [NODE]) for n in range(4)])
    assert [one.verdict for one in placed] == ["new", "new", "unknown", "new"]
    assert "WRONGTYPE" in placed[2].reasons[0]


async def test_commit_that_loses_the_bind_releases_its_slot(
    store: Store, raw: RedisClient, keys: Keys, config: Config
) -> None:
    """Session and node in different cells: on a cluster that is reserve, then bind."""
    mine, far = in_cell("node-a", 1), in_cell("node-b", 2)
    session = in_cell("s-", 1)
    await register(store, mine)
    await register(store, far)
    winner = await commit(store, request("r-1", [far], session_id=session))
    loser = await commit(store, request("r-1", [mine], session_id=session))
    assert (winner.verdict, loser.verdict, loser.node_id) == ("new", "bound", far)
    assert leases_of(raw, keys, mine) == set()
    later = await commit(store, request("r-1", [far], session_id=session))
    assert later.verdict == "bound" and len(leases_of(raw, keys, far)) == 1


async def test_bind_after_the_provisional_lease_is_refused(runner: Runner, store: Store, keys: Keys) -> None:
    binding = keys.binding(3, "r-1")
    args = {
        "wanted": f"1 job-03-x {NODE} {EDGE} 5",
        "job_id": "job-03-x",
        "attempt": 1,
        "until_ms": 1,
        "bound_ms": 1_000,
    }
    assert (await runner.call("request_bind", [binding], args))[0] == "late"
    args["until_ms"] = 1 << 50
    assert (await runner.call("request_bind", [binding], args))[0] == "new"
    args["until_ms"] = 1
    assert (await runner.call("request_bind", [binding], args))[0] == "new", "a repeat of the bind that won is no loss"
    moved = args | {"wanted": f"1 job-03-x {NODE} {EDGE} 6"}
    assert (await runner.call("request_bind", [binding], moved))[0] == "new", "nor is one after the node came back"
    other = args | {"wanted": f"1 job-03-y {NODE} {EDGE} 5", "job_id": "job-03-y", "until_ms": 1 << 50}
    assert await runner.call("request_bind", [binding], other) == ["bound", f"1 job-03-x {NODE} {EDGE} 6"]


async def test_undecodable_binding_is_unknown(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, NODE)
    for text in ("nonsense", "9 job-03-x"):
        raw.set(keys.binding(cell_of("s-1", CELLS), "r-1"), text)
        assert (await commit(store, request("r-1", [NODE]))).verdict == "unknown"
        with pytest.raises(StoreError, match="unreadable binding"):
            await store.commits.find("r-1", "s-1")


@pytest.mark.parametrize("redis_config", ["cluster"], indirect=True)
async def test_provisional_lease_is_extended_by_dispatch(
    runner: Runner, raw: RedisClient, keys: Keys, config: Config
) -> None:
    job = msgspec.structs.replace(config.job, provisional_lease_ms=2_000, lease_ms=60_000)
    store = Store(runner, keys, msgspec.structs.replace(config, job=job))
    node, session = in_cell("node-", 5), in_cell("s-", 6)
    await register(store, node, max_jobs=1)
    now_ms = (await node_changes(store, 5, 0, 1)).now_ms
    placed = await commit(store, request("r-1", [node], session_id=session))
    leases, member = keys.leases(5, node), lease_member(placed.job_id, 1)
    assert raw.zscore(leases, member) < now_ms + 30_000
    advanced = await advance_job(store, placed.job_id, 1, node, "dispatch")
    assert advanced.leased and raw.zscore(leases, member) >= now_ms + 60_000


async def test_dispatch_renews_an_expired_lease_only_if_a_slot_is_free(
    store: Store, raw: RedisClient, keys: Keys
) -> None:
    await register(store, NODE, max_jobs=1)
    leases = keys.leases(cell_of(NODE, CELLS), NODE)
    first = await commit(store, request("r-1", [NODE]))
    raw.zadd(leases, {lease_member(first.job_id, 1): 1})  # its lease has expired
    second = await commit(store, request("r-2", [NODE]))
    assert second.verdict == "new"
    blocked = await advance_job(store, first.job_id, 1, NODE, "dispatch")
    assert (blocked.verdict, blocked.leased, blocked.used) == ("moved", False, 1)
    await store.jobs.release(Release(second.job_id, 1, NODE, "test"))
    taken = await advance_job(store, first.job_id, 1, NODE, "accept")
    assert (taken.verdict, taken.leased, taken.used) == ("moved", True, 1)


async def test_candidate_busier_than_expected_is_skipped(store: Store) -> None:
    await register(store, NODE, max_jobs=4)
    await register(store, OTHER, max_jobs=4)
    first = await commit(store, request("r-1", [NODE])._replace(expected=[0]))
    second = await commit(store, request("r-2", [NODE, OTHER])._replace(expected=[0, 0]))
    assert (first.node_id, second.node_id) == (NODE, OTHER)
    assert second.seen == ((NODE, 1, first.version),), "what was seen corrects the snapshot"
    both = await commit(store, request("r-3", [NODE, OTHER])._replace(expected=[0, 0]))
    assert (both.verdict, both.reasons) == ("full", ("moved", "moved"))
    assert both.seen == ((NODE, 1, first.version), (OTHER, 1, second.version))
    assert (await commit(store, request("r-3", [NODE, OTHER])._replace(expected=[-1, 0]))).node_id == NODE
    assert (await commit(store, request("r-4", [NODE, OTHER])._replace(expected=[1, 5]))).node_id == OTHER


async def test_full_node_reports_its_slots_in_use(store: Store) -> None:
    await register(store, NODE, max_jobs=1)
    first = await commit(store, request("r-1", [NODE]))
    refused = await commit(store, request("r-2", [NODE])._replace(expected=[9]))
    assert (refused.reasons, refused.seen) == (("full",), ((NODE, 1, first.version),))


async def test_expired_leases_do_not_count_against_expected(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, NODE, max_jobs=4)
    raw.zadd(keys.leases(cell_of(NODE, CELLS), NODE), {"job-old#1": 1})
    assert (await commit(store, request("r-1", [NODE])._replace(expected=[0]))).verdict == "new"


async def test_retry_after_a_lost_reply_gets_the_same_job_for_any_expected(
    store: Store, raw: RedisClient, keys: Keys
) -> None:
    await register(store, NODE)
    unique = "u" * 32
    first = await commit(store, request("r-1", [NODE], unique=unique)._replace(expected=[0]))
    again = await commit(store, request("r-1", [NODE], unique=unique)._replace(expected=[0]))
    assert (again.job_id, again.reasons) == (first.job_id, ())
    assert len(leases_of(raw, keys, NODE)) == 1


async def test_hundred_concurrent_commits_spread_over_hundred_nodes(store: Store) -> None:
    """Five choosers that know nothing of one another but what the commits tell them."""
    nodes = [f"node-{n}" for n in range(100)]
    for node_id in nodes:
        await register(store, node_id, max_jobs=4)
    taken = dict.fromkeys(nodes, 0)

    async def choose(number: int) -> None:
        dice = random.Random(number)
        used = dict.fromkeys(nodes, 0)
        placed = 0
        while placed < 20:
            candidates = sorted(nodes, key=lambda node: (used[node], dice.random()))[:3]
            asked = request(f"r-{number}-{placed}", candidates)
            answer = await commit(store, asked._replace(expected=[used[node] for node in candidates]))
            used |= {node: count for node, count, _ in answer.seen}
            if answer.verdict == "new":
                used[answer.node_id] = answer.used
                taken[answer.node_id] += 1
                placed += 1

    await asyncio.gather(*(choose(number) for number in range(5)))
    assert set(taken.values()) == {1}
