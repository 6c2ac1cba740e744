"""A mesh for one session that follows docs/protocol.md on real WebSockets, at several addresses, and loses connections.

The result of an utterance is the list of its samples, and its audio as speech. All randomness comes from the seed:
where connections are cut, and how much of the session the next one finds.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from array import array
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from mesh.messages import audio_frames, binary
from mesh.messages.audio_frames import AudioFrame, FinalFrame
from mesh.messages.utterances import TranslationResult
from tests.support.conditions import DEADLINE_S
from tests.support.fakes.scripted_server import Peer

#: Most messages on a connection before it is cut.
MESSAGES_MAX = 12
#: Every such chunk is rejected with backpressure while the mesh is busy.
BUSY_EVERY = 7


def samples_of(audio: bytes) -> list[int]:
    """The samples of PCM16."""
    return array("h", audio).tolist()


async def recv_close(peer: Peer) -> None:
    """Wait for session_close, and reply to the heartbeat before it."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            message = json.loads(await peer.connection.recv())
            if message["type"] == "client_heartbeat":
                await peer.send("server_heartbeat", session_id=message["session_id"], timestamp=1)
            if message["type"] == "session_close":
                return


class ConnectionCut(Exception):
    """The connection is lost here."""


class PlayedMesh:
    """The session's state, as all its edges share it.

    cuts        number of connections that are lost; later ones are not
    forgets     half of the resumes find no session
    binary      the mesh accepts binary frames, and every other connection binary messages
    """

    def __init__(self, seed: int = 0, cuts: int = 0, *, forgets: bool = False, binary: bool = True) -> None:
        self.urls: list[str] = []
        self.inits: list[dict[str, Any]] = []
        #: The index of the address of each connection.
        self.dialled: list[int] = []
        #: Number of sessions, with those that replaced a lost one.
        self.sessions = 0
        self.is_busy = False
        self._random = random.Random(seed)
        self.cuts = cuts
        self._left = self._random.randint(1, MESSAGES_MAX)
        self._forgets = forgets
        self._binary = binary
        self._has_binary_messages = False
        self._busy_chunks = 0
        self._is_open = False
        self._begin()

    def _begin(self) -> None:
        self.sessions += 1
        self._next_seq = 0
        self._early: dict[int, tuple[bytes, bool]] = {}
        self._open = b""
        self._open_seq = -1
        self._complete: dict[int, dict[str, Any]] = {}
        self._next_index = 0
        self._next_end = 0
        self._unacked: dict[int, dict[str, Any]] = {}
        self._ended_seq = -1

    @property
    def session_id(self) -> str:
        """Of the current session."""
        return f"s-{self.sessions}"

    # --- one connection ---------------------------------------------------------------------------

    async def serve(self, connection: ServerConnection, address: int) -> None:
        """One connection, until it is cut or closed."""
        self.dialled.append(address)
        try:
            await self._open_session(connection, json.loads(await connection.recv()))
            async for data in connection:
                self._maybe_cut()
                await self._on_data(connection, data)
        except ConnectionCut:
            connection.transport.abort()
        except ConnectionClosed:
            pass

    def _maybe_cut(self) -> None:
        if self.cuts and self._is_open:
            self._left -= 1
            if self._left <= 0:
                self.cuts -= 1
                self._left = self._random.randint(1, MESSAGES_MAX)
                raise ConnectionCut

    async def _open_session(self, connection: ServerConnection, init: dict[str, Any]) -> None:
        self._maybe_cut()
        self.inits.append(init)
        ack: dict[str, Any] = {"trace_id": "t-1", "negotiated_codec": "pcm16", "negotiated_sample_rate": 16_000}
        redelivered: list[dict[str, Any]] = []
        if init.get("resume_token"):
            is_known = init["resume_token"] == f"{self.session_id}.secret"
            if not is_known or (self._forgets and self._random.random() < 0.5):
                self._begin()
                ack |= {"resumed": False, "lost": True}
            else:
                if self._random.random() < 0.5:
                    self._move_to_another_edge(init["last_seq"])
                ack |= {"resumed": True, "lost": False, "next_utterance_index": self._next_index}
                ack |= {"resend_from_seq": self._next_seq}
                redelivered = [end for index, end in self._unacked.items() if index > init["last_index"]]
        ack |= {"session_id": self.session_id, "resume_token": f"{self.session_id}.secret"}
        self._has_binary_messages = bool(self._binary and init.get("binary_messages") and len(self.inits) % 2)
        ack["binary_messages"] = self._has_binary_messages or None
        await self._send(connection, "session_init_ack", use_binary_frame=self._binary, **ack)
        self._is_open = True
        for end in redelivered:
            await self._send(connection, **end)

    def _move_to_another_edge(self, last_seq: int) -> None:
        """It knows ended utterances only."""
        self._next_seq = max(last_seq, self._ended_seq) + 1
        self._early, self._open, self._complete = {}, b"", {}
        self._next_index = self._next_end

    async def _send(self, connection: ServerConnection, type: str, **fields: Any) -> None:
        self._maybe_cut()
        if type == "translation_result" and self._has_binary_messages:
            audio = base64.b64decode(fields.pop("tts_audio"))
            head = json.dumps({"type": type, **fields}).encode()
            await connection.send(b"".join(binary.encode_parts(TranslationResult, head, audio)))
            return
        await connection.send(json.dumps({"type": type, **fields}))

    # --- messages of the client -------------------------------------------------------------------

    async def _on_data(self, connection: ServerConnection, data: str | bytes) -> None:
        if isinstance(data, bytes) and data[0] == binary.UTTERANCE:
            assert self._has_binary_messages
            _, head, audio = binary.split(data)
            await self._on_utterance(connection, json.loads(bytes(head)), bytes(audio))
            return
        if isinstance(data, bytes):
            frame = audio_frames.decode(data)
            assert isinstance(frame, AudioFrame | FinalFrame)
            audio = frame.audio if isinstance(frame, AudioFrame) else b""
            is_final = frame.is_final if isinstance(frame, AudioFrame) else True
            await self._on_chunk(connection, frame.session_id, frame.seq, audio, is_final)
            return
        message = json.loads(data)
        if message["type"] == "audio_chunk":
            audio = base64.b64decode(message.get("payload") or "")
            await self._on_chunk(connection, message["session_id"], message["seq"], audio, message["is_final"])
        elif message["type"] == "utterance":
            assert not self._has_binary_messages
            await self._on_utterance(connection, message, base64.b64decode(message["audio"]))
        elif message["type"] == "result_ack" and message["session_id"] == self.session_id:
            for index in [index for index in self._unacked if index <= message["utterance_index"]]:
                del self._unacked[index]
        elif message["type"] == "client_heartbeat":
            await self._send(connection, "server_heartbeat", session_id=self.session_id, timestamp=1)
        elif message["type"] == "session_close":
            self._finalize()
            await self._send_results(connection)
            await self._send(connection, "session_close_ack", session_id=self.session_id)

    async def _on_chunk(
        self, connection: ServerConnection, session_id: str, seq: int, audio: bytes, is_final: bool
    ) -> None:
        assert session_id == self.session_id
        self._busy_chunks += 1
        if self.is_busy and self._busy_chunks % BUSY_EVERY == 0:
            await self._send(connection, "backpressure", action="BUSY", resume_after_ms=1)
            await self._send(connection, "error", code="SLOW_DOWN", message="later", details={"seq": seq})
            return
        if seq >= self._next_seq:
            self._early[seq] = (audio, is_final)
        while self._next_seq in self._early:
            more, ends = self._early.pop(self._next_seq)
            self._open, self._open_seq = self._open + more, self._next_seq
            self._next_seq += 1
            if ends:
                self._finalize()
        await self._send_results(connection)

    def _finalize(self) -> None:
        if self._open:
            self._complete[self._next_index] = self._result(self._next_index, self._open, last_seq=self._open_seq)
            self._open = b""
            self._next_index += 1

    async def _on_utterance(self, connection: ServerConnection, message: dict[str, Any], audio: bytes) -> None:
        index = message["utterance_index"]
        assert message["session_id"] == self.session_id and not self._open
        if index >= self._next_end:
            self._complete[index] = self._result(index, audio)
            self._next_index = max(self._next_index, index + 1)
        await self._send_results(connection)

    def _result(self, index: int, audio: bytes, **more: Any) -> dict[str, Any]:
        return {
            "type": "translation_result",
            "session_id": self.session_id,
            "utterance_index": index,
            "job_id": f"job-{index}",
            "text_asr": " ".join(map(str, samples_of(audio))),
            "text_translated": "",
            "tts_audio": base64.b64encode(audio).decode(),
            "tts_format": "pcm16",
            "trace_id": "t-1",
            **more,
        }

    async def _send_results(self, connection: ServerConnection) -> None:
        while self._next_end in self._complete:
            end = self._complete.pop(self._next_end)
            self._unacked[self._next_end] = end
            self._ended_seq = max(self._ended_seq, end.get("last_seq", -1))
            self._next_end += 1
            await self._send(connection, **end)


@asynccontextmanager
async def played_mesh(edges: int = 2, **options: Any) -> AsyncIterator[PlayedMesh]:
    """A running mesh with that many addresses."""
    mesh = PlayedMesh(**options)

    def handler(address: int) -> Any:
        async def on_connection(connection: ServerConnection) -> None:
            await mesh.serve(connection, address)

        return on_connection

    async with AsyncExitStack() as stack:
        for address in range(edges):
            server = await stack.enter_async_context(
                serve(handler(address), "127.0.0.1", 0, compression=None, close_timeout=1)
            )
            mesh.urls.append(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield mesh
