"""The messages of the original system's node as literal JSON, and its side of a raw socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from websockets.asyncio.client import ClientConnection

from tests.support.conditions import DEADLINE_S

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
    """The heartbeat of the Electron node: sent right after node_register_ack and every 15 s."""
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
    """The next message of that type; others are skipped, as the original's peers do."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            message: dict[str, Any] = json.loads(await socket.recv())
            if message["type"] == kind:
                return message


async def send(socket: ClientConnection, message: dict[str, Any]) -> None:
    await socket.send(json.dumps(message))


#: The languages of the SDK clients in tests.
LANGUAGES = {"asr_languages": ["en"], "semantic_languages": ["es"], "tts_languages": ["es"]}


async def register_node(socket: ClientConnection) -> str:
    """Register as the original's node does, for the languages of the SDK clients; the node's id."""
    await send(socket, {**REGISTER, "language_capabilities": LANGUAGES})
    node_id = str((await receive(socket, "node_register_ack"))["node_id"])
    await send(socket, {**heartbeat(node_id), "language_capabilities": LANGUAGES})
    return node_id
