"""A node's life through real sockets: held jobs, drains, errors, missing models, status, and what heartbeats carry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mesh.cells import cell_of, job_id_in
from mesh.clock import wall_ms
from mesh.frames import (
    Assign,
    AssignFailed,
    CancelJob,
    ControlNode,
    JobDone,
    ModelMissing,
    NodeHeartbeat,
    NodeOffline,
    NodeRegister,
    Placed,
    StatusChanged,
    Work,
    encode,
)
from mesh.words import JobOutcome
from tests.support.processes.edge import CELLS, REGISTER, Rig, Talk, running, until

WORK = encode(Work("zh", "en", "pcm16", 16_000, {"use_asr": True}, "t"))
LONG_MS = 60_000


def assign(rig: Rig, node: Talk, number: int = 1, **fields: Any) -> Assign:
    """A job for the node, as the selector remembers its connection."""
    frame = Assign(
        job_id=job_id_in(cell_of(node.id, CELLS), f"{number:032x}"),
        attempt=1,
        node_id=node.id,
        node_epoch=rig.selector.nodes[node.id][1],
        request_id=f"r{number}",
        session_id="s-1",
        utterance_index=number,
        session_edge=rig.selector.link.identity,
        deadline_ms=0,
        trace_id="t-1",
        pair="zh>en",
        audio_ms=1_000,
        late_after_ms=700,
    )
    return msgspec.structs.replace(frame, **fields)


def give(rig: Rig, frame: Assign) -> None:
    """Send it as a selector does."""
    rig.selector.link.send(rig.selector.nodes[frame.node_id][0], 0, frame, WORK, b"audio")


def tell(rig: Rig, node: Talk, frame: StatusChanged | ControlNode | CancelJob) -> None:
    rig.selector.link.send(rig.selector.nodes[node.id][0], 0, frame)


def failures(rig: Rig) -> list[tuple[int, str]]:
    return [(int(frame.job_id[-4:], 16), frame.reason) for frame in rig.selector.seen_of(AssignFailed)]


def keep_nodes(rig: Rig) -> None:
    """The selector still knows where a node was when its socket has closed."""
    rig.selector.mute = lambda frame: isinstance(frame, NodeOffline | AssignFailed)


async def leave(rig: Rig, node: Talk) -> None:
    """The node's socket closes, and its edge has noticed."""
    await node.close()
    await until(lambda: rig.selector.seen_of(NodeOffline) != [], "the edge says that the node is gone")


async def beat(rig: Rig, node: Talk, **fields: Any) -> NodeHeartbeat:
    """Send a heartbeat; what the selector hears of it."""
    before = len(rig.selector.seen_of(NodeHeartbeat))
    usage = {"cpu_percent": 1.0, "mem_percent": 1.0, "running_jobs": 0}
    await node.send({"type": "node_heartbeat", "node_id": node.id, "timestamp": 1, "resource_usage": usage, **fields})
    await until(lambda: len(rig.selector.seen_of(NodeHeartbeat)) > before, "the heartbeat is passed on")
    heard = rig.selector.seen_of(NodeHeartbeat)[-1]
    assert isinstance(heard, NodeHeartbeat)
    return heard


async def test_registration_carries_models_pairs_tenant_and_the_number_of_jobs(tmp: Path) -> None:
    async with running(tmp) as rig:
        languages = {
            "asr_languages": ["zh", "en"],
            "semantic_languages": ["zh", "en"],
            "nmt_capabilities": [{"model_id": "m", "languages": ["zh", "en"], "rule": "any_to_en"}],
        }
        models = [{"model_id": "emotion-xlm-r", "kind": "emotion", "version": "1"}]
        extra = {"tenant_id": "acme", "max_concurrent_jobs": 9, "region": "eu", "gpu_tier": "high"}
        node = await rig.node(language_capabilities=languages, installed_models=models, **extra)
        (register,) = rig.selector.seen_of(NodeRegister)
        caps = register.caps
        assert (caps.models, caps.pairs, caps.tenant_id) == (["emotion-xlm-r"], ["zh>en"], "acme")
        assert (caps.max_jobs, caps.region, caps.gpu_tier) == (9, "eu", "high")
        changed = await beat(rig, node, installed_models=[])
        assert changed.caps is not None and changed.caps.models == []
        stranger = await rig.talk("/ws/node")
        await stranger.send({**REGISTER, "tenant_id": "not an id"})
        assert (await stranger.receive("error"))["code"] == "INVALID_ID"


async def test_result_carries_duration_language_pair_and_audio_length(tmp: Path) -> None:
    async with running(tmp) as rig:
        node = await rig.node()
        give(rig, assign(rig, node))
        job = await node.receive("job_assign")
        await until(lambda: rig.selector.seen_of(Placed) != [], "the job is placed")
        assert rig.selector.seen_of(Placed)[0].late_after_ms == 700
        await node.answer(job)
        await until(lambda: rig.selector.seen_of(JobDone) != [], "the result is on its way")
        done = rig.selector.seen_of(JobDone)[0]
        assert (done.pair, done.audio_ms) == ("zh>en", 1_000) and done.took_ms >= 0


def failing(code: str) -> dict[str, Any]:
    return {"success": False, "error": {"code": code, "message": "no"}}


@pytest.mark.parametrize(
    ("said", "is_telling"),
    [
        (failing("PROCESSING_ERROR"), True),
        (failing("MODEL_NOT_AVAILABLE"), False),
        (failing("INVALID_AUDIO_FORMAT"), False),
        ({"text_asr": "", "text_translated": "", "tts_audio": ""}, False),
    ],
)
async def test_duration_is_measured_only_if_it_is_a_property_of_the_node(
    tmp: Path, said: dict[str, Any], is_telling: bool
) -> None:
    async with running(tmp) as rig:
        node = await rig.node()
        give(rig, assign(rig, node))
        await node.answer(await node.receive("job_assign"), **said)
        await until(lambda: rig.selector.seen_of(JobDone) != [], "the result is on its way")
        assert (rig.selector.seen_of(JobDone)[0].took_ms >= 0) is is_telling


async def test_heartbeat_names_jobs_of_the_node_and_of_the_edge(tmp: Path) -> None:
    async with running(tmp, heartbeat_min_ms=1) as rig:
        rig.selector.mute = lambda frame: isinstance(frame, JobDone)
        node = await rig.node()
        first, second = assign(rig, node, 1), assign(rig, node, 2)
        for frame in (first, second):
            give(rig, frame)
        job = await node.receive("job_assign")
        await node.receive("job_assign")
        members = [f"{first.job_id}#1", f"{second.job_id}#1"]
        assert (await beat(rig, node)).jobs is None, "a node that names none may run what another edge gave it"
        await node.answer(job)
        elsewhere = {"job_id": job_id_in(cell_of(node.id, CELLS), f"{3:032x}"), "attempt_id": 2}
        foreign = {"job_id": job_id_in(cell_of(node.id, CELLS) ^ 1, f"{4:032x}"), "attempt_id": 1}
        named = [{"job_id": second.job_id, "attempt_id": 1}, elsewhere, foreign, {"job_id": "{x}", "attempt_id": 1}]
        heard = await beat(rig, node, jobs=named)
        assert heard.jobs == [*members, f"{elsewhere['job_id']}#2"], "a result that nobody acknowledged counts"
        await until(lambda: rig.selector.seen_of(JobDone) != [], "the result is repeated until acknowledged")


async def test_node_that_names_no_jobs_runs_those_of_this_edge_after_a_lease(tmp: Path) -> None:
    async with running(tmp, heartbeat_min_ms=1, job_lease_ms=1) as rig:
        node = await rig.node()
        frame = assign(rig, node)
        give(rig, frame)
        await node.receive("job_assign")
        assert (await beat(rig, node)).jobs == [f"{frame.job_id}#1"]


async def test_job_for_a_detached_node_is_buffered_until_it_reattaches(tmp: Path) -> None:
    async with running(tmp, reconnect_grace_ms=LONG_MS) as rig:
        keep_nodes(rig)
        node = await rig.node()
        held, cancelled = assign(rig, node, 1), assign(rig, node, 2)
        await leave(rig, node)
        give(rig, held)
        give(rig, cancelled)
        tracker = rig.edges[0].nodes.tracker
        buffered = rig.edges[0].metrics.job_outcomes_total.labels(JobOutcome.JOB_BUFFERED)
        await until(lambda: buffered.value == 2, "both jobs are buffered")
        tell(rig, node, CancelJob(cancelled.job_id, 1, node.id, "t", "session_closed"))
        await until(lambda: tracker.running_at(node.id, [(cancelled.job_id, 1)]) == [], "it is cancelled")
        assert rig.selector.seen_of(Placed) == []
        again = await rig.node(node_id=node.id)
        job = await again.receive("job_assign")
        assert job["job_id"] == held.job_id
        await again.answer(job)
        await until(lambda: rig.selector.seen_of(JobDone) != [], "its result is on its way")
        assert rig.selector.seen_of(JobDone)[0].request_id == "r1" and failures(rig) == []
        assert [message["type"] for message in again.received] == ["node_register_ack", "job_assign"]


async def test_buffered_job_fails_when_the_node_stays_detached(tmp: Path) -> None:
    async with running(tmp, reconnect_grace_ms=300) as rig:
        keep_nodes(rig)
        node = await rig.node()
        running_job, held = assign(rig, node, 1), assign(rig, node, 2)
        give(rig, running_job)
        await node.receive("job_assign")
        await leave(rig, node)
        give(rig, held)
        await until(lambda: len(failures(rig)) == 2, "both jobs are given back")
        assert dict(failures(rig)) in ({1: "node_gone", 2: "job_lost"}, {1: "node_gone", 2: "node_absent"})


async def test_node_error_fails_its_jobs_at_once(tmp: Path) -> None:
    async with running(tmp) as rig:
        keep_nodes(rig)
        node = await rig.node()
        for number in (1, 2, 3):
            give(rig, assign(rig, node, number))
        jobs = [await node.receive("job_assign") for _ in range(3)]
        error = {"type": "node_error", "node_id": node.id, "code": "OOM", "message": "no memory"}
        await node.send({**error, "details": {"job_id": jobs[1]["job_id"], "attempt_id": 1}})
        await until(lambda: failures(rig) == [(2, "node_error")], "that job is given back")
        await node.send({**error, "details": {"job_id": 7}})
        assert (await node.receive("error"))["code"] == "INVALID_ID"
        await node.send({**error, "details": "all is lost"})
        await until(lambda: len(failures(rig)) == 3, "and then the others")
        assert sorted(failures(rig)) == [(number, "node_error") for number in (1, 2, 3)]
        await node.answer(jobs[0])
        await until(lambda: rig.selector.seen_of(JobDone) != [], "a late result is the mesh's to judge")
        assert rig.selector.seen_of(JobDone)[0].request_id == ""


async def test_error_on_a_superseded_connection_fails_no_job(tmp: Path) -> None:
    async with running(tmp) as rig:
        keep_nodes(rig)
        old = await rig.node()
        nodes = rig.edges[0].nodes
        (socket,) = nodes.sockets
        new = await rig.node(node_id=old.id)
        job = assign(rig, new)
        give(rig, job)
        await new.receive("job_assign")
        error = {"type": "node_error", "node_id": old.id, "code": "OOM", "message": "no memory"}
        nodes._on_message_of(socket, json.dumps(error).encode(), True)  # it was in flight when the socket was closed
        assert nodes.tracker.running_at(new.id, []) == [f"{job.job_id}#1"]
        await new.send(error)
        await until(lambda: failures(rig) == [(1, "node_error")], "the connection in force is believed")


async def test_missing_model_reports_are_coalesced_and_fail_no_other_jobs(tmp: Path) -> None:
    async with running(tmp) as rig:
        keep_nodes(rig)
        node = await rig.node()
        for number in (1, 2):
            give(rig, assign(rig, node, number))
        job = await node.receive("job_assign")
        details = {"service_id": "whisper", "service_version": "3", "reason": "not_found"}
        error = {"code": "MODEL_NOT_AVAILABLE", "message": "no model", "details": details}
        for _ in range(200):
            await node.send({"type": "node_error", "node_id": node.id, **error})
        await node.answer(job, success=False, error={**error, "details": {**details, "service_id": "nmt-m2m100"}})
        counted: list[ModelMissing] = rig.selector.seen_of(ModelMissing)

        def total() -> int:
            counted[:] = rig.selector.seen_of(ModelMissing)
            return sum(frame.count for frame in counted)

        await until(lambda: total() == 201, "every word arrives, counted")
        assert len(counted) < 50, "few frames tell of them"
        assert {(frame.service_id, frame.service) for frame in counted} == {("whisper", "asr"), ("nmt-m2m100", "nmt")}
        word = counted[0]
        assert (word.node_id, word.epoch, word.version) == (node.id, rig.selector.nodes[node.id][1], "3")
        assert failures(rig) == [], "the other job goes on"


async def test_status_is_sent_to_the_connection_of_its_epoch(tmp: Path) -> None:
    async with running(tmp) as rig:
        node = await rig.node()
        epoch = rig.selector.nodes[node.id][1]
        tell(rig, node, StatusChanged(node.id, epoch - 1, "offline", "silent"))
        tell(rig, node, StatusChanged(node.id, epoch, "ready", ""))
        heard = await node.receive("node_status")
        assert (heard["status"], heard["reason"], heard["node_id"]) == ("ready", None, node.id)
        assert abs(heard["timestamp"] - wall_ms() / 1_000) < 60
        tell(rig, node, StatusChanged(node.id, epoch, "degraded", "unhealthy"))
        assert (await node.receive("node_status"))["reason"] == "unhealthy"


async def test_drain_hands_jobs_over_at_the_deadline_unless_resumed(tmp: Path) -> None:
    async with running(tmp) as rig:
        keep_nodes(rig)
        node = await rig.node()
        epoch = rig.selector.nodes[node.id][1]
        tell(rig, node, ControlNode(node.id, epoch, "drain", "upgrade", wall_ms() + LONG_MS))
        heard = await node.receive("node_control")
        assert (heard["command"], heard["reason"]) == ("drain", "upgrade") and 0 < heard["deadline_ms"] <= LONG_MS
        for number in (1, 2):
            give(rig, assign(rig, node, number))
        job = await node.receive("job_assign")
        await node.receive("job_assign")
        tell(rig, node, ControlNode(node.id, epoch, "resume", ""))
        assert (await node.receive("node_control")) == {"type": "node_control", "command": "resume"}
        await node.answer(job)
        await until(lambda: rig.selector.seen_of(JobDone) != [], "the first job is done")
        tell(rig, node, ControlNode(node.id, epoch, "drain", "upgrade", wall_ms() + 200))
        cancel = await node.receive("job_cancel")
        assert (cancel["job_id"][-1], cancel["reason"]) == ("2", "drained")
        await until(lambda: failures(rig) == [(2, "drained")], "what is unfinished is given back")
        assert rig.edges[0].metrics.given_back_total.labels("drained").value == 1


async def test_reattached_node_receives_its_drain_again(tmp: Path) -> None:
    async with running(tmp, reconnect_grace_ms=LONG_MS) as rig:
        keep_nodes(rig)
        node = await rig.node()
        epoch = rig.selector.nodes[node.id][1]
        tell(rig, node, ControlNode(node.id, epoch, "drain", "upgrade", wall_ms() + LONG_MS))
        await node.receive("node_control")
        await leave(rig, node)
        again = await rig.node(node_id=node.id)
        assert (await again.receive("node_control"))["command"] == "drain"
