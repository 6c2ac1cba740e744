"""One utterance through real sockets: the original's own node and web client, played by literal JSON."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

from mesh.frames import AssignFailed, Cancel, EdgeReport, JobEvent, NodeOffline, SessionRelease
from tests.support.conditions import until
from tests.support.processes.edge import AUDIO, Rig, running


def job_events(rig: Rig) -> list[str]:
    return [word for frame in rig.selector.seen_of(JobEvent) for word in frame.event.split()]


async def test_utterance_reaches_a_node_and_its_result_the_client(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, client = await rig.node(), await rig.session()
        assert client.received[0]["message"] == "session created"
        assert client.received[0]["protocol_version"] == "1.0" and client.received[0]["use_binary_frame"] is False
        assert node.received[0] == {
            "type": "node_register_ack", "node_id": node.id, "message": "registered", "status": "registering",
        }  # fmt: skip
        await client.utter(0, trace_id="trace-1")
        job = await node.receive("job_assign")
        assert job["session_id"] == client.id and job["utterance_index"] == 0 and job["attempt_id"] == 1
        assert base64.b64decode(job["audio"]) == AUDIO and job["trace_id"] == "trace-1"
        assert job["is_manual_cut"] is True and "is_pause_triggered" not in job and "turn_id" not in job
        assert job["pipeline"] == {
            "use_asr": True, "use_nmt": True, "use_tts": True, "use_semantic": False, "use_tone": False,
        }  # fmt: skip
        await client.receive("ui_event", event="DISPATCHED")  # sent only while there is no result
        await node.answer(job)
        result = await client.receive("translation_result")
        assert result["job_id"] == job["job_id"] and result["text_translated"] == "hello 0"
        assert result["tts_audio"] == "UklGRg==" and result["tts_format"] == "opus"
        assert result["service_timings"] == {"total_ms": 42} and "network_timings" in result
        events = [message["event"] for message in client.received if message["type"] == "ui_event"]
        assert events == ["DISPATCHED", "ASR_FINAL", "NMT_DONE"]
        await until(lambda: not rig.edges[0].nodes.tracker.results, "the result is acknowledged")
        await node.close()
        await client.close()
        await rig.selector.receives(NodeOffline)
        await rig.selector.receives(SessionRelease)


async def test_two_edges_and_a_node_that_says_everything(tmp: Path) -> None:
    async with running(tmp, edges=2) as rig:
        node, client = await rig.node(edge=1, result_ack=True), await rig.session(edge=0)
        await client.utter(7)
        job = await node.receive("job_assign")
        ids = {key: job[key] for key in ("job_id", "attempt_id", "session_id", "trace_id")} | {"node_id": node.id}
        await node.send({"type": "job_ack", **ids})
        await node.send({"type": "job_started", **ids})
        partial = {"type": "asr_partial", **ids, "utterance_index": 7, "text": "ni", "is_final": False}
        await node.send(partial)
        heard = await client.receive("asr_partial")
        assert heard["text"] == "ni" and heard["job_id"] == job["job_id"] and heard["session_id"] == client.id
        words = ["dispatch", "accept", "start"]
        await until(lambda: job_events(rig) == words, "the mesh receives the progress of the job")
        await node.answer(job)
        await client.receive("translation_result", utterance_index=7)
        assert (await node.receive("job_result_ack"))["job_id"] == job["job_id"]
        events = [message["event"] for message in client.received if message["type"] == "ui_event"]
        assert events == ["DISPATCHED", "NODE_ACCEPTED", "ASR_PARTIAL", "ASR_FINAL", "NMT_DONE"]


async def test_many_sessions_each_get_their_own_results_once(tmp: Path) -> None:
    async with running(tmp, edges=2) as rig:
        node = await rig.node(edge=1)
        clients = [await rig.session(edge=number % 2) for number in range(6)]

        async def work() -> None:
            for _ in range(30):
                await node.answer(await node.receive("job_assign"))

        async def talk(number: int) -> None:
            for index in range(5):
                await clients[number].utter(index)
            for _ in range(5):
                await clients[number].receive("translation_result", session_id=clients[number].id)

        await asyncio.gather(work(), *(talk(number) for number in range(6)))
        for client in clients:
            results = [message for message in client.received if message["type"] == "translation_result"]
            assert sorted(message["utterance_index"] for message in results) == list(range(5))


async def test_repeated_index_makes_one_job_and_failed_result_is_told(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, client = await rig.node(), await rig.session()
        await client.utter(0)
        await client.utter(0)
        job = await node.receive("job_assign")
        error = {"code": "MODEL_NOT_AVAILABLE", "message": "no model", "details": {"service_id": "nmt"}}
        await node.answer(job, success=False, error=error, text_asr=None, text_translated=None, tts_audio=None)
        told = await client.receive("error")
        assert (told["code"], told["message"]) == ("MODEL_NOT_AVAILABLE", "no model")
        assert (told["details"]["service_id"], told["details"]["utterance_index"]) == ("nmt", 0)
        failed = [message for message in client.received if message.get("event") == "ERROR"]
        assert failed[0]["error_code"] == "MODEL_NOT_AVAILABLE" and failed[0]["hint"]
        missing = await client.receive("missing_result")
        assert (missing["utterance_index"], missing["reason"]) == (0, "job_failed")
        await client.utter(0)
        assert (await client.receive("error"))["code"] == "UTTERANCE_ENDED", "an index ends once"
        await client.utter(1)
        job = await node.receive("job_assign")
        assert job["utterance_index"] == 1
        await node.answer(job, text_asr="", text_translated="", tts_audio="")
        missing = await client.receive("missing_result")
        assert (missing["utterance_index"], missing["reason"]) == (1, "silence_detected")


async def test_no_node_ends_in_a_typed_error_at_the_deadline(tmp: Path) -> None:
    async with running(tmp) as rig:
        rig.edges.append(await rig.start_edge("slow", job_deadline_ms=300))
        client = await rig.session(edge=1)
        for index in (3, 4):
            await client.utter(index, trace_id="t-1")
            error = await client.receive("error")
            assert error["code"] == "NO_AVAILABLE_NODE" and error["details"]["reason"] == "no_nodes"
            assert error["details"]["utterance_index"] == index
            assert (await client.receive("missing_result"))["utterance_index"] == index
        node = await rig.node(edge=1)
        await client.utter(5, trace_id="t-1")
        job = await node.receive("job_assign")
        await node.answer(job)
        await client.receive("translation_result", utterance_index=5)


async def test_silent_node_times_out_and_is_told_to_stop(tmp: Path) -> None:
    async with running(tmp, edges=2) as rig:
        rig.edges.append(await rig.start_edge("slow", job_deadline_ms=300))
        node, client = await rig.node(edge=1), await rig.session(edge=2)
        await client.utter(0)
        job = await node.receive("job_assign")
        assert (await client.receive("error"))["code"] == "JOB_TIMEOUT"
        cancel = await node.receive("job_cancel")
        assert cancel["job_id"] == job["job_id"] and cancel["reason"] == "job_timeout"
        assert len(rig.selector.seen_of(Cancel)) == 1
        await node.answer(job)  # too late: fenced and dropped
        await until(lambda: not rig.edges[1].nodes.tracker.results, "the late result is dropped")


async def test_node_that_vanishes_loses_its_job_to_another(tmp: Path) -> None:
    async with running(tmp, edges=2) as rig:
        first, client = await rig.node(edge=1), await rig.session()
        await client.utter(0)
        await first.receive("job_assign")
        await first.close()
        second = await rig.node(edge=0)
        job = await second.receive("job_assign")
        assert job["attempt_id"] == 2
        await second.answer(job)
        await client.receive("translation_result", utterance_index=0)


async def test_node_that_reconnects_in_time_keeps_its_job(tmp: Path) -> None:
    async with running(tmp, reconnect_grace_ms=10_000) as rig:
        node, client = await rig.node(), await rig.session()
        await client.utter(0)
        job = await node.receive("job_assign")
        await node.close()
        again = await rig.node(node_id=node.id)
        assert again.id == node.id
        await again.answer(job)
        assert (await client.receive("translation_result"))["job_id"] == job["job_id"]


async def test_node_that_restarts_without_its_job_gets_it_back_or_another_does(tmp: Path) -> None:
    async with running(tmp, reconnect_grace_ms=60_000) as rig:
        node, client = await rig.node(node_id="node-1"), await rig.session()
        await client.utter(0)
        await client.utter(1)
        jobs = [await node.receive("job_assign"), await node.receive("job_assign")]
        await node.close()
        again, other = await rig.node(node_id="node-1"), await rig.node(node_id="node-2")
        kept = [{"job_id": jobs[1]["job_id"], "attempt_id": 1}]
        beat = {"type": "node_heartbeat", "node_id": "node-1", "timestamp": 0, "resource_usage": {"cpu_percent": 0.0}}
        await again.send({**beat, "jobs": kept})
        await other.answer(await other.receive("job_assign", utterance_index=0, attempt_id=2))
        await again.answer(jobs[1])
        heard = {(await client.receive("translation_result"))["utterance_index"] for _ in jobs}
        assert heard == {0, 1}
        assert [frame.reason for frame in rig.selector.seen_of(AssignFailed)] == ["job_lost"]


async def test_session_and_node_on_one_edge_need_no_broker_between_them(tmp: Path) -> None:
    async with running(tmp, edges=0, resend_ms=20_000, resend_ms_max=20_000) as rig:
        rig.edges.append(await rig.start_edge("e", presence_ms=3_600_000))
        node, client = await rig.node(result_ack=True), await rig.session()
        await rig.selector.receives(EdgeReport)
        counts = rig.edges[0].link._link.counts
        sent = counts.sent
        await client.utter(0)
        job = await node.receive("job_assign")
        ids = {key: job[key] for key in ("job_id", "attempt_id", "session_id", "trace_id")} | {"node_id": node.id}
        await node.send({"type": "job_ack", **ids})
        await client.receive("ui_event", event="NODE_ACCEPTED")
        await node.answer(job)
        await client.receive("translation_result")
        await node.receive("job_result_ack")
        told = len(rig.selector.seen_of(JobEvent))
        assert counts.sent - sent - told == 2, "Dispatch and JobDone; Placed, Notice and ResultAck stay here"
