"""The session SDK: send or stream speech to the mesh and receive translations.

    async with Session("ws://127.0.0.1:5010", src="en", tgt="es") as session:
        result = await session.translate(audio)          # one whole utterance
        print(result.text_translated)

    async with Session(["ws://a:5010", "ws://b:5010"], src="en", tgt="es") as session:
        asyncio.create_task(session.stream(speech_of(microphone)))  # linguamesh.speech_gate: a pause ends an utterance
        async for result in session.results():
            print(result.text_translated)

A session outlives its connection: it reconnects to the next address, with backoff, retries everything that the mesh may
not have, and gets the results that it missed. Every utterance ends once: with a translation, or with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Final

from linguamesh.errors import SessionError
from linguamesh.session.lifecycle import SessionLifecycle, SessionTimeouts
from linguamesh.session.messages import codec_of, session_init, tts_ended, tts_started, utterance
from linguamesh.session.results import Translation
from linguamesh.session.send_buffer import WholeUtterance
from linguamesh.session.stream import CHUNK_MS, Sound, Source, Streamer
from linguamesh.websocket import OPEN_TIMEOUT_S, reconnect_delay_s, with_path
from mesh.clock import wall_ms
from mesh.errors import ErrorCode
from mesh.messages import client as wire

HEARTBEAT_INTERVAL_S: Final = 30.0
#: A little more than the mesh's own timeout of a job, so that its error, which has the reason, arrives first.
TRANSLATE_TIMEOUT_S: Final = 35.0
#: Timeout of `close` for the last results.
CLOSE_TIMEOUT_S: Final = 10.0
#: Reconnects are abandoned after this time; the mesh keeps a detached session for as long.
RECONNECT_FOR_S: Final = 60.0
#: Bound on the send buffer: audio and whole utterances that are queued or pending. Beyond, callers wait.
KEPT_BYTES_MAX: Final = 8 * 1024 * 1024
#: Whole utterances that are pending at once; more wait here. The mesh's own limit is the same.
UTTERANCES_PENDING_MAX: Final = 200


class Session:
    """One conversation direction, from `src` to `tgt`. Use it with `async with`.

    url             ws://host:port of any edge, or a list of them; /ws/session is added
    src, tgt        language codes; src "auto" lets the node detect it
    on_event        called with every other message of the mesh: ui_event, asr_partial, backpressure, error,
                    room_members, webrtc_offer, ..., and session_init_ack after a reconnect. Its indices are those of
                    the mesh, which restart at 0 in a session that could not be resumed
    timeout         default timeout of `translate`, in seconds
    resume          False: a lost connection ends the session, and all pending utterances fail with WS_DISCONNECTED
    reconnect_for   seconds until reconnects are abandoned
    reconnect_delay backoff: failures in a row -> seconds until the next attempt
    kept_bytes_max  bound on audio that is kept for a retry until its utterance has ended; beyond, callers wait
    close_timeout   seconds that `close` waits for the last results
    sample_rate     of PCM16, in Hz; for streaming, and the default of whole utterances
    audio_formats   formats to offer for streaming, best first: "pcm16", "opus"; `codec` is the negotiated one
    binary_frames   stream in binary frames, if the mesh accepts them; otherwise in JSON
    binary_messages exchange whole utterances and results without base64, if the mesh accepts that; otherwise in JSON
    options         more fields of session_init, such as tenant_id, pairing_code, mode, lang_a, lang_b;
                    stage_timings=True gives each result its `stages`
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        tgt: str,
        src: str = "auto",
        on_event: Callable[[wire.ServerMessage], None] | None = None,
        timeout: float = TRANSLATE_TIMEOUT_S,
        open_timeout: float = OPEN_TIMEOUT_S,
        close_timeout: float = CLOSE_TIMEOUT_S,
        heartbeat_interval: float = HEARTBEAT_INTERVAL_S,
        resume: bool = True,
        reconnect_for: float = RECONNECT_FOR_S,
        reconnect_delay: Callable[[int], float] = reconnect_delay_s,
        kept_bytes_max: int = KEPT_BYTES_MAX,
        sample_rate: int = 16_000,
        audio_formats: Sequence[str] = ("pcm16",),
        binary_frames: bool = True,
        binary_messages: bool = True,
        **options: Any,
    ) -> None:
        urls = [with_path(one, "/ws/session") for one in ([url] if isinstance(url, str) else url)]
        if not urls:
            raise ValueError("a session needs at least one address")
        self.src = src
        self.tgt = tgt
        self.sample_rate = sample_rate
        options["binary_messages"] = binary_messages or None
        self._init = session_init(src, tgt, sample_rate, audio_formats, binary_frames, resume, options)
        self._timeout = timeout
        timeouts = SessionTimeouts(open_timeout, close_timeout, heartbeat_interval, reconnect_for, reconnect_delay)
        self._lifecycle = SessionLifecycle(urls, self._init, timeouts, kept_bytes_max, on_event)
        self._sender = self._lifecycle.sender
        self._results = self._lifecycle.results
        self._rooms = self._lifecycle.rooms
        self._streamer = Streamer(self._sender, sample_rate)
        self._slots = asyncio.Semaphore(UTTERANCES_PENDING_MAX)

    # --- state ------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """Assigned by the mesh; "" before the session is open. A session that could not be resumed gets a new one."""
        return self._lifecycle.session_id

    @property
    def url(self) -> str:
        """The address in use, or tried last."""
        return self._lifecycle.connection.url

    @property
    def codec(self) -> str:
        """The codec of streamed audio: "pcm16" or "opus"."""
        return codec_of(self._init, self._lifecycle.ack)

    @property
    def assigned_node_id(self) -> str | None:
        """The node that the session is paired with."""
        return self._lifecycle.ack.assigned_node_id if self._lifecycle.ack else None

    @property
    def reconnects(self) -> int:
        """Number of successful reconnects."""
        return self._lifecycle.connection.reconnects

    @property
    def lost(self) -> bool:
        """True once the mesh reported a loss, or could not resume the session: results may be missing, or be of audio
        that was translated before."""
        return self._lifecycle.lost

    # --- lifecycle --------------------------------------------------------------------------------

    async def __aenter__(self) -> Session:
        await self._lifecycle.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(wait=error is None)

    async def close(self, *, wait: bool = True) -> None:
        """Close the session. The mesh translates all audio sent until now; results that arrive within `close_timeout`
        are still delivered, and utterances that are pending then fail with SESSION_CLOSED. Idempotent."""
        await self._lifecycle.close(wait=wait)

    # --- whole utterances -------------------------------------------------------------------------

    async def translate(
        self,
        audio: bytes,
        *,
        format: str = "pcm16",
        sample_rate: int | None = None,
        src: str | None = None,
        tgt: str | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> Translation:
        """The translation of one utterance; SessionError if it fails. It is sent after all audio that was streamed
        before has ended, and audio that is streamed later waits for it."""
        seconds = self._timeout if timeout is None else timeout
        future: asyncio.Future[Translation] = asyncio.get_running_loop().create_future()
        whole = self._whole_utterance(audio, format, sample_rate, src, tgt, options)
        try:
            async with asyncio.timeout(seconds), self._slots:
                await self._sender.add_utterance(whole, future)
                translation = await future
        except BaseException as error:
            self._sender.cancel(whole)
            if not isinstance(error, TimeoutError):
                raise
            code, index = ErrorCode.JOB_TIMEOUT.name, None if whole.index < 0 else whole.index
            raise SessionError(code, f"no result within {seconds:g} s", utterance_index=index) from None
        if translation.error:
            raise translation.error
        return translation

    async def send(
        self,
        audio: bytes,
        *,
        format: str = "pcm16",
        sample_rate: int | None = None,
        src: str | None = None,
        tgt: str | None = None,
        **options: Any,
    ) -> int:
        """Send one utterance and return its index; its result comes from `results()`. It waits as `translate` does."""
        if len(self._results) >= UTTERANCES_PENDING_MAX:
            code = ErrorCode.TOO_MANY_UTTERANCES
            raise SessionError(code.name, f"{len(self._results)} utterances wait for their results")
        whole = self._whole_utterance(audio, format, sample_rate, src, tgt, options)
        try:
            index = await self._sender.add_utterance(whole, None)
            await asyncio.sleep(0)  # it may have been sent at once, and a loop of them must not starve the other tasks
            return index
        except asyncio.CancelledError:
            self._sender.cancel(whole)
            raise

    async def results(self) -> AsyncIterator[Translation]:
        """The results of all utterances that were streamed or sent with `send`, in order, each once.

        A failed one has `error` set: its code is the job's own, or MISSING_RESULT. Ends with the session.
        """
        async for translation in self._results.unread.read():
            yield translation

    def _whole_utterance(
        self,
        audio: bytes,
        audio_format: str,
        sample_rate: int | None,
        src: str | None,
        tgt: str | None,
        options: dict[str, Any],
    ) -> WholeUtterance:
        self._lifecycle.check_open()
        buffer = self._lifecycle.buffer
        if buffer.has_streamed and not buffer.is_resumable:
            text = "a whole utterance beside streamed audio needs a session that can be resumed"
            raise SessionError(ErrorCode.UNSUPPORTED_FEATURE.name, text)
        rate = self.sample_rate if sample_rate is None else sample_rate
        message = utterance(audio_format, rate, src or self.src, tgt or self.tgt, options)
        return WholeUtterance(message, bytes(audio))  # bytes are not copied; anything else may change before a retry

    # --- streaming --------------------------------------------------------------------------------

    async def stream(self, source: Source, *, chunk_ms: int = CHUNK_MS, realtime: bool = False) -> None:
        """Stream the whole `source`, and end the utterance. The mesh finalizes an utterance where no audio arrives for
        a while; for a source that includes silence, `linguamesh.speech_gate.speech_of(source)` detects the pauses.

        source      an async iterator or an iterable of bytes, bytes, a binary file object that holds raw samples, or
                    the path of a WAV file. PCM16 mono comes in pieces of any size; for Opus each piece is a packet or a
                    list of packets. None between pieces ends the utterance
        chunk_ms    duration of the audio in one message
        realtime    send a recording in real time, instead of as fast as the mesh accepts it
        """
        self._check_codec()
        await self._streamer.stream(source, self.codec, chunk_ms, realtime)
        await self._streamer.end_utterance()

    async def speak(self, sound: Sound) -> None:
        """Stream a piece of audio at once: bytes of PCM16, or Opus packets. Waits while the send buffer is full."""
        self._check_codec()
        await self._streamer.speak(sound, self.codec)

    async def end_utterance(self) -> None:
        """Finalize the streamed utterance; no effect if it has no audio."""
        self._lifecycle.check_open()
        await self._streamer.end_utterance()

    def _check_codec(self) -> None:
        self._lifecycle.check_open()
        offered, ack = self._init.audio_formats or (), self._lifecycle.ack
        rate = ack.negotiated_sample_rate if ack else None
        if self.codec not in offered or (rate and rate != self.sample_rate):
            text = f"this mesh accepts streams of {self.codec} at {rate} Hz only"
            raise SessionError(ErrorCode.UNSUPPORTED_FEATURE.name, text)

    # --- playback ---------------------------------------------------------------------------------

    async def tts_started(self, translation: Translation) -> None:
        """The playback of a translation has started: a pause meanwhile does not finalize an utterance."""
        now = wall_ms()
        self._lifecycle.check_open()
        await self._sender.send(lambda session_id: tts_started(session_id, translation, now))

    async def tts_ended(self, translation: Translation) -> None:
        """The playback has ended."""
        now = wall_ms()
        self._lifecycle.check_open()
        await self._sender.send(lambda session_id: tts_ended(session_id, translation, now))

    # --- rooms ------------------------------------------------------------------------------------

    @property
    def room_code(self) -> str | None:
        """The code of the room that the session is in; None = none."""
        return self._rooms.code

    @property
    def members(self) -> list[wire.Participant]:
        """All members of the room, the session itself included."""
        return list(self._rooms.members)

    async def create_room(self, *, display_name: str | None = None, preferred_lang: str | None = None) -> str:
        """Create a room and join it; its code. `preferred_lang`: the language in which to receive the other members.
        RoomError if it is refused."""
        self._lifecycle.check_open()
        await self._sender.flush()
        return await self._rooms.create(display_name, preferred_lang)

    async def join_room(
        self, code: str, *, display_name: str | None = None, preferred_lang: str | None = None
    ) -> list[wire.Participant]:
        """Join a room; its members. RoomError if it is refused."""
        self._lifecycle.check_open()
        await self._sender.flush()
        return list(await self._rooms.join(code, display_name, preferred_lang))

    async def leave_room(self) -> None:
        """Leave the room, after all buffered audio is sent; RoomError NOT_IN_ROOM if the session is in none."""
        self._lifecycle.check_open()
        await self._sender.flush()
        await self._rooms.leave()

    async def set_raw_voice(self, session_id: str, wanted: bool) -> None:
        """Whether this session receives that member's own voice, by WebRTC."""
        await self._rooms.set_voice(session_id, wanted)

    async def signal(self, kind: str, to: str, payload: Any) -> None:
        """Pass a WebRTC "offer", "answer" or "ice" on to a member; theirs, and refusals, come to `on_event`."""
        await self._rooms.signal(kind, to, payload)

    async def heard(self) -> AsyncIterator[Translation]:
        """Results of the other members of the room, in order for each `speaker`, each once. Ends with the session."""
        async for translation in self._lifecycle.receiver.peer_results.read():
            yield translation
