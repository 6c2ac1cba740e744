"""One session on a raw socket: whole utterances, streamed chunks, results as they are on the wire, resume.

Not the SDK: it deduplicates and reorders, and a load test must see what the mesh sends. Runs in asyncio; samples are
collected for the user, whose greenlet reports them to locust.
"""

from __future__ import annotations

import asyncio
import base64
import random
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from websockets.exceptions import ConnectionClosed

from linguamesh.websocket import MeshConnection, dial, with_path
from loadtest.delivery import IndexOrder, Metric, Sample, SentAudio
from mesh.messages import audio_frames
from mesh.messages.audio_frames import AudioFrame

SAMPLE_RATE: Final = 16_000
BYTES_PER_S: Final = 2 * SAMPLE_RATE
#: Timeout of session_init, session_close and room requests.
REPLY_TIMEOUT_S: Final = 15.0

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Speech:
    """What a session sends and asks for."""

    src: str
    tgt: str
    resumable: bool = True
    binary: bool = False
    #: Seconds until an utterance without a result counts as missing.
    timeout_s: float = 30.0


@dataclass(slots=True)
class Pending:
    """An utterance without its result. Streamed ones end with the chunk `last_seq`; -1: a whole one."""

    index: int
    last_seq: int
    sent_s: float
    ended: asyncio.Future[str]
    #: A whole utterance is resent under its trace id after a resume.
    message: dict[str, Any] = field(default_factory=dict)
    has_partial: bool = False


class LoadSession:
    """`edges` are the addresses; it begins at one of them and resumes at the next."""

    def __init__(self, edges: Sequence[str], speech: Speech, generator: random.Random) -> None:
        self.speech = speech
        self.random = generator
        self.session_id = ""
        self.room_code = ""
        self.members = 0
        self.samples: deque[Sample] = deque()
        self.result_metric = Metric.RESULT
        #: (speaker, index) -> a member of the room waits for it.
        self.heard: dict[tuple[str, int], asyncio.Future[str]] = {}
        self.next_index = 0
        self._urls = [with_path(url, "/ws/session") for url in edges]
        self._edge = generator.randrange(len(edges))
        self._token = ""
        self._socket: MeshConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._pending: deque[Pending] = deque()
        self._order = IndexOrder()
        self._peers: dict[str, IndexOrder] = {}
        self._sent = SentAudio()
        self._last_index = -1
        self._last_seq = -1  # the last chunk of the utterances that ended
        self._chunks: dict[int, tuple[bytes, bool, int]] = {}
        self._next_seq = 0
        self._send_from_s = 0.0
        self._changed = asyncio.Event()

    # --- connection -------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the session; an exception if no session came of it."""
        started_s = time.perf_counter()
        ack = await self._connect({})
        self.session_id, self._token = ack["session_id"], ack.get("resume_token", "")
        self.samples.append(Sample(Metric.OPEN, _ms_since(started_s)))

    async def drop_and_resume(self) -> None:
        """Lose the connection without a close frame and resume the session at the next edge."""
        started_s = time.perf_counter()
        self.drop()
        self._edge = (self._edge + 1) % len(self._urls)
        fields = {"resume_token": self._token, "last_index": self._last_index, "last_seq": self._last_seq}
        ack = await self._connect(fields)
        if not ack.get("resumed"):
            self.samples.append(Sample(Metric.RESUME, _ms_since(started_s), failure="the session was not resumed"))
            self.fail_all("the session was lost")
            return
        self._token = ack.get("resume_token", self._token)
        self.samples.append(Sample(Metric.RESUME, _ms_since(started_s), failure="lost" if ack.get("lost") else ""))
        for seq in sorted(seq for seq in self._chunks if seq >= ack.get("resend_from_seq", 0)):
            await self._send_chunk(seq)
        for pending in list(self._pending):
            if pending.message:
                await self._send(pending.message)

    def drop(self) -> None:
        """Lose the connection."""
        if self._reader:
            self._reader.cancel()
        if self._socket:
            self._socket.transport.abort()
        self._socket = self._reader = None

    async def close(self) -> None:
        """session_close, and its acknowledgement; the connection closes in any case."""
        started_s = time.perf_counter()
        try:
            if self._socket:
                await self._send({"type": "session_close", "session_id": self.session_id, "reason": "done"})
                if self._reader:
                    await asyncio.wait_for(asyncio.shield(self._reader), REPLY_TIMEOUT_S)
                self.samples.append(Sample(Metric.CLOSE, _ms_since(started_s)))
        except (TimeoutError, ConnectionClosed) as error:
            self.samples.append(Sample(Metric.CLOSE, failure=f"no session_close_ack: {type(error).__name__}"))
        finally:
            self.drop()

    async def _connect(self, fields: dict[str, Any]) -> dict[str, Any]:
        socket = await dial(self._urls[self._edge], open_timeout_s=REPLY_TIMEOUT_S)
        init = {
            "type": "session_init",
            "client_version": "loadtest",
            "platform": "web",
            "src_lang": self.speech.src,
            "tgt_lang": self.speech.tgt,
            "audio_formats": ["pcm16"],
            "sample_rate": SAMPLE_RATE,
            "binary_frames": self.speech.binary,
            "resumable": self.speech.resumable,
            **fields,
        }
        await socket.send(_encode(init).decode())
        async with asyncio.timeout(REPLY_TIMEOUT_S):
            while True:
                ack = _decode((await socket.take())[0])
                if ack["type"] == "session_init_ack":
                    break
                if ack["type"] == "error":
                    raise ConnectionError(f"session_init: {ack['code']}")
        self._socket, self._reader = socket, asyncio.create_task(self._read(socket))
        return ack

    async def _send(self, message: dict[str, Any] | bytes) -> None:
        delay_s = self._send_from_s - time.perf_counter()
        if delay_s > 0:  # backpressure
            await asyncio.sleep(delay_s)
        if self._socket is None:
            raise ConnectionError("the connection is lost")
        await self._socket.send(message if isinstance(message, bytes) else _encode(message).decode())

    # --- utterances -------------------------------------------------------------------------------

    async def say(self, audio: bytes, *, drops: bool = False) -> None:
        """One whole utterance and its result; `drops`: the connection is lost right after it was sent."""
        pending = await self.send_utterance(audio)
        if drops:
            await self.drop_and_resume()
        await self._await_result(pending)

    async def send_utterance(self, audio: bytes) -> Pending:
        """Send one whole utterance. Only the user's one task sends, so indices are counted here."""
        message = {
            "type": "utterance",
            "session_id": self.session_id,
            "utterance_index": self.next_index,
            "manual_cut": True,
            "src_lang": self.speech.src,
            "tgt_lang": self.speech.tgt,
            "audio": base64.b64encode(audio).decode(),
            "audio_format": "pcm16",
            "sample_rate": SAMPLE_RATE,
            "trace_id": f"load-{self.random.getrandbits(64):016x}",
        }
        pending = self._add_pending(-1, message)
        self._sent.add(audio)
        await self._send(message)
        return pending

    async def stream(self, pieces: Sequence[bytes], chunk_s: float, *, drop_after: int = -1) -> None:
        """Stream pieces in real time, the last one final, and wait for the result. The connection is lost after the
        piece number `drop_after`."""
        began_s = time.perf_counter()
        pending: Pending | None = None
        for number, piece in enumerate(pieces):
            await asyncio.sleep(began_s + number * chunk_s - time.perf_counter())
            seq, self._next_seq = self._next_seq, self._next_seq + 1
            is_final = number == len(pieces) - 1
            self._chunks[seq] = (piece, is_final, int(time.time() * 1_000))
            self._sent.add(piece)
            if is_final:
                pending = self._add_pending(seq, {})
            await self._send_chunk(seq)
            if number == drop_after:
                await self.drop_and_resume()
        if pending:
            await self._await_result(pending)

    async def _send_chunk(self, seq: int) -> None:
        piece, is_final, at_ms = self._chunks[seq]
        if self.speech.binary:
            await self._send(audio_frames.encode(AudioFrame(self.session_id, seq, at_ms, is_final, piece)))
            return
        chunk = {"type": "audio_chunk", "session_id": self.session_id, "seq": seq, "is_final": is_final}
        await self._send({**chunk, "payload": base64.b64encode(piece).decode(), "client_timestamp_ms": at_ms})

    def _add_pending(self, last_seq: int, message: dict[str, Any]) -> Pending:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        pending = Pending(self.next_index, last_seq, time.perf_counter(), future, message)
        self._pending.append(pending)
        self.next_index += 1
        return pending

    async def _await_result(self, pending: Pending) -> None:
        failure = ""
        try:
            failure = await asyncio.wait_for(pending.ended, self.speech.timeout_s)
        except TimeoutError:
            failure = f"no result within {self.speech.timeout_s:g} s"
        finally:
            with suppress(ValueError):
                self._pending.remove(pending)
        self.samples.append(Sample(self.result_metric, _ms_since(pending.sent_s), failure=failure))

    def fail_all(self, reason: str) -> None:
        """End all pending utterances without a result."""
        for pending in self._pending:
            if not pending.ended.done():
                pending.ended.set_result(reason)

    # --- rooms ------------------------------------------------------------------------------------

    async def enter_room(self, code: str, language: str, members: int) -> None:
        """Create a room (code "") or join it; returns once the room has that many members."""
        request = {"type": "room_join", "room_code": code} if code else {"type": "room_create", "client_ts": 0}
        await self._send({**request, "display_name": language, "preferred_lang": language})
        async with asyncio.timeout(REPLY_TIMEOUT_S):
            while self.members < members:
                self._changed.clear()
                await self._changed.wait()

    def expect(self, speaker: str, index: int) -> asyncio.Future[str]:
        """A future of the result of another member's utterance: "" or why there is none."""
        return self.heard.setdefault((speaker, index), asyncio.get_running_loop().create_future())

    # --- messages ---------------------------------------------------------------------------------

    async def _read(self, socket: MeshConnection) -> None:
        try:
            while True:
                data, is_text = await socket.take()
                if is_text:
                    message = _decode(data)
                    handler = _HANDLERS.get(message["type"])
                    if handler:
                        handler(self, message)
                    if message["type"] in ("translation_result", "missing_result", "utterance_ended"):
                        await self._acknowledge(socket, message)
                    if message["type"] == "session_close_ack":
                        return
        except ConnectionClosed:
            pass
        if self._socket is socket:
            self._socket = None
            self.fail_all("the mesh closed the connection")

    async def _acknowledge(self, socket: MeshConnection, message: dict[str, Any]) -> None:
        if self.speech.resumable:
            ack = {key: message[key] for key in ("session_id", "utterance_index")}
            await socket.send(_encode({"type": "result_ack", **ack}).decode())

    def _on_end(self, message: dict[str, Any]) -> None:
        """translation_result, missing_result or utterance_ended."""
        index, is_result = message["utterance_index"], message["type"] == "translation_result"
        failure = f"missing_result: {message['reason']}" if message["type"] == "missing_result" else ""
        if message["session_id"] != self.session_id:
            self._on_peer_end(message["session_id"], index, failure)
            return
        violation = self._order.end(index)
        if violation:
            self.samples.append(Sample(violation, failure=f"index {index} after {self._last_index}"))
            if violation is Metric.DUPLICATE:
                return
        self._last_index = index
        if is_result and (wrong := self._sent.cover(message["text_asr"])):
            self.samples.append(Sample(Metric.CONTENT, failure=wrong))
        self._end_pending(index, message.get("last_seq"), failure)

    def _end_pending(self, index: int, last_seq: int | None, failure: str) -> None:
        if last_seq is not None:
            self._last_seq = max(self._last_seq, last_seq)
            for seq in [seq for seq in self._chunks if seq <= last_seq]:
                del self._chunks[seq]
        for pending in self._pending:
            if pending.last_seq >= 0 and last_seq is not None:
                # The mesh numbers streamed utterances; a stall of this machine may have split one at a pause.
                is_it, self.next_index = last_seq >= pending.last_seq, max(self.next_index, index + 1)
            else:
                is_it = pending.index == index
            if is_it and not pending.ended.done():
                pending.ended.set_result(failure)

    def _on_peer_end(self, speaker: str, index: int, failure: str) -> None:
        violation = self._peers.setdefault(speaker, IndexOrder(first=None)).end(index)
        if violation:
            self.samples.append(Sample(violation, failure=f"room: index {index}"))
        waiting = self.expect(speaker, index)
        if not waiting.done():
            waiting.set_result(failure)

    def _on_partial(self, message: dict[str, Any]) -> None:
        for pending in self._pending:
            if pending.index == message["utterance_index"] and not pending.has_partial:
                pending.has_partial = True
                self.samples.append(Sample(Metric.PARTIAL, _ms_since(pending.sent_s)))

    def _on_error(self, message: dict[str, Any]) -> None:
        details = message.get("details") or {}
        index = details.get("utterance_index")
        if not isinstance(index, int):
            self.samples.append(Sample(Metric.REPORT, failure=str(message["code"])))
            return
        if not any(pending.index == index for pending in self._pending):
            return
        if all(pending.last_seq < 0 for pending in self._pending):
            self._order.fail(index)
            self._end_pending(index, None, f"error: {message['code']}")

    def _on_backpressure(self, message: dict[str, Any]) -> None:
        self._send_from_s = time.perf_counter() + (message.get("resume_after_ms") or 0) / 1_000

    def _on_room(self, message: dict[str, Any]) -> None:
        self.room_code = message["room_code"]
        self.members = len(message.get("members", ()))
        self._changed.set()

    def _on_room_error(self, message: dict[str, Any]) -> None:
        self.samples.append(Sample(Metric.REPORT, failure=f"room_error: {message['code']}"))


_HANDLERS: Final = {
    "translation_result": LoadSession._on_end,
    "missing_result": LoadSession._on_end,
    "utterance_ended": LoadSession._on_end,
    "asr_partial": LoadSession._on_partial,
    "error": LoadSession._on_error,
    "backpressure": LoadSession._on_backpressure,
    "room_members": LoadSession._on_room,
    "room_create_ack": LoadSession._on_room,
    "room_error": LoadSession._on_room_error,
}


def _ms_since(started_s: float) -> float:
    return (time.perf_counter() - started_s) * 1_000
