"""The session SDK: speak to the mesh and get translations.

    async with Session("ws://127.0.0.1:5010", src="en", tgt="es") as session:
        result = await session.translate(audio)          # one whole utterance
        print(result.text_translated)

    async with Session(["ws://a:5010", "ws://b:5010"], src="en", tgt="es") as session:
        asyncio.create_task(session.stream(speech_of(microphone)))  # linguamesh.speech_gate: a pause ends an utterance
        async for result in session.results():
            print(result.text_translated)

A session outlives its connection: when that is lost it dials again, at the next address, says again what the mesh may
not have, and gets what it missed. Every utterance ends once: with a translation, or with an error that says why not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Final

from linguamesh.errors import RoomError, SessionError, Unreachable
from linguamesh.session.lifecycle import SessionLifecycle, SessionTimeouts
from linguamesh.session.messages import codec_of, session_init, tts_ended, tts_started, utterance
from linguamesh.session.send_buffer import Whole
from linguamesh.session.source import Sound, Source
from linguamesh.session.stream import CHUNK_MS, Streamer
from linguamesh.session.translation import Translation
from linguamesh.websocket import OPEN_TIMEOUT_S, reconnect_delay_s, with_path
from mesh.clock import wall_ms
from mesh.errors import ErrorCode
from mesh.messages import client as wire

__all__ = ["RoomError", "Session", "SessionError", "Translation", "Unreachable"]

HEARTBEAT_INTERVAL_S: Final = 30.0
#: A little more than the mesh itself allows a job, so that its own, better reason comes first.
TRANSLATE_TIMEOUT_S: Final = 35.0
#: How long `close` waits for the last results.
CLOSE_TIMEOUT_S: Final = 10.0
#: A lost connection is tried again for so long; the mesh keeps a session for as long.
RECONNECT_FOR_S: Final = 60.0
#: Sound and whole utterances that have not ended; beyond, speaking waits.
KEPT_BYTES_MAX: Final = 8 * 1024 * 1024
#: Whole utterances on their way at once; more wait here. The mesh's own limit is the same.
UTTERANCES_WAITING_MAX: Final = 200


class Session:
    """One conversation direction, from `src` to `tgt`. Use it with `async with`.

    url             ws://host:port of any edge, or a list of them; /ws/session is added
    src, tgt        language codes; src "auto" lets the node detect it
    on_event        called with every other message of the mesh: ui_event, asr_partial, backpressure, error,
                    room_members, webrtc_offer, ..., and session_init_ack after a reconnect. Indices in it are those of
                    the mesh, which begin anew with a session that could not be resumed
    timeout         seconds that `translate` waits unless told otherwise
    resume          False: a lost connection ends the session, and everything that waits fails with WS_DISCONNECTED
    reconnect_for   seconds until a lost connection is given up
    kept_bytes_max  sound that has not ended is kept, to be sent again; when it is more than this, speaking waits
    close_timeout   seconds that `close` waits for the last results
    sample_rate     of PCM16, in Hz; for streaming, and for whole utterances that do not say otherwise
    audio_formats   what will be streamed, best first: "pcm16", "opus"; `codec` tells which one the mesh took
    binary_frames   stream in binary frames, if the mesh does; otherwise in JSON
    options         more fields of session_init, such as tenant_id, pairing_code, mode, lang_a, lang_b
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
        **options: Any,
    ) -> None:
        urls = [with_path(one, "/ws/session") for one in ([url] if isinstance(url, str) else url)]
        if not urls:
            raise ValueError("a session needs at least one address")
        self.src = src
        self.tgt = tgt
        self.sample_rate = sample_rate
        self._init = session_init(src, tgt, sample_rate, audio_formats, binary_frames, resume, options)
        self._timeout = timeout
        patience = SessionTimeouts(open_timeout, close_timeout, heartbeat_interval, reconnect_for, reconnect_delay)
        self._life = SessionLifecycle(urls, self._init, patience, kept_bytes_max, on_event)
        self._hearing = self._life.hearing
        self._sender = self._life.sender
        self._waiting = self._life.waiting
        self._rooms = self._life.rooms
        self._streamer = Streamer(self._sender, sample_rate)
        self._slots = asyncio.Semaphore(UTTERANCES_WAITING_MAX)

    # --- what it is -------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The id that the mesh gave; "" before the session is open. A session that cannot be resumed gets another."""
        return self._hearing.session_id

    @property
    def url(self) -> str:
        """The address in use, or tried last."""
        return self._life.connection.url

    @property
    def codec(self) -> str:
        """What is to be streamed: "pcm16" or "opus"."""
        return codec_of(self._init, self._hearing.ack)

    @property
    def assigned_node_id(self) -> str | None:
        """The node that the session is paired with."""
        return self._hearing.ack.assigned_node_id if self._hearing.ack else None

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and found again."""
        return self._life.connection.reconnects

    @property
    def lost(self) -> bool:
        """True if the mesh said that something was lost, or could not resume the session: results may be missing, or
        be of audio that was translated before."""
        return self._hearing.lost

    # --- life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Session:
        await self._life.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(wait=error is None)

    async def close(self, *, wait: bool = True) -> None:
        """Say goodbye and end. The mesh translates what was said until now; results that come within `close_timeout`
        are still yielded, and what waits then fails with SESSION_CLOSED. Safe to repeat."""
        await self._life.close(wait=wait)

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
        """The translation of one utterance; SessionError if there is none. It waits for the end of what was streamed
        before, and what is streamed later waits for it."""
        seconds = self._timeout if timeout is None else timeout
        future: asyncio.Future[Translation] = asyncio.get_running_loop().create_future()
        whole = self._whole(audio, format, sample_rate, src, tgt, options)
        try:
            async with asyncio.timeout(seconds), self._slots:
                await self._sender.ask(whole, future)
                translation = await future
        except TimeoutError:
            code, index = ErrorCode.JOB_TIMEOUT.name, None if whole.index < 0 else whole.index
            raise SessionError(code, f"no result within {seconds:g} s", utterance_index=index) from None
        finally:
            self._sender.give_up(whole)
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
        """Send one utterance and return its index; its end comes from `results()`. It waits as `translate` does."""
        if len(self._waiting) >= UTTERANCES_WAITING_MAX:
            code = ErrorCode.TOO_MANY_UTTERANCES
            raise SessionError(code.name, f"{len(self._waiting)} utterances wait for their results")
        whole = self._whole(audio, format, sample_rate, src, tgt, options)
        try:
            return await self._sender.ask(whole, None)
        except asyncio.CancelledError:
            self._sender.give_up(whole)
            raise

    async def results(self) -> AsyncIterator[Translation]:
        """Every utterance that was streamed or sent with `send`, in the order in which it was said, each once.

        A failed one has `error` set: its code is the job's own, or MISSING_RESULT. Ends with the session.
        """
        async for translation in self._waiting.results.read():
            yield translation

    def _whole(
        self,
        audio: bytes,
        audio_format: str,
        sample_rate: int | None,
        src: str | None,
        tgt: str | None,
        options: dict[str, Any],
    ) -> Whole:
        self._life.check_open()
        if self._life.speech.has_streamed and not self._life.speech.keeps:
            text = "a whole utterance beside streamed audio needs a session that can be resumed"
            raise SessionError(ErrorCode.UNSUPPORTED_FEATURE.name, text)
        rate = self.sample_rate if sample_rate is None else sample_rate
        return Whole(utterance(audio, audio_format, rate, src or self.src, tgt or self.tgt, options))

    # --- streaming --------------------------------------------------------------------------------

    async def stream(self, source: Source, *, chunk_ms: int = CHUNK_MS, realtime: bool = False) -> None:
        """Speak everything that `source` gives, and end the utterance. The mesh cuts it where no audio comes for a
        while; for a source that also gives silence, `linguamesh.speech_gate.speech_of(source)` finds the pauses.

        source      an async iterator or an iterable of bytes, bytes, a binary file object that holds raw samples, or
                    the path of a WAV file. PCM16 mono comes in pieces of any size; for Opus each piece is a packet or a
                    list of packets. None between pieces ends the utterance
        chunk_ms    sound in one message
        realtime    send a recording as fast as it was spoken, instead of as fast as the mesh takes it
        """
        self._check_codec()
        await self._streamer.stream(source, self.codec, chunk_ms, realtime)
        await self._streamer.end()

    async def speak(self, sound: Sound) -> None:
        """Speak a piece of sound at once: bytes of PCM16, or Opus packets. Waits while too much has not ended."""
        self._check_codec()
        await self._streamer.speak(sound, self.codec)

    async def end_utterance(self) -> None:
        """What was spoken until now is an utterance; without anything spoken there is none."""
        self._life.check_open()
        await self._streamer.end()

    def _check_codec(self) -> None:
        self._life.check_open()
        offered, ack = self._init.audio_formats or (), self._hearing.ack
        rate = ack.negotiated_sample_rate if ack else None
        if self.codec not in offered or (rate and rate != self.sample_rate):
            text = f"this mesh takes streams of {self.codec} with {rate} Hz only"
            raise SessionError(ErrorCode.UNSUPPORTED_FEATURE.name, text)

    # --- playing ----------------------------------------------------------------------------------

    async def tts_started(self, translation: Translation) -> None:
        """The user begins to hear a translation: silence meanwhile does not end an utterance."""
        now = wall_ms()
        self._life.check_open()
        await self._sender.tell(lambda own: tts_started(own, translation, now))

    async def tts_ended(self, translation: Translation) -> None:
        """The user has heard it."""
        now = wall_ms()
        self._life.check_open()
        await self._sender.tell(lambda own: tts_ended(own, translation, now))

    # --- rooms ------------------------------------------------------------------------------------

    @property
    def room_code(self) -> str | None:
        """The code of the room that the session is in; None = none."""
        return self._rooms.code

    @property
    def members(self) -> list[wire.Participant]:
        """Everybody in the room, the session itself included."""
        return list(self._rooms.members)

    async def create_room(self, *, display_name: str | None = None, preferred_lang: str | None = None) -> str:
        """Open a room and enter it; its code. What others say comes in `preferred_lang`. RoomError if refused."""
        self._life.check_open()
        await self._sender.flush()
        return await self._rooms.create(display_name, preferred_lang)

    async def join_room(
        self, code: str, *, display_name: str | None = None, preferred_lang: str | None = None
    ) -> list[wire.Participant]:
        """Enter a room; its members. RoomError if that is refused."""
        self._life.check_open()
        await self._sender.flush()
        return list(await self._rooms.join(code, display_name, preferred_lang))

    async def leave_room(self) -> None:
        """Leave the room, after all that was said in it; RoomError NOT_IN_ROOM if the session is in none."""
        self._life.check_open()
        await self._sender.flush()
        await self._rooms.leave()

    async def set_raw_voice(self, session_id: str, wanted: bool) -> None:
        """Whether this session wants to get that member's own voice, by WebRTC."""
        await self._rooms.set_voice(session_id, wanted)

    async def signal(self, kind: str, to: str, payload: Any) -> None:
        """Pass a WebRTC "offer", "answer" or "ice" on to a member; theirs, and refusals, come to `on_event`."""
        await self._rooms.signal(kind, to, payload)

    async def heard(self) -> AsyncIterator[Translation]:
        """What others in the room say, translated: in order for each `speaker`, each once. Ends with the session."""
        async for translation in self._life.heard.read():
            yield translation
