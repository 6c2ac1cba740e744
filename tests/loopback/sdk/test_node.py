"""The node SDK against a scripted scheduler on a real WebSocket."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from linguamesh.node import Control, Gpu, Job, JobFailed, Node, NodeRefused, Result, Unreachable, Usage
from tests.support.conditions import DEADLINE_S
from tests.support.fakes.scripted_server import Peer, ScriptedServer, scripted_server

AUDIO = b"\x01\x00" * 16_000


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as scripted:
        yield scripted


async def echo(job: Job) -> Result:
    return Result(text_asr=f"{job.src} {job.audio_s:.1f} s", text_translated=job.tgt, tts_audio=b"\x02\x00")


def node(server: ScriptedServer, handler: Any = echo, **options: Any) -> Node:
    return Node(server.url, handler, asr=["en"], semantic=["es"], **options)


async def accept(server: ScriptedServer, node_id: str = "node-1") -> Peer:
    """Take a connection and its registration."""
    peer = await server.peer()
    await peer.recv("node_register")
    await peer.send("node_register_ack", node_id=node_id, message="registered", status="registering")
    return peer


def assignment(job_id: str = "job-00-1", attempt_id: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "attempt_id": attempt_id,
        "session_id": "s-1",
        "utterance_index": 3,
        "src_lang": "en",
        "tgt_lang": "es",
        "pipeline": {"use_asr": True, "use_nmt": True, "use_tts": True},
        "audio": base64.b64encode(AUDIO).decode(),
        "audio_format": "pcm16",
        "sample_rate": 16_000,
        "trace_id": "t-1",
        **more,
    }


async def test_node_registers_its_capabilities_and_sends_a_heartbeat(server: ScriptedServer) -> None:
    usage = Usage(cpu_percent=12.5, mem_percent=30, gpu_percent=5)
    with_usage = node(server, node_id="node-1", tts=["es"], max_jobs=7, gpus=[Gpu("RTX", 8)], usage=lambda: usage)
    running = asyncio.create_task(with_usage.run())
    peer = await server.peer()
    assert peer.connection.request is not None
    assert peer.connection.request.path == "/ws/node"
    register = await peer.recv("node_register")
    assert register["node_id"] == "node-1"
    assert register["capability_schema_version"] == "2.0"
    assert register["hardware"]["gpus"] == [{"name": "RTX", "memory_gb": 8}]
    assert register["language_capabilities"]["asr_languages"] == ["en"]
    assert register["language_capabilities"]["semantic_languages"] == ["es"]
    assert {c["type"] for c in register["capability_by_type"] if c["ready"]} == {"asr", "nmt", "semantic", "tts"}
    assert (register["max_concurrent_jobs"], register["result_ack"]) == (7, True)
    assert not {"region", "gpu_tier", "tenant_id"} & register.keys() and register["installed_models"] == []
    await peer.send("node_register_ack", node_id="node-1", message="registered", status="registering")
    beat = await peer.recv("node_heartbeat")
    assert beat["node_id"] == "node-1"
    assert beat["resource_usage"] == {"cpu_percent": 12.5, "mem_percent": 30, "gpu_percent": 5, "running_jobs": 0}
    running.cancel()
    await asyncio.wait({running})


async def test_job_is_acknowledged_started_and_completed(server: ScriptedServer) -> None:
    async def handler(job: Job) -> Result:
        await job.partial("hel")
        assert job.audio == AUDIO
        return await echo(job)

    entering = asyncio.create_task(node(server, handler).__aenter__())
    peer = await accept(server, "node-given")
    running = await entering
    assert running.node_id == "node-given"
    await peer.send("job_assign", **assignment())
    five = {"job_id": "job-00-1", "attempt_id": 1, "node_id": "node-given", "session_id": "s-1", "trace_id": "t-1"}
    assert await peer.recv("job_ack") == {"type": "job_ack", **five}
    assert await peer.recv("job_started") == {"type": "job_started", **five}
    partial = await peer.recv("asr_partial")
    assert (partial["text"], partial["is_final"], partial["utterance_index"]) == ("hel", False, 3)
    result = await peer.recv("job_result")
    assert result["success"] is True
    assert (result["text_asr"], result["text_translated"]) == ("en 1.0 s", "es")
    assert base64.b64decode(result["tts_audio"]) == b"\x02\x00"
    assert result["extra"]["service_timings"]["total_ms"] >= 0
    await running.close()


async def test_duplicate_assignment_does_not_run_twice(server: ScriptedServer) -> None:
    runs = 0

    async def handler(job: Job) -> Result:
        nonlocal runs
        runs += 1
        return Result(text_asr=str(runs))

    entering = asyncio.create_task(node(server, handler).__aenter__())
    peer = await accept(server)
    running = await entering
    await peer.send("job_assign", **assignment())
    first = await peer.recv("job_result")
    await peer.send("job_assign", **assignment())
    assert await peer.recv("job_result") == first
    await peer.send("job_result_ack", job_id="job-00-1", attempt_id=1)
    await peer.send("job_assign", **assignment())
    await peer.send("job_assign", **assignment("job-00-2"))
    assert (await peer.recv("job_result"))["job_id"] == "job-00-2"
    assert runs == 2
    await running.close()


async def test_unacknowledged_result_is_retried_after_a_reconnect(server: ScriptedServer) -> None:
    release = asyncio.Event()

    async def handler(job: Job) -> Result:
        if job.job_id == "job-00-2":
            await release.wait()
        return await echo(job)

    entering = asyncio.create_task(node(server, handler).__aenter__())
    peer = await accept(server)
    running = await entering
    for job_id in ("job-00-1", "job-00-2", "job-00-3"):
        await peer.send("job_assign", **assignment(job_id))
    assert {(await peer.recv("job_result"))["job_id"] for _ in range(2)} == {"job-00-1", "job-00-3"}
    await peer.send("job_result_ack", job_id="job-00-3", attempt_id=1)
    await peer.connection.close()
    release.set()  # finishes while there is no connection
    peer = await server.peer()
    register = await peer.recv("node_register")
    assert register["node_id"] == "node-1"
    await peer.send("node_register_ack", node_id="node-1", message="registered", status="registering")
    assert {(await peer.recv("job_result"))["job_id"] for _ in range(2)} == {"job-00-1", "job-00-2"}
    beat = await peer.recv("node_heartbeat")
    assert beat["jobs"] == [], "what the heartbeat does not list has been sent before it"
    await running.close()


async def test_no_more_than_max_jobs_run_at_once(server: ScriptedServer) -> None:
    running_now = most = 0

    async def handler(job: Job) -> Result:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        await asyncio.sleep(0)
        running_now -= 1
        return Result()

    entering = asyncio.create_task(node(server, handler, max_jobs=2).__aenter__())
    peer = await accept(server)
    running = await entering
    for number in range(8):
        await peer.send("job_assign", **assignment(f"job-00-{number}"))
    for _ in range(8):
        assert (await peer.recv("job_result"))["success"] is True
    assert most == 2
    await running.close()


async def test_jobs_beyond_the_bound_are_refused(server: ScriptedServer) -> None:
    async def handler(job: Job) -> Result:
        return await asyncio.Event().wait() and Result()

    entering = asyncio.create_task(node(server, handler, max_jobs=1).__aenter__())
    peer = await accept(server)
    running = await entering
    for number in range(40):
        await peer.send("job_assign", **assignment(f"job-00-{number}"))
    result = await peer.recv("job_result")
    assert result["error"]["code"] == "NODE_OVERLOADED"
    for number in range(40):
        await peer.send("job_cancel", job_id=f"job-00-{number}")
    await running.close()


async def test_cancel_stops_the_handler(server: ScriptedServer) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def handler(job: Job) -> Result:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return Result()

    entering = asyncio.create_task(node(server, handler).__aenter__())
    peer = await accept(server)
    running = await entering
    await peer.send("job_assign", **assignment())
    await asyncio.wait_for(started.wait(), DEADLINE_S)
    await peer.send("job_cancel", job_id="job-00-1", reason="job_timeout")
    await asyncio.wait_for(stopped.wait(), DEADLINE_S)
    await running.close()


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (RuntimeError("no cuda"), "PROCESSING_ERROR", "RuntimeError: no cuda"),
        (JobFailed("MODEL_NOT_AVAILABLE", "no fr", {"service_id": "x"}), "MODEL_NOT_AVAILABLE", "no fr"),
    ],
)
async def test_failing_handler_fails_its_job_only(
    server: ScriptedServer, error: Exception, code: str, text: str
) -> None:
    async def handler(job: Job) -> Result:
        if job.job_id == "job-00-bad":
            raise error
        return Result()

    entering = asyncio.create_task(node(server, handler).__aenter__())
    peer = await accept(server)
    running = await entering
    await peer.send("job_assign", **assignment("job-00-bad"))
    bad = await peer.recv("job_result")
    assert (bad["success"], bad["error"]["code"], bad["error"]["message"]) == (False, code, text)
    await peer.send("job_assign", **assignment("job-00-good"))
    assert (await peer.recv("job_result"))["success"] is True
    await running.close()


async def test_cancel_right_after_its_assignment_leaves_no_result(server: ScriptedServer) -> None:
    entering = asyncio.create_task(node(server, heartbeat_interval_s=0.01).__aenter__())
    peer = await accept(server)
    running = await entering
    for number in range(20):
        await peer.send("job_assign", **assignment(f"job-00-{number}"))
        await peer.send("job_cancel", job_id=f"job-00-{number}")
    await peer.send("job_assign", **assignment("job-00-last"))
    while (await peer.recv("job_result"))["job_id"] != "job-00-last":
        pass
    beats = [await peer.recv("node_heartbeat") for _ in range(2)]
    assert beats[-1]["jobs"] == []
    await running.close()


async def test_handler_cancelled_from_within_fails_its_job(server: ScriptedServer) -> None:
    async def handler(job: Job) -> Result:
        raise asyncio.CancelledError

    entering = asyncio.create_task(node(server, handler).__aenter__())
    peer = await accept(server)
    running = await entering
    await peer.send("job_assign", **assignment())
    assert (await peer.recv("job_result"))["error"]["message"] == "the handler was cancelled from within"
    await running.close()


async def test_result_over_size_limit_fails_its_job(server: ScriptedServer) -> None:
    async def handler(job: Job) -> Result:
        return Result(tts_audio=bytes(4 * 1024 * 1024))

    entering = asyncio.create_task(node(server, handler).__aenter__())
    peer = await accept(server)
    running = await entering
    await peer.send("job_assign", **assignment())
    assert (await peer.recv("job_result"))["error"]["code"] == "MESSAGE_TOO_LARGE"
    await running.close()


async def test_later_attempt_replaces_the_running_one(server: ScriptedServer) -> None:
    async def handler(job: Job) -> Result:
        if job.attempt == 1:
            await asyncio.Event().wait()
        return Result(text_asr=str(job.attempt))

    entering = asyncio.create_task(node(server, handler).__aenter__())
    peer = await accept(server)
    running = await entering
    await peer.send("job_assign", **assignment())
    await peer.recv("job_started")
    await peer.send("job_assign", **assignment(attempt_id=2))
    result = await peer.recv("job_result")
    assert (result["attempt_id"], result["text_asr"]) == (2, "2")
    await running.close()


async def test_audio_that_is_not_base64_fails_the_job(server: ScriptedServer) -> None:
    entering = asyncio.create_task(node(server).__aenter__())
    peer = await accept(server)
    running = await entering
    await peer.send("job_assign", **assignment(audio="%%%"))
    assert (await peer.recv("job_result"))["error"]["code"] == "PROCESSING_ERROR"
    await running.close()


async def test_final_refusal_raises_node_refused(server: ScriptedServer) -> None:
    entering = asyncio.create_task(node(server).__aenter__())
    peer = await server.peer()
    await peer.recv("node_register")
    await peer.send("error", code="NO_GPU_AVAILABLE", message="no GPU")
    with pytest.raises(NodeRefused) as refused:
        await entering
    assert refused.value.code == "NO_GPU_AVAILABLE"
    assert "GPU" in refused.value.hint


async def test_retryable_refusal_is_retried(server: ScriptedServer) -> None:
    entering = asyncio.create_task(node(server).__aenter__())
    peer = await server.peer()
    await peer.recv("node_register")
    await peer.send("error", code="SCHEDULER_DEPENDENCY_DOWN", message="no store")
    await accept(server)
    await (await entering).close()


async def test_superseded_node_does_not_reconnect(server: ScriptedServer) -> None:
    entering = asyncio.create_task(node(server).__aenter__())
    peer = await accept(server)
    running = await entering
    await peer.connection.close(4009, "superseded")
    with pytest.raises(NodeRefused) as refused:
        async with asyncio.timeout(DEADLINE_S):
            assert running._runner is not None
            await running._runner
    assert refused.value.code == "NODE_SUPERSEDED"
    await running.close()


async def test_unknown_and_malformed_messages_are_ignored(server: ScriptedServer) -> None:
    entering = asyncio.create_task(node(server).__aenter__())
    peer = await accept(server)
    running = await entering
    await peer.send("tea_time", cups=2)
    await peer.connection.send("{")
    await peer.send("job_assign", **assignment())
    assert (await peer.recv("job_result"))["success"] is True
    await running.close()


async def test_refused_connection_is_unreachable_in_one_line(server: ScriptedServer) -> None:
    gone = Node("ws://127.0.0.1:1", echo, asr=["en"], semantic=["es"], connect_timeout_s=0.5)
    with pytest.raises(Unreachable, match="connection refused"):
        await gone.__aenter__()


async def test_registration_has_region_tenant_and_pairs(server: ScriptedServer) -> None:
    pairs = [("en", "es")]
    special = node(server, models=["emotion"], pairs=pairs, region="eu", gpu_tier="high", tenant_id="acme")
    running = asyncio.create_task(special.run())
    peer = await server.peer()
    register = await peer.recv("node_register")
    assert (register["region"], register["gpu_tier"], register["tenant_id"]) == ("eu", "high", "acme")
    assert [model["model_id"] for model in register["installed_models"]] == ["emotion"]
    assert register["language_capabilities"]["supported_language_pairs"] == [{"src": "en", "tgt": "es"}]
    running.cancel()
    await asyncio.wait({running})


async def settled(condition: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - the node's plain state
            await asyncio.sleep(0.005)


async def test_drained_node_finishes_its_jobs_and_calls_on_control(server: ScriptedServer) -> None:
    controls: list[Control] = []
    finish = asyncio.Event()

    async def handler(job: Job) -> Result:
        await finish.wait()
        return Result(text_asr="done")

    def on_control(control: Control) -> None:
        controls.append(control)
        raise RuntimeError("the owner's own mistake")

    entering = asyncio.create_task(node(server, handler, on_control=on_control).__aenter__())
    peer = await accept(server)
    running = await entering
    assert (running.status, running.draining) == ("registering", False)
    await peer.send("job_assign", **assignment())
    await peer.recv("job_started")
    await peer.send("node_control", command="drain", reason="upgrade", deadline_ms=30_000)
    await settled(lambda: running.draining)
    assert controls == [Control("drain", "upgrade", 30_000)]
    finish.set()
    assert (await peer.recv("job_result"))["text_asr"] == "done"
    await peer.send("job_assign", **assignment("job-00-2"))
    assert (await peer.recv("job_result"))["job_id"] == "job-00-2", "what comes all the same is done"
    await peer.send("node_control", command="resume")
    await settled(lambda: not running.draining)
    await peer.send("node_control", command="dance")
    await settled(lambda: len(controls) == 3)
    assert not running.draining
    await running.close()


async def test_status_is_the_last_one_of_the_mesh(server: ScriptedServer) -> None:
    entering = asyncio.create_task(node(server).__aenter__())
    peer = await accept(server)
    running = await entering
    for status, draining in (("ready", False), ("draining", True), ("degraded", True), ("ready", False)):
        await peer.send("node_status", node_id="node-1", status=status, reason=None, timestamp=1)
        await settled(lambda status=status: running.status == status)
        assert running.draining is draining
    await running.close()


async def test_node_registered_while_drained_is_draining(server: ScriptedServer) -> None:
    entering = asyncio.create_task(node(server).__aenter__())
    peer = await server.peer()
    await peer.recv("node_register")
    await peer.send("node_register_ack", node_id="node-1", message="registered", status="draining")
    running = await entering
    assert running.draining
    await running.close()


async def test_report_error_names_a_job_or_none(server: ScriptedServer) -> None:
    entering = asyncio.create_task(node(server).__aenter__())
    peer = await accept(server)
    running = await entering
    await running.report_error("OOM", "no memory")
    error = await peer.recv("node_error")
    assert error == {"type": "node_error", "node_id": "node-1", "code": "OOM", "message": "no memory"}
    await running.report_error("OOM", "no memory", job_id="job-00-1")
    assert (await peer.recv("node_error"))["details"] == {"job_id": "job-00-1"}
    await running.close()
