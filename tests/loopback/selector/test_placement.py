"""Waiting, refusals, conflicts, explanations and recordings, with real selectors and a real Redis."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from linguamesh.local.redis_server import RedisServer
from lua.store.types.commits import CommitRequest
from lua.store.types.nodes import Heartbeat
from mesh import clock
from mesh.cells import cell_of
from mesh.frames import Assign, Cancel, CancelJob, NodeLoad, Push, Refused, Waiting
from selector.operators.core.recorder import is_same, run_again
from selector.operators.core.recording_format import unpack
from tests.support.builders.selector import CAPS
from tests.support.builders.store import node_changes
from tests.support.processes.selector import FakeEdge, Rig, until


@pytest.fixture
async def rig(tmp: Path, redis_server: RedisServer) -> AsyncIterator[Rig]:
    rig = Rig(tmp, redis_server)
    try:
        rig.spawn("broker", "b1")
        yield rig
    finally:
        await rig.close_edges()
        rig.end(list(rig.processes))


async def edge_of(rig: Rig, **environ: str) -> FakeEdge:
    """An edge, and a selector with these settings."""
    rig.spawn("selector", "s1", **environ)
    return await rig.add_edge("a")


async def first_answer(edge: FakeEdge, request_id: str) -> Assign | Refused | Waiting:
    def is_it(frame: Any) -> bool:
        return isinstance(frame, Assign | Refused | Waiting) and frame.request_id == request_id

    frame, _ = await edge.take(object, is_it)  # type: ignore[type-var]
    assert isinstance(frame, Assign | Refused | Waiting)
    return frame


async def fill(edge: FakeEdge, node_id: str = "node-1", **caps: Any) -> Assign:
    """A node with one slot, taken."""
    await edge.add_node(node_id, max_jobs=1, **caps)
    assign, _ = await edge.place("r-first", session_id="s-first")
    return assign


async def test_who_waits_gets_the_slot_that_comes_free_with_its_audio(rig: Rig) -> None:
    edge = await edge_of(rig)
    first = await fill(edge)
    edge.dispatch("r-1")
    waiting, _ = await edge.take(Waiting, lambda frame: frame.request_id == "r-1")
    assert (waiting.reason, waiting.ask_again_ms) == ("capacity_exceeded", 1_000)
    edge.finish(first)
    assign, payload = await edge.take(Assign, lambda frame: frame.request_id == "r-1")
    assert payload == [b"work", b"audio"]
    assert (assign.pair, assign.audio_ms) == ("en>es", 1_500)
    assert assign.late_after_ms > 0
    assert not edge.has(Refused)


async def test_a_paired_node_is_found_before_the_snapshot_would_show_it(rig: Rig) -> None:
    edge = await edge_of(rig, LINGUA_SELECTOR_SNAPSHOT_MS="60000", LINGUA_SELECTOR_SNAPSHOT_IDLE_MS="60000")
    await edge.add_node("node-1")
    await edge.place("r-first", session_id="s-first")
    async with rig.store() as store:  # as another selector does, of whose work this one hears by the snapshot only
        epoch = (await store.nodes.register("node-2", edge.identity, CAPS, [])).epoch
        await store.nodes.heartbeat(Heartbeat("node-2", edge.identity, epoch, NodeLoad(), healthy=True))
    edge.dispatch("r-paired", session_id="s-paired", preferred_node="node-2")
    assign, _ = await edge.take(Assign, lambda frame: frame.request_id == "r-paired")
    assert assign.node_id == "node-2"


async def test_a_paired_node_that_left_for_good_is_not_looked_for_at_every_request(rig: Rig) -> None:
    edge = await edge_of(rig, LINGUA_SELECTOR_SNAPSHOT_MS="60000", LINGUA_SELECTOR_SNAPSHOT_IDLE_MS="60000")
    await edge.add_node("node-1", max_jobs=8)
    looked = []
    for number in range(5):
        await edge.place(f"r-{number}", session_id=f"s-{number}", preferred_node="gone")
        looked.append(rig.metric("s1", "lingua_selector_snapshot_seconds_count"))
    assert looked[-1] - looked[0] <= 1, "the node's own news are one reason to look"


async def test_the_nearest_deadline_goes_first(rig: Rig) -> None:
    edge = await edge_of(rig)
    running = await fill(edge)
    soon_ms = clock.wall_ms() + 20_000
    for name, more_ms in (("r-late", 3_000), ("r-soon", 1_000), ("r-middle", 2_000)):
        edge.dispatch(name, session_id=f"s-{name}", deadline_ms=soon_ms + more_ms)
        assert isinstance(await first_answer(edge, name), Waiting)
    order = []
    for _ in range(3):
        edge.finish(running)
        running, _ = await edge.take(Assign)
        order.append(running.request_id)
    assert order == ["r-soon", "r-middle", "r-late"]


async def test_nobody_overtakes_those_who_wait_for_the_same(rig: Rig) -> None:
    edge = await edge_of(rig)
    running = await fill(edge)
    for number in range(5):
        edge.dispatch(f"r-{number}", session_id=f"s-{number}", deadline_ms=clock.wall_ms() + 30_000 + number)
        if not number:
            assert isinstance(await first_answer(edge, "r-0"), Waiting)
        else:
            edge.finish(running)  # a slot comes free as the next one comes
            running, _ = await edge.take(Assign)
            assert running.request_id == f"r-{number - 1}"


async def test_a_node_that_registers_serves_who_waits(rig: Rig) -> None:
    edge = await edge_of(rig)
    edge.dispatch("r-1")
    waiting, _ = await edge.take(Waiting)
    assert waiting.reason == "no_nodes"
    await edge.add_node("node-1")
    assign, _ = await edge.take(Assign)
    assert (assign.request_id, assign.node_id) == ("r-1", "node-1")


async def test_who_waited_long_enough_is_refused_with_all_that_is_known(rig: Rig) -> None:
    edge = await edge_of(rig, LINGUA_JOB_PENDING_TIMEOUT_MS="300")
    await fill(edge)
    edge.dispatch("r-1")
    assert isinstance(await first_answer(edge, "r-1"), Waiting)
    refused, _ = await edge.take(Refused)
    assert (refused.code, refused.reason) == ("NO_AVAILABLE_NODE", "capacity_exceeded")
    assert refused.removed == {"capacity_exceeded": 1}
    assert (refused.nearest_node, refused.nearest) == ("node-1", "has no free slot: all 1 are in use")
    assert refused.waited_ms >= 300
    assert refused.retry_after_ms > 0


async def test_nobody_waits_for_a_result_that_must_come_too_late(rig: Rig) -> None:
    edge = await edge_of(rig)
    await fill(edge)
    edge.dispatch("r-1", audio_ms=600_000, deadline_ms=clock.wall_ms() + 20_000)
    answer = await first_answer(edge, "r-1")
    assert isinstance(answer, Refused)
    assert (answer.reason, answer.retry_after_ms) == ("deadline_unreachable", 0)


async def test_a_full_line_refuses_the_one_with_most_time(rig: Rig) -> None:
    edge = await edge_of(rig, LINGUA_JOB_WAITING_MAX="2")
    await fill(edge)
    now_ms = clock.wall_ms()
    for number, seconds in enumerate((40, 20, 30)):
        edge.dispatch(f"r-{number}", session_id=f"s-{number}", deadline_ms=now_ms + 1_000 * seconds)
        assert isinstance(await first_answer(edge, f"r-{number}"), Waiting)
    refused, _ = await edge.take(Refused)
    assert (refused.request_id, refused.reason) == ("r-0", "waiting_line_full")
    assert refused.retry_after_ms > 0


async def test_a_cancelled_request_leaves_the_line(rig: Rig) -> None:
    edge = await edge_of(rig)
    first = await fill(edge)
    edge.dispatch("r-1")
    assert isinstance(await first_answer(edge, "r-1"), Waiting)
    edge.withdraw("r-1")
    edge.dispatch("r-2")
    assert isinstance(await first_answer(edge, "r-2"), Waiting)
    edge.finish(first)
    assign, _ = await edge.take(Assign)
    assert assign.request_id == "r-2"


async def test_a_repeat_keeps_its_place_and_a_higher_attempt_replaces_it(rig: Rig) -> None:
    edge = await edge_of(rig)
    first = await fill(edge)
    for attempt in (1, 1, 2):
        edge.dispatch("r-1", attempt=attempt)
        waiting, _ = await edge.take(Waiting, lambda frame: frame.request_id == "r-1")
        assert waiting.attempt == attempt
    edge.finish(first)
    assign, _ = await edge.take(Assign)
    assert (assign.request_id, assign.attempt) == ("r-1", 2)
    edge.finish(assign)
    await rig.until_used("node-1", 0)
    assert not any(isinstance(message.frame, Assign) for message in edge.received)


async def test_a_hedge_does_not_wait(rig: Rig) -> None:
    edge = await edge_of(rig)
    await fill(edge)
    edge.dispatch("r-first", attempt=2, session_id="s-first", beside=True, excluded=["node-1"])
    refused, _ = await edge.take(Refused)
    assert (refused.request_id, refused.attempt, refused.reason) == ("r-first", 2, "excluded")


async def test_if_all_who_could_are_excluded_its_edge_hears_at_once(rig: Rig) -> None:
    edge = await edge_of(rig)
    await edge.add_node("node-1")
    await edge.place("r-0", session_id="s-0")
    edge.dispatch("r-1", attempt=2, excluded=["node-1"])
    answer = await first_answer(edge, "r-1")
    assert isinstance(answer, Refused)
    assert answer.removed == {"excluded": 1}
    assert answer.retry_after_ms > 0


async def test_who_registered_a_moment_ago_is_known(rig: Rig) -> None:
    edge = await edge_of(rig)
    for index in range(10):
        language = f"x{chr(97 + index)}"
        await edge.add_node(f"node-{language}", asr_langs=[language])
        edge.dispatch(f"r-{language}", src_lang=language)
        assign, _ = await edge.take(Assign)
        assert assign.node_id == f"node-{language}"
    assert not edge.has(Refused)


async def test_a_waiting_request_outlives_its_selector(rig: Rig) -> None:
    """The line is lost with the process; the edge asks again, and another one takes it."""
    edge = await edge_of(rig)
    first = await fill(edge)
    edge.dispatch("r-1")
    assert isinstance(await first_answer(edge, "r-1"), Waiting)
    victim = rig.processes[1]
    rig.spawn("selector", "s2")
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    edge.finish(first)
    assign, _ = await edge.place("r-1")
    assert assign.node_id == "node-1"


# --- why ----------------------------------------------------------------------------------------------------


async def test_every_job_can_be_explained_by_job_and_by_request(rig: Rig) -> None:
    edge = await edge_of(rig)
    await edge.add_node("node-1")
    await edge.add_node("node-2", asr_langs=["zh"])
    assign, _ = await edge.place("r-1")
    status, record = await edge.query("explain", job_id=assign.job_id)
    assert status == 200
    assert (record["request_id"], record["node_id"], record["outcome"]) == ("r-1", "node-1", "new")
    assert record["words"][0].startswith("node-1 was chosen")
    assert record["rounds"][-1]["candidates"][0]["answer"] == "taken"
    status, by_request = await edge.query("explain", request_id="r-1")
    assert (status, by_request) == (200, record)
    status, _ = await edge.query("explain", job_id="job-00-unheard-of")
    assert status == 404


async def test_a_refusal_can_be_explained(rig: Rig) -> None:
    edge = await edge_of(rig)
    await edge.add_node("node-1")
    await edge.place("r-1")
    edge.dispatch("r-2", src_lang="xx")
    await edge.take(Refused)
    _, record = await edge.query("explain", request_id="r-2")
    assert record["outcome"] == "refused"
    assert record["words"][0] == (
        "Nobody was chosen: asr_lang_unsupported. Nearest miss: node-1 does not understand the spoken language."
    )


async def test_the_recording_of_a_selector_comes_out_the_same(rig: Rig, tmp: Path) -> None:
    edge = await edge_of(rig)
    for index in range(5):
        await edge.add_node(f"node-{index}", max_jobs=8)
    for index in range(30):
        await edge.place(f"r-{index}", session_id=f"s-{index}", audio_ms=100 * index)
    status, data = await edge.query_bytes("recording")
    assert status == 200
    recording = unpack(data)
    assert sum(len(batch.rows.jobs) for batch in recording.batches) >= 30
    again = list(run_again(recording, lambda batch: batch.rules))
    assert all(is_same(one.choice, one.batch.choice) for one in again)

    (tmp / "recording").write_bytes(data)
    (tmp / "weights.toml").write_text("busy = 0.0\nbusy_ms = 0.0\nload_ms = 900.0\n")
    command = [sys.executable, "-m", "selector.operators.replay", "--recording", str(tmp / "recording"), "--json"]
    command += ["--weights", str(tmp / "weights.toml")]
    told = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=120, check=False)
    assert told.returncode == 0, told.stderr
    answer = json.loads(told.stdout)
    assert answer["different"] == 0
    assert answer["moved"] > 0, "without a price for busy nodes they are all equal"


# --- herding ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selectors", [1, 4])
async def test_a_burst_gives_every_equal_node_one_job(rig: Rig, selectors: int) -> None:
    names = [f"s{number}" for number in range(selectors)]
    for process in [rig.begin("selector", name) for name in names]:
        assert process.stdout is not None
        assert json.loads(await asyncio.to_thread(process.stdout.readline))["ready"]
    edge = await rig.add_edge("a")
    await asyncio.gather(*(edge.add_node(f"node-{index}") for index in range(100)))

    async def all_are_ready() -> bool:
        async with rig.store() as store:
            cells = range(rig.config.mesh.cells)
            changes = [await node_changes(store, cell, 0, 1_000) for cell in cells]
        views = [row.view for change in changes for row in change.rows if row.view is not None]
        return len(views) == 100 and all(view.status == "ready" for view in views)

    await until(all_are_ready)
    await asyncio.gather(*(edge.place(f"warm-{index}", session_id=f"w-{index}") for index in range(4 * selectors)))
    for request_id in list(edge.asked):
        edge.withdraw(request_id)
    for index in range(100):
        await rig.until_used(f"node-{index}", 0)
    for index in range(100):
        edge.dispatch(f"r-{index}", session_id=f"s-{index}")
    placed = Counter[str]()
    while placed.total() < 100:
        assign, _ = await edge.take(Assign, lambda frame: frame.request_id.startswith("r-"))
        placed[assign.node_id] += 1
    assert set(placed.values()) == {1}
    assert len({cell_of(f"s-{index}", rig.config.mesh.cells) for index in range(100)}) == rig.config.mesh.cells


async def test_a_cancel_right_behind_its_dispatch_leaves_no_slot_taken(rig: Rig) -> None:
    edge = await edge_of(rig)
    await edge.add_node("node-1", max_jobs=500)
    assign, _ = await edge.place("r-first")
    for number in range(300):
        edge.dispatch(f"r-{number}", session_id=f"s-{number}")
        edge.withdraw(f"r-{number}")
    last, _ = await edge.place("r-last", session_id="s-299")  # behind all of them
    assert last.node_id == "node-1"
    await rig.until_used("node-1", 2)
    assert assign.request_id == "r-first"


async def test_a_cancel_without_a_job_is_for_its_own_attempt_only(rig: Rig) -> None:
    edge = await edge_of(rig)
    await edge.add_node("node-1")
    first, _ = await edge.place("r-1")
    other, _ = await edge.place("r-2")
    # A hedge of the first that was never placed: the first one goes on.
    edge.send_record("s-1", Cancel("r-1", "", 2, "", "s-1", "job_timeout"))
    edge.send_record("s-1", Cancel("r-2", "", 1, "", "s-1", "session_closed"))
    cancelled, _ = await edge.take(CancelJob)
    assert cancelled.job_id == other.job_id
    await rig.until_used("node-1", 1)
    edge.finish(first)
    push, _ = await edge.take(Push)
    assert push.job_id == first.job_id
    assert not edge.has(CancelJob)


async def test_who_lost_the_last_slot_at_the_last_moment_waits(rig: Rig) -> None:
    """Nobody else could take it: that a node could, a moment ago, must not be forgotten."""
    edge = await edge_of(rig, LINGUA_SELECTOR_COMMIT_ROUNDS="1", LINGUA_SELECTOR_SNAPSHOT_IDLE_MS="60000")
    await edge.add_node("deaf", asr_langs=["fr"])
    await edge.add_node("node-1", max_jobs=1)
    edge.finish((await edge.place("r-first"))[0])
    await rig.until_used("node-1", 0)
    async with rig.store() as store:
        # Somebody else is faster, and this selector does not know yet.
        other = CommitRequest("r-other", "s-1", edge.identity, 0, 1, "f" * 32, ["node-1"], 0, "")
        [taken] = await store.commits.commit([other])
    assert taken.verdict == "new"
    edge.dispatch("r-1")
    answer = await first_answer(edge, "r-1")
    assert isinstance(answer, Waiting) and answer.reason == "capacity_exceeded"
