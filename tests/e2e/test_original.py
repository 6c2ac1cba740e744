"""The original system's own node and web client, played by literal JSON, work unchanged.

Its node sends no job_ack and no job_started; both speak JSON text only and present no token.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.support.processes.running_mesh import RunningMesh

REGISTER: dict[str, Any] = {
    "type": "node_register",
    "node_id": None,
    "version": "2.0.0",
    "capability_schema_version": "2.0",
    "platform": "windows",
    "hardware": {"cpu_cores": 16, "memory_gb": 32, "gpus": [{"name": "RTX 4070", "memory_gb": 12}]},
    "installed_models": [],
    "installed_services": [
        {"service_id": "faster-whisper-vad", "type": "asr", "device": "gpu", "status": "running"},
        {"service_id": "nmt-m2m100", "type": "nmt", "device": "gpu", "status": "running"},
        {"service_id": "piper-tts", "type": "tts", "device": "cpu", "status": "running"},
        {"service_id": "semantic-repair", "type": "semantic", "device": "gpu", "status": "running"},
        {"service_id": "en-phonetics", "type": "phonetic", "device": "cpu", "status": "running"},
    ],
    "capability_by_type": [
        {"type": "asr", "ready": True, "ready_impl_ids": ["faster-whisper-vad"]},
        {"type": "nmt", "ready": True},
        {"type": "tts", "ready": True},
        {"type": "semantic", "ready": True},
        {"type": "tone", "ready": False, "reason": "no_impl"},
    ],
    "features_supported": {"emotion_detection": False},
    "accept_public_jobs": True,
    "language_capabilities": {
        "asr_languages": ["zh", "en"],
        "semantic_languages": ["zh", "en"],
        "tts_languages": ["zh", "en"],
        "semantic_core_ready": True,
    },
}


def heartbeat(node_id: str) -> dict[str, Any]:
    """What the Electron node sends right after node_register_ack and every 15 s."""
    return {
        "type": "node_heartbeat",
        "node_id": node_id,
        "timestamp": 1_767_225_600_000,
        "resource_usage": {
            "cpu_percent": 12.5,
            "gpu_percent": 3.0,
            "gpu_mem_percent": 20.0,
            "mem_percent": 40.0,
            "running_jobs": 0,
            "gpu_queue_length": 0,
        },
        "installed_models": [],
        "installed_services": REGISTER["installed_services"],
        "capability_by_type": REGISTER["capability_by_type"],
        "processing_metrics": {"serviceEfficiencies": {"nmt-m2m100": 1.5}},
        "language_capabilities": REGISTER["language_capabilities"],
    }


async def receive(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next message of that type; others are passed over, as the original's ends do."""
    async with asyncio.timeout(20):
        while True:
            message: dict[str, Any] = json.loads(await socket.recv())
            if message["type"] == kind:
                return message


async def send(socket: ClientConnection, message: dict[str, Any]) -> None:
    await socket.send(json.dumps(message))


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
