"""An edge whose messages the test scripts. The messages of a client must decode by the mesh's own codecs."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from mesh.messages import audio_frames, binary
from mesh.messages import client as wire
from mesh.messages.audio_frames import AudioFrame, BinaryFrame, FinalFrame
from mesh.messages.base import Message
from tests.support.conditions import DEADLINE_S

TOKEN = "a token"

M = TypeVar("M", bound=Message)


class ReceivedChunk(NamedTuple):
    """A chunk of audio, received as JSON or as a binary frame."""

    seq: int
    is_final: bool
    audio: bytes
    timestamp_ms: int
    is_binary: bool


class Client:
    """One connection whose session_init was received."""

    def __init__(self, connection: ServerConnection, init: wire.SessionInit) -> None:
        self.init = init
        self.session_id = ""
        self.lost = asyncio.Event()
        self._connection = connection
        self._chunks: asyncio.Queue[ReceivedChunk] = asyncio.Queue()
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self.frames: asyncio.Queue[BinaryFrame] = asyncio.Queue()

    async def accept(self, session_id: str = "s-1", **more: Any) -> None:
        """Send session_init_ack."""
        self.session_id = session_id
        common = {"trace_id": "t-1", "negotiated_codec": "pcm16", "resume_token": TOKEN}
        await self.send("session_init_ack", **{"session_id": session_id, **common, **more})

    async def send(self, kind: str, **fields: Any) -> None:
        """Send a message of the mesh. Its own codec must accept it."""
        text = json.dumps({"type": kind, **fields})
        wire.decode_from_server(text)
        await self._connection.send(text)

    async def send_result(self, index: int, text: str = "hola", *, speech: bytes | None = None, **more: Any) -> None:
        """Send translation_result; in a binary message if there is `speech`."""
        common = {
            "session_id": self.session_id,
            "utterance_index": index,
            "job_id": f"job-{index}",
            "text_asr": "hello",
        }
        fields = {**common, "text_translated": text, "tts_format": "pcm16", "trace_id": f"t-{index}", **more}
        if speech is None:
            await self.send("translation_result", **{"tts_audio": "", **fields})
        else:
            result = msgspec.convert(fields, wire.TranslationResult)
            await self.send_bytes(b"".join(binary.encode(result, speech)))

    async def send_text(self, text: str) -> None:
        """Send a text frame, valid or not."""
        await self._connection.send(text)

    async def send_bytes(self, frame: bytes) -> None:
        """Send a binary frame."""
        await self._connection.send(frame)

    async def chunk(self) -> ReceivedChunk:
        """The next chunk of audio."""
        return await asyncio.wait_for(self._chunks.get(), DEADLINE_S)

    async def chunks(self, count: int) -> list[ReceivedChunk]:
        """The next `count` chunks."""
        return [await self.chunk() for _ in range(count)]

    @property
    def chunks_pending(self) -> int:
        """Chunks that were received and not read by the test."""
        return self._chunks.qsize()

    async def next(self, kind: type[M], where: Callable[[M], bool] = lambda message: True) -> M:
        """The next message of that kind; others are skipped."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                message = await self._messages.get()
                if isinstance(message, kind) and where(message):
                    return message

    async def close(self, code: int) -> None:
        """Send a close frame."""
        await self._connection.close(code)

    def abort(self) -> None:
        """Lose the connection without a close frame."""
        self._connection.transport.abort()

    def receive(self, data: str | bytes) -> None:
        """Decode one frame of the client."""
        if isinstance(data, bytes):
            self._on_frame(audio_frames.decode(data))
            return
        message = wire.decode_from_client(data)
        if isinstance(message, wire.AudioChunk):
            assert message.client_timestamp_ms is not None
            audio = base64.b64decode(message.payload or "", validate=True)
            self._chunks.put_nowait(
                ReceivedChunk(message.seq, message.is_final, audio, message.client_timestamp_ms, is_binary=False)
            )
        else:
            self._messages.put_nowait(message)

    def _on_frame(self, frame: BinaryFrame) -> None:
        if isinstance(frame, AudioFrame):
            chunk = ReceivedChunk(frame.seq, frame.is_final, frame.audio, frame.timestamp_ms, is_binary=True)
            self._chunks.put_nowait(chunk)
        elif isinstance(frame, FinalFrame):
            self._chunks.put_nowait(ReceivedChunk(frame.seq, True, b"", frame.timestamp_ms, is_binary=True))
        else:
            self.frames.put_nowait(frame)


class ScriptedMesh:
    """Listens on loopback. Clients are queued until the test takes them."""

    async def __aenter__(self) -> ScriptedMesh:
        self._clients: asyncio.Queue[Client] = asyncio.Queue()
        self._faults: list[str] = []
        self._accepted: list[ServerConnection] = []
        self._server: Server = await serve(
            self._serve, "127.0.0.1", 0, compression=None, create_connection=self._accept
        )
        self.url = f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop_accepting()
        self._abort([connection for connection in self._accepted if connection.state is State.CONNECTING])
        self._server.close()
        await self._server.wait_closed()
        async with asyncio.timeout(DEADLINE_S):
            while not await self._is_quiet():  # noqa: ASYNC110 - only the connections can tell
                await asyncio.sleep(0.01)
        assert self._faults == [], "the mesh would refuse these messages of the client"

    def _accept(self, *args: Any, **options: Any) -> ServerConnection:
        self._accepted.append(ServerConnection(*args, **options))
        return self._accepted[-1]

    async def _stop_accepting(self) -> None:
        """A browser opens idle sockets in advance. asyncio leaks one that it has accepted when the server closes."""
        for listener in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        for _ in range(2):  # what was accepted before gets its transport
            await asyncio.sleep(0)

    async def _is_quiet(self) -> bool:
        """True if no socket is left. Those that are left are aborted."""
        await asyncio.sleep(0)  # one that was accepted just now gets its connection
        left = [connection for connection in self._accepted if not connection.connection_lost_waiter.done()]
        self._abort(left)
        return not left

    @staticmethod
    def _abort(connections: list[ServerConnection]) -> None:
        for connection in connections:
            transport = getattr(connection, "transport", None)  # none yet, if it is being set up
            if transport is not None:
                transport.abort()

    async def stop_listening(self) -> None:
        """Accept no more connections; open ones stay."""
        await self._stop_accepting()
        self._server.close(close_connections=False)

    async def client(self) -> Client:
        """The next connection."""
        return await asyncio.wait_for(self._clients.get(), DEADLINE_S)

    @property
    def clients_pending(self) -> int:
        """Connections that were accepted and not taken by the test."""
        return self._clients.qsize()

    async def _serve(self, connection: ServerConnection) -> None:
        try:
            init = wire.decode_from_client(await connection.recv())
            assert isinstance(init, wire.SessionInit)
            assert connection.request is not None and connection.request.path == "/ws/session"
            client = Client(connection, init)
            self._clients.put_nowait(client)
            try:
                async for data in connection:
                    client.receive(data)
            finally:
                client.lost.set()
        except ConnectionClosed:
            pass
        except Exception as error:
            self._faults.append(repr(error))
            raise
