from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import msgspec
import pytest
import redis

from linguamesh.local.redis_server import RedisServer
from mesh.cells import cell_of
from mesh.frames import (
    Assign,
    AssignFailed,
    Bounce,
    Cancel,
    CancelJob,
    Failed,
    JobEvent,
    NodeHeartbeat,
    NodeLoad,
    NodeOffline,
    NodeRegister,
    NodeRegistered,
    NodeStale,
    Push,
    Refused,
    SessionClaim,
    SessionClaimed,
    SessionRelease,
    Undone,
    Waiting,
)
from mesh.keys import Keys
from tests.support.builders.selector import CAPS
from tests.support.builders.store import session_owner
from tests.support.conditions import DEADLINE_S
from tests.support.processes.selector import FakeEdge, Rig, selecting, until


@pytest.fixture(scope="module")
def mesh(_redis_process: RedisServer) -> Iterator[Rig]:
    """One selector."""
    with selecting(_redis_process, "s1") as rig:
        yield rig


async def test_one_utterance_from_registration_to_result(rig: Rig, edge: FakeEdge) -> None:
    node_edge = await rig.add_edge("b")
    epoch = await node_edge.add_node("node-1")

    assign, payload = await edge.place("r-1", at=node_edge)
    assert (assign.node_id, assign.node_epoch, assign.attempt) == ("node-1", epoch, 1)
    assert (assign.request_id, assign.session_edge) == ("r-1", edge.identity)
    assert payload == [b"work", b"audio"]
    assert await rig.used("node-1") == 1

    for event in ("dispatch", "accept", "start"):
        node_edge.send_job(assign.job_id, JobEvent(assign.job_id, 1, "node-1", event))
    node_edge.finish(assign, b'{"type":"job_result"}')
    push, payload = await edge.take(Push)
    assert (push.job_id, push.request_id, push.node_edge) == (assign.job_id, "r-1", node_edge.identity)
    assert payload == [b'{"type":"job_result"}']
    await rig.until_used("node-1", 0)


async def test_a_finished_job_releases_its_slot_and_is_acknowledged_once_per_report(rig: Rig, edge: FakeEdge) -> None:
    node_edge = await rig.add_edge("b")
    await node_edge.add_node("node-1", max_jobs=1)
    assign, _ = await edge.place("r-1", at=node_edge, session_epoch=7, arrived_us=1)
    assert (assign.selector, assign.session_epoch) == (rig.identities["s1"], 7)
    assert len(assign.stages) == 5 and assign.stages[0] > 1_000 and min(assign.stages) >= 0
    assert assign.sent_us > 0
    for to in (None, None, ""):  # retried: the acknowledgement was lost; at last to any selector of its cell
        node_edge.finish_directly(assign, to=to)
        await node_edge.take_finished(assign)
    await rig.until_used("node-1", 0)
    other, _ = await edge.place("r-2", at=node_edge)
    node_edge.finish_directly(assign)  # a late duplicate must not release the slot of the next job
    await node_edge.take_finished(assign)
    assert await rig.used("node-1") == 1
    node_edge.finish_directly(other, attempt=9)  # of another attempt: fenced, and acknowledged nevertheless
    await node_edge.take_finished(msgspec.structs.replace(other, attempt=9))
    assert await rig.used("node-1") == 1
    node_edge.finish_directly(msgspec.structs.replace(other, job_id="job-00-unheard-of"))
    await node_edge.take_finished(msgspec.structs.replace(other, job_id="job-00-unheard-of"))
    assert not node_edge.has(Push) and not edge.has(Push)


async def test_a_result_that_comes_by_a_selector_finishes_its_job_too(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    assign, _ = await edge.place("r-1")
    edge.finish(assign)
    await edge.take_finished(assign)
    await rig.until_used("node-1", 0)


async def test_a_repeated_dispatch_is_the_same_job(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    first, _ = await edge.place("r-1")
    again, payload = await edge.place("r-1")
    assert (again.job_id, again.node_id) == (first.job_id, first.node_id)
    assert payload == [b"work", b"audio"], "the first Assign may have been lost with its audio"
    assert await rig.used("node-1") == 1

    edge.finish(first)
    await edge.take(Push)
    edge.dispatch("r-1")  # finished: nothing to say; the next request's Assign shows that this one has been seen
    await edge.place("r-2")
    assert not any(isinstance(m.frame, Assign) and m.frame.request_id == "r-1" for m in edge.received)


async def test_a_repeat_that_finds_its_own_slot_taken_is_not_refused(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1", max_jobs=1)
    first, _ = await edge.place("r-1")
    edge.dispatch("r-1")
    again, _ = await edge.take(Assign)
    assert again.job_id == first.job_id
    assert not edge.has(Refused)


async def test_a_repeated_result_is_pushed_again_to_whoever_owns_the_session_now(rig: Rig, edge: FakeEdge) -> None:
    other = await rig.add_edge("other")
    await edge.add_node("node-1")
    assign, _ = await edge.place("r-1")
    other.send_record("s-1", SessionClaim("ref", "s-1", other.identity, 0, "", "en", "es"))
    await other.take(SessionClaimed)
    edge.finish(assign)
    await edge.take(Push)
    edge.finish(assign, resend=1)
    push, _ = await other.take(Push)
    assert push.job_id == assign.job_id


async def test_no_node_is_told_with_counts_and_whether_to_wait(rig: Rig, edge: FakeEdge) -> None:
    seen: list[Waiting] = []

    async def sees_no_nodes() -> bool:  # the test before this one may still be in the snapshot
        edge.dispatch("r-0")
        seen.append((await edge.take(Waiting))[0])
        edge.withdraw("r-0")
        return seen[-1].reason == "no_nodes"

    await until(sees_no_nodes)
    assert seen[-1].ask_again_ms > 0

    await edge.add_node("node-1", max_jobs=1)
    await edge.place("r-1")
    edge.dispatch("r-2")
    waiting, _ = await edge.take(Waiting, lambda frame: frame.request_id == "r-2")
    assert waiting.reason == "capacity_exceeded"

    edge.dispatch("r-3", src_lang="xx")
    refused, _ = await edge.take(Refused, lambda frame: frame.request_id == "r-3")
    assert (refused.code, refused.reason) == ("NO_AVAILABLE_NODE", "asr_lang_unsupported")
    assert refused.removed == {"asr_lang_unsupported": 1}
    assert refused.nearest_node == "node-1"
    assert refused.retry_after_ms == 0, "no waiting helps"


async def test_a_failed_assign_gives_the_slot_back_and_takes_an_absent_node_off(rig: Rig, edge: FakeEdge) -> None:
    epoch = await edge.add_node("node-1")
    assign, _ = await edge.place("r-1")
    edge.send_job(
        assign.job_id,
        AssignFailed(assign.job_id, 1, "node-1", epoch, "r-1", edge.identity, "node_absent"),
    )
    undone, _ = await edge.take(Undone)
    assert (undone.request_id, undone.attempt, undone.reason, undone.exclude_node) == ("r-1", 1, "node_absent", True)
    await rig.until_used("node-1", -1)
    edge.dispatch("r-1", attempt=2, excluded=["node-1"])
    waiting, _ = await edge.take(Waiting, lambda frame: frame.attempt == 2)
    assert waiting.reason == "no_nodes"


async def test_the_next_attempt_replaces_the_binding_and_fences_the_old_one(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    await edge.add_node("node-2")
    old, _ = await edge.place("r-1")
    edge.send_job(old.job_id, Cancel("r-1", old.job_id, 1, old.node_id, "s-1", "job_timeout"))
    cancel, _ = await edge.take(CancelJob)
    assert (cancel.job_id, cancel.attempt, cancel.reason) == (old.job_id, 1, "job_timeout")
    new, _ = await edge.place("r-1", attempt=2, excluded=[old.node_id])
    assert new.node_id != old.node_id and new.attempt == 2

    edge.finish(old)
    ack = await edge.take_ack()
    assert (ack.job_id, ack.verdict) == (old.job_id, "fenced")
    edge.finish(new)
    push, _ = await edge.take(Push)
    assert push.job_id == new.job_id
    for node_id in ("node-1", "node-2"):
        await rig.until_used(node_id, 0)


async def test_a_job_that_its_node_lost_is_undone_and_the_node_stays(rig: Rig, edge: FakeEdge) -> None:
    epoch = await edge.add_node("node-1", max_jobs=1)
    assign, _ = await edge.place("r-1")
    failed = AssignFailed(assign.job_id, 1, "node-1", epoch, "r-1", edge.identity, "job_lost")
    edge.send_job(assign.job_id, failed)
    undone, _ = await edge.take(Undone)
    assert (undone.reason, undone.exclude_node) == ("job_lost", False)
    await rig.until_used("node-1", 0)
    edge.dispatch("r-1")  # its edge did not hear of it: a repeat is told again
    undone, _ = await edge.take(Undone)
    assert (undone.attempt, undone.job_id, undone.reason) == (1, assign.job_id, "released")
    again, _ = await edge.place("r-1", attempt=2)
    assert (again.node_id, again.attempt) == ("node-1", 2)


async def test_a_node_that_moves_to_another_edge_in_mid_job_keeps_it(rig: Rig, edge: FakeEdge) -> None:
    old_edge, new_edge = await rig.add_edge("old"), await rig.add_edge("new")
    epoch = await old_edge.add_node("node-1")
    assign, _ = await edge.place("r-1", at=old_edge)
    await new_edge.add_node("node-1")
    gone = AssignFailed(assign.job_id, 1, "node-1", epoch, "r-1", edge.identity, "node_gone")
    old_edge.send_job(assign.job_id, gone)
    # The new edge never heard of the job: it passes on what the node says, and Redis knows the rest.
    new_edge.finish(msgspec.structs.replace(assign, request_id="", session_id="", session_edge=""), b'{"text": "hi"}')
    push, payload = await edge.take(Push)
    assert (push.request_id, push.session_id, push.node_edge) == ("r-1", "s-1", new_edge.identity)
    assert payload == [b'{"text": "hi"}']
    await rig.until_used("node-1", 0)
    assert not edge.has(Undone)


async def test_a_job_of_a_node_that_is_gone_is_undone(rig: Rig, edge: FakeEdge) -> None:
    epoch = await edge.add_node("node-1")
    assign, _ = await edge.place("r-1")
    gone = AssignFailed(assign.job_id, 1, "node-1", epoch, "r-1", edge.identity, "node_gone")
    edge.send_job(assign.job_id, gone)
    undone, _ = await edge.take(Undone)
    assert (undone.reason, undone.exclude_node) == ("node_gone", False)
    await rig.until_used("node-1", -1)  # off the lists, if its edge's goodbye was lost


async def test_a_cancel_without_a_job_finds_what_the_request_holds(rig: Rig, edge: FakeEdge) -> None:
    node_edge = await rig.add_edge("b")
    await node_edge.add_node("node-1", max_jobs=1)
    assign, _ = await edge.place("r-1", at=node_edge)
    edge.send_record("s-1", Cancel("r-none", "", 1, "", "s-1", "job_timeout"))  # never placed: nothing to do
    edge.send_record("s-1", Cancel("r-1", "", 0, "", "s-1", "job_timeout"))  # of an attempt before this one
    edge.send_record("s-1", Cancel("r-1", "", 1, "", "s-1", "job_timeout"))
    cancel, _ = await node_edge.take(CancelJob)
    assert (cancel.job_id, cancel.attempt, cancel.node_id) == (assign.job_id, 1, "node-1")
    await rig.until_used("node-1", 0)


async def test_several_events_come_in_one_frame_and_a_bad_one_costs_itself(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    assign, _ = await edge.place("r-1")
    for events in ("dispatch explode", "", " ", "dispatch accept start"):
        edge.send_job(assign.job_id, JobEvent(assign.job_id, 1, "node-1", events))
    with redis.Redis.from_url(rig.config.redis.url) as client:
        key = Keys().job(cell_of("node-1", rig.config.mesh.cells), assign.job_id)

        async def runs() -> bool:
            return bool(client.hget(key, "state") == b"RUNNING")

        await until(runs)
        assert None not in client.hmget(key, "dispatch_ms", "accept_ms", "start_ms")


async def test_a_result_goes_to_the_session_that_asked_whatever_the_node_says(rig: Rig, edge: FakeEdge) -> None:
    other = await rig.add_edge("other")
    await edge.add_node("node-1")
    assign, _ = await edge.place("r-1")
    edge.finish(msgspec.structs.replace(assign, session_id="s-9", request_id="r-9"), session_edge=other.identity)
    push, _ = await edge.take(Push)
    assert (push.session_id, push.request_id) == ("s-1", "r-1")
    assert not other.has(Push)


async def test_a_result_without_any_owner_is_told_so(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    assign, _ = await edge.place("r-1", session_id="s-nobody")
    with redis.Redis.from_url(rig.config.redis.url) as client:
        client.delete(Keys().job(cell_of("node-1", rig.config.mesh.cells), assign.job_id))
    edge.finish(assign, session_edge="")
    ack = await edge.take_ack()
    assert ack.verdict == "no_session"


async def test_a_result_of_a_job_that_redis_lost_is_still_pushed(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    assign, _ = await edge.place("r-1")
    with redis.Redis.from_url(rig.config.redis.url) as client:
        client.delete(Keys().job(cell_of("node-1", rig.config.mesh.cells), assign.job_id))
    edge.finish(assign)
    push, _ = await edge.take(Push)
    assert push.job_id == assign.job_id


async def test_an_assign_to_an_edge_that_is_gone_is_undone_and_its_nodes_avoided(rig: Rig, edge: FakeEdge) -> None:
    gone = await rig.add_edge("gone")
    await gone.add_node("node-1")
    await edge.place("r-0", at=gone, session_id="s-0")  # now the selector knows the node
    rig.edges.remove(gone)
    await gone.link.close()

    edge.dispatch("r-1")
    undone, _ = await edge.take(Undone)
    assert (undone.reason, undone.exclude_node) == ("unroutable", False)
    edge.dispatch("r-1", attempt=2)
    waiting, _ = await edge.take(Waiting, lambda frame: frame.attempt == 2)
    assert waiting.reason == "edge_unreachable"


async def test_malformed_job_events_cost_no_other_message(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    edge.send_job("job-00-x", JobEvent("not a job id", 1, "node-1", "dispatch"))
    edge.send_job("job-00-x", JobEvent("job-00-x", 1, "node-1", "no such event"))
    await edge.place("r-1")


@pytest.mark.parametrize("parts", [[], [b"head"], [b"head", b"not a frame"]])
async def test_bounce_without_its_parts_costs_no_other_message(rig: Rig, edge: FakeEdge, parts: list[bytes]) -> None:
    """A Bounce must carry the head and the frame of the message that it returns."""
    epoch = await edge.add_node("node-1")
    assign, _ = await edge.place("r-1")
    edge.send_job(assign.job_id, Bounce("unroutable"), *parts)
    edge.send_job(assign.job_id, AssignFailed(assign.job_id, 1, "node-1", epoch, "r-1", edge.identity, "node_stuck"))
    undone, _ = await edge.take(Undone)  # from the same lane, after the Bounce
    assert undone.reason == "node_stuck"
    await rig.until_used("node-1", 0)


async def test_heartbeats_of_other_connections_are_told_so(rig: Rig, edge: FakeEdge) -> None:
    epoch = await edge.add_node("node-1")
    edge.send_record("node-1", NodeHeartbeat("node-1", edge.identity, epoch - 1, NodeLoad()))
    stale, _ = await edge.take(NodeStale)
    assert (stale.epoch, stale.reason) == (epoch - 1, "superseded")
    edge.send_record("node-9", NodeHeartbeat("node-9", edge.identity, 1, NodeLoad()))
    stale, _ = await edge.take(NodeStale)
    assert (stale.node_id, stale.reason) == ("node-9", "unknown")


async def test_a_late_copy_of_a_registration_evicts_nobody(rig: Rig, edge: FakeEdge) -> None:
    registration = NodeRegister("17", "node-1", edge.identity, CAPS)
    edge.send_record("node-1", registration)
    registered, _ = await edge.take(NodeRegistered)
    edge.send_record("node-1", registration)
    again, _ = await edge.take(NodeRegistered)
    assert (again.ref, again.epoch) == ("17", registered.epoch)
    edge.send_record("node-1", NodeHeartbeat("node-1", edge.identity, registered.epoch, NodeLoad()))
    assign, _ = await edge.place("r-1")
    assert assign.node_epoch == registered.epoch
    assert not edge.has(NodeStale)


async def test_an_old_sockets_goodbye_does_not_take_the_new_one_down(rig: Rig, edge: FakeEdge) -> None:
    old = await edge.add_node("node-1")
    new = await edge.add_node("node-1")
    assert new > old
    edge.send_record("node-1", NodeOffline("node-1", edge.identity, old, "closed"))
    assign, _ = await edge.place("r-1")
    assert assign.node_epoch == new
    edge.send_record("node-1", NodeOffline("node-1", edge.identity, new, "closed"))
    await rig.until_used("node-1", -1)


async def test_sessions_are_claimed_by_compare_and_set(rig: Rig, edge: FakeEdge) -> None:
    other = await rig.add_edge("b")
    edge.send_record("s-1", SessionClaim("ref-1", "s-1", edge.identity, 0, "", "en", "es"))
    first, _ = await edge.take(SessionClaimed)
    other.send_record("s-1", SessionClaim("ref-2", "s-1", other.identity, first.epoch + 7, "", "en", "es"))
    failed, _ = await other.take(Failed)
    assert (failed.ref, failed.code) == ("ref-2", "INVALID_SESSION")
    edge.send_record("s-1", SessionRelease("s-1", edge.identity, first.epoch))
    async with rig.store() as store:

        async def is_released() -> bool:
            return await session_owner(store, "s-1") is None

        await until(is_released)


async def test_a_killed_selector_costs_a_repeat_not_a_job(rig: Rig, edge: FakeEdge) -> None:
    victim = rig.spawn("selector", "s2")
    for index in range(4):
        await edge.add_node(f"node-{index}")
    assigned = []
    for index in range(16):
        if index == 8:
            victim.kill()
        assigned.append((await edge.place(f"r-{index}", session_id=f"s-{index}"))[0])
    assert victim.wait() == -signal.SIGKILL
    assert len({assign.job_id for assign in assigned}) == 16
    for assign in assigned:
        for resend in range(40):
            edge.finish(assign, resend=resend)
            try:
                async with asyncio.timeout(0.5):
                    await edge.take(Push, lambda push, job_id=assign.job_id: push.job_id == job_id)
                    break
            except TimeoutError:
                continue
        else:
            raise AssertionError(f"the result of {assign.job_id} never came through")
    for index in range(4):
        await rig.until_used(f"node-{index}", 0)


async def test_two_selectors_never_sell_a_slot_twice(rig: Rig, edge: FakeEdge) -> None:
    rig.spawn("selector", "s2")
    for index in range(3):
        await edge.add_node(f"node-{index}", max_jobs=4)
    await edge.place("r-first", session_id="s-first")
    for index in range(40):
        edge.dispatch(f"r-{index}", session_id=f"s-{index}")
    answered: set[str] = set()
    placed: list[Assign] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(answered) < 40:
            for message in edge.received:
                frame = message.frame
                if isinstance(frame, Assign | Refused | Waiting) and frame.request_id != "r-first":
                    answered.add(frame.request_id)
                    if isinstance(frame, Assign):
                        placed.append(frame)
            edge.received.clear()
            await asyncio.sleep(0.01)
    assert len({assign.job_id for assign in placed}) == 11
    assert [await rig.used(f"node-{index}") for index in range(3)] == [4, 4, 4]


async def test_sigterm_ends_a_selector_cleanly(rig: Rig) -> None:
    process = rig.spawn("selector", "s2", LINGUA_SELECTOR_PRESENCE_MS="50")
    with redis.Redis.from_url(rig.config.redis.url) as client:

        async def is_present() -> bool:
            return len(client.keys("lingua:{presence}:selector:selector:s2:*")) == 1

        await until(is_present)
        [key] = client.keys("lingua:{presence}:selector:selector:s2:*")
        assert client.hget(key, "pid") == str(process.pid).encode()
        assert client.pttl(key) > 0
        process.terminate()
        assert process.wait(timeout=DEADLINE_S) == 0
        assert not client.exists(key)


@pytest.mark.parametrize(
    ("environ", "code"),
    [
        ({"LINGUA_SELECTOR_WINDOW": "many"}, 2),
        ({"LINGUA_LINK_BACKENDS": ""}, 2),
        ({"LINGUA_MESH_CELLS": "8"}, 2),  # the deployment was born with 16
        ({"LINGUA_REDIS_URL": "redis://127.0.0.1:1/0"}, 69),
    ],
    ids=lambda value: str(value),
)
async def test_what_cannot_start_says_so_and_exits(rig: Rig, environ: dict[str, str], code: int) -> None:
    async with rig.store() as store:
        await store.deployment.check(rig.config.mesh.cells)
    process = rig.begin("selector", "s2", **environ)
    assert process.wait(timeout=DEADLINE_S) == code
