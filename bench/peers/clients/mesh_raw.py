"""Our mesh by raw sockets, JSON and base64 as the original's clients: `mesh_raw.py nodes URL NODES SLOTS` and
`mesh_raw.py client SESSIONS URL...`. The floor is measured with the same two. Environment: PEER_BYTES."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import msgspec
import pybase64
import uvloop
from websockets.asyncio.client import ClientConnection, connect
from window import RESULT_BYTES, Work, serve

HEARTBEAT_S = 5.0
LANGUAGES = ["en", "es"]
SERVICES = ("asr", "nmt", "tts", "semantic")
#: RESULT_BYTES characters of base64.
TTS = pybase64.b64encode_as_string(bytes(RESULT_BYTES // 4 * 3))
CAPABILITIES: dict[str, Any] = {
    "installed_services": [
        {"service_id": name, "type": name, "device": "gpu", "status": "running", "version": "1"} for name in SERVICES
    ],
    "capability_by_type": [{"type": name, "ready": True} for name in SERVICES],
    "language_capabilities": {
        "asr_languages": LANGUAGES,
        "tts_languages": LANGUAGES,
        "semantic_languages": LANGUAGES,
        "semantic_core_ready": True,
    },
}
_RUNNING: list[asyncio.Task[None]] = []  # the loop itself holds only weak references
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode


async def _send(socket: ClientConnection, message: dict[str, Any]) -> None:
    await socket.send(_encode(message).decode())


async def _dial(url: str) -> ClientConnection:
    return await connect(url, compression=None, max_size=None, proxy=None)


# --- nodes ----------------------------------------------------------------------------------------


async def _node(url: str, number: int, slots: int) -> None:
    """Register, then answer every job at once."""
    node_id = f"node-bench-{number}"
    socket = await _dial(url)
    hardware = {"cpu_cores": 8, "memory_gb": 32, "gpus": [{"name": "bench", "memory_gb": 12}]}
    register = {"type": "node_register", "node_id": node_id, "version": "1", "capability_schema_version": "2.0"}
    register |= {"platform": "linux", "hardware": hardware, "installed_models": [], "features_supported": {}}
    await _send(socket, {**register, "accept_public_jobs": True, "max_concurrent_jobs": slots, **CAPABILITIES})
    while _decode(await socket.recv())["type"] != "node_register_ack":
        pass
    _RUNNING.append(asyncio.create_task(_heartbeats(socket, node_id)))
    _RUNNING.append(asyncio.create_task(_answer(socket, node_id)))


async def _heartbeats(socket: ClientConnection, node_id: str) -> None:
    usage = {"cpu_percent": 1.0, "gpu_percent": 1.0, "gpu_mem_percent": 1.0, "mem_percent": 1.0, "running_jobs": 0}
    beat = {"type": "node_heartbeat", "node_id": node_id, "resource_usage": usage, **CAPABILITIES}
    while True:
        await _send(socket, {**beat, "timestamp": int(time.time() * 1_000)})
        await asyncio.sleep(HEARTBEAT_S)


async def _answer(socket: ClientConnection, node_id: str) -> None:
    same = ("job_id", "attempt_id", "session_id", "utterance_index", "trace_id")
    result = {"type": "job_result", "node_id": node_id, "success": True, "text_asr": "a", "text_translated": "b"}
    result |= {"tts_audio": TTS, "tts_format": "pcm16", "processing_time_ms": 1}
    async for text in socket:
        message = _decode(text)
        if message["type"] == "job_assign":
            await _send(socket, {**result, **{name: message[name] for name in same}})


async def nodes(url: str, count: int, slots: int) -> None:
    """All nodes in one process."""
    tasks = [asyncio.create_task(_node(url, number, slots)) for number in range(count)]
    await asyncio.gather(*tasks)
    print("ready", flush=True)
    await asyncio.Event().wait()


# --- sessions -------------------------------------------------------------------------------------


class RawSession:
    """One session; utterances are matched with results by their index."""

    def __init__(self, socket: ClientConnection, session_id: str) -> None:
        self.socket = socket
        self.pending: dict[int, asyncio.Future[str]] = {}
        self._index = 0
        self._fields = {"type": "utterance", "session_id": session_id, "manual_cut": True, "audio_format": "pcm16"}
        self._fields |= {"src_lang": "en", "tgt_lang": "es", "sample_rate": 16_000}

    async def submit(self, audio: bytes) -> str:
        """The speech of the result."""
        index, self._index = self._index, self._index + 1
        future = self.pending[index] = asyncio.get_running_loop().create_future()
        encoded = pybase64.b64encode_as_string(audio)
        await _send(self.socket, {**self._fields, "utterance_index": index, "audio": encoded})
        return await future

    async def read(self) -> None:
        """Complete the utterances; one without a result ends the measurement."""
        async for text in self.socket:
            message = _decode(text)
            if message["type"] == "translation_result":
                self.pending.pop(message["utterance_index"]).set_result(message["tts_audio"])
            elif message["type"] in ("missing_result", "error"):
                print(message, file=sys.stderr, flush=True)
                os._exit(1)


async def client(sessions: int, urls: list[str]) -> None:
    """Sessions by turns at each address; a job takes a free one, or the next if all are busy."""
    opened: list[RawSession] = []
    readers = []
    for number in range(sessions):
        socket = await _dial(urls[number % len(urls)])
        init = {"type": "session_init", "client_version": "bench", "platform": "web"}
        await _send(socket, {**init, "src_lang": "en", "tgt_lang": "es"})
        while (ack := _decode(await socket.recv()))["type"] != "session_init_ack":
            pass
        opened.append(RawSession(socket, ack["session_id"]))
        readers.append(asyncio.create_task(opened[-1].read()))
    free, turn = list(opened), 0

    async def submit(audio: bytes) -> str:
        nonlocal turn
        turn += 1
        session = free.pop() if free else opened[turn % len(opened)]
        result = await session.submit(audio)
        if not session.pending:
            free.append(session)
        return result

    await serve(submit, Work(int(os.environ["PEER_BYTES"])).payload)


if __name__ == "__main__":
    if sys.argv[1] == "nodes":
        uvloop.run(nodes(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    else:
        uvloop.run(client(int(sys.argv[2]), sys.argv[3:]))
