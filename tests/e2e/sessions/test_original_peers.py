"""The original system's own node and web client, played by literal JSON, work unchanged.

Its node sends no job_ack and no job_started; both speak JSON text only and present no token.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.support.fakes.original_node import REGISTER, heartbeat, receive, send
from tests.support.processes.running_mesh import RunningMesh


async def original_node(socket: ClientConnection, jobs: int, assigned: list[dict[str, Any]]) -> None:
    """Takes `jobs` jobs and answers each with a result only."""
    await send(socket, REGISTER)
    ack = await receive(socket, "node_register_ack")
    assert ack["message"] == "registered"
    assert ack["status"] == "registering"
    node_id = ack["node_id"]
    assert node_id.startswith("node-")
    await send(socket, heartbeat(node_id))
    for _ in range(jobs):
        job = await receive(socket, "job_assign")
        assigned.append(job)
        await send(
            socket,
            {
                "type": "job_result",
                "job_id": job["job_id"],
                "attempt_id": job["attempt_id"],
                "node_id": node_id,
                "session_id": job["session_id"],
                "utterance_index": job["utterance_index"],
                "success": True,
                "text_asr": "你好",
                "text_translated": "hello",
                "tts_audio": base64.b64encode(b"tts").decode(),
                "tts_format": "opus",
                "extra": {"service_timings": {"asr_ms": 10, "nmt_ms": 5, "tts_ms": 7, "total_ms": 22}},
                "processing_time_ms": 22,
                "trace_id": job["trace_id"],
                "node_completed_at_ms": 1_767_225_600_100,
                "asr_quality_level": "good",
            },
        )


def utterance(session_id: str, index: int, audio: bytes) -> dict[str, Any]:
    return {
        "type": "utterance",
        "session_id": session_id,
        "utterance_index": index,
        "manual_cut": True,
        "src_lang": "zh",
        "tgt_lang": "en",
        "dialect": None,
        "features": {},
        "audio": base64.b64encode(audio).decode(),
        "audio_format": "pcm16",
        "sample_rate": 16_000,
        "trace_id": "trace-1",
    }


async def test_the_originals_own_node_and_web_client_work_unchanged(redis_server, mesh_dir) -> None:
    audio = bytes(range(256)) * 10
    assigned: list[dict[str, Any]] = []
    with RunningMesh(mesh_dir, redis_server.url, edges=2) as mesh:
        node_url, session_url = f"{mesh.url('edge-0')}/ws/node", f"{mesh.url('edge-1')}/ws/session"
        async with connect(node_url) as node_socket, connect(session_url) as client:
            node = asyncio.create_task(original_node(node_socket, 3, assigned))
            await send(
                client,
                {
                    "type": "session_init",
                    "client_version": "web-client-v1",
                    "platform": "web",
                    "src_lang": "zh",
                    "tgt_lang": "en",
                    "features": {},
                    "trace_id": "trace-1",
                },
            )
            ack = await receive(client, "session_init_ack")
            session_id = ack["session_id"]
            assert session_id.startswith("s-")
            assert ack["message"] == "session created"
            assert ack["trace_id"] == "trace-1"
            for index in range(3):
                await send(client, utterance(session_id, index, audio))
                result = await receive(client, "translation_result")
                assert (result["session_id"], result["utterance_index"]) == (session_id, index)
                assert (result["text_asr"], result["text_translated"]) == ("你好", "hello")
                assert (base64.b64decode(result["tts_audio"]), result["tts_format"]) == (b"tts", "opus")
                assert result["service_timings"]["total_ms"] == 22
                assert result["trace_id"] == "trace-1"
            await send(client, {"type": "client_heartbeat", "session_id": session_id, "timestamp": 1})
            assert (await receive(client, "server_heartbeat"))["session_id"] == session_id
            await send(client, {"type": "session_close", "session_id": session_id, "reason": "user"})
            assert (await receive(client, "session_close_ack"))["session_id"] == session_id
            await node

    assert [job["utterance_index"] for job in assigned] == [0, 1, 2]
    assert all(base64.b64decode(job["audio"]) == audio for job in assigned)
    first = assigned[0]
    assert first["attempt_id"] == 1
    assert (first["src_lang"], first["tgt_lang"], first["audio_format"]) == ("zh", "en", "pcm16")
    assert first["pipeline"]["use_asr"] is True
    assert first["is_manual_cut"] is True
    assert "is_pause_triggered" not in first
