"""The results of a session: the value a user gets, its order, and who waits for it. Each utterance ends once, with a
translation or an error. Knows no message but translation_result, and no connection."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

import msgspec

from linguamesh.errors import SessionError
from mesh.messages import client as wire
from mesh.messages.audio import audio_bytes

#: Bound on results that wait to be read from `results()` or `heard()`; beyond, the oldest is evicted.
UNREAD_MAX: Final = 1_000
#: Bound on peers whose last index is kept; beyond, the peer silent for longest is evicted.
PEERS_MAX: Final = 1_000

T = TypeVar("T")


@dataclass(frozen=True)
class Translation:
    """The result of one utterance. If it failed, `error` is set and the texts are empty."""

    #: Counts from 0 over the whole session of the speaker, across reconnects.
    utterance_index: int
    text_asr: str = ""
    text_translated: str = ""
    tts_format: str = "pcm16"
    job_id: str = ""
    trace_id: str = ""
    #: From sending (streamed: the last chunk) to receiving, measured here; 0 for utterances of others.
    total_ms: int = 0
    #: Stage -> ms on the node: asr_ms, nmt_ms, tts_ms, total_ms; as far as the node reports them.
    service_timings: dict[str, int] = field(default_factory=dict)
    #: Hop -> ms: web_to_scheduler_ms, scheduler_to_node_ms, ...; as far as they are known.
    network_timings: dict[str, int] = field(default_factory=dict)
    #: Stage (mesh.words.LatencyStage) -> microseconds, in the order of the way; only with `stage_timings`.
    stages: dict[str, int] = field(default_factory=dict)
    error: SessionError | None = None
    #: Session id of the member of the room who spoke; "" = this session itself.
    speaker: str = ""
    #: Spoken by this session in a room: the other members get the translation, so there are no texts here.
    for_room: bool = False
    #: The whole translation_result, for the fields that have no name here.
    message: wire.TranslationResult | None = field(default=None, repr=False)

    @cached_property
    def tts_audio(self) -> bytes:
        """The speech, in `tts_format`; b"" if there is none."""
        return bytes(audio_bytes(self.message.tts_audio)) if self.message else b""


def translation_from(message: wire.TranslationResult, index: int, total_ms: int, speaker: str = "") -> Translation:
    """A translation_result as the user sees it, under the user's index."""
    timings = message.service_timings or (message.extra.service_timings if message.extra else None)
    return Translation(
        utterance_index=index,
        text_asr=message.text_asr,
        text_translated=message.text_translated,
        tts_format=message.tts_format,
        job_id=message.job_id,
        trace_id=message.trace_id,
        total_ms=total_ms,
        service_timings=_set_fields(timings) if timings else {},
        network_timings=_set_fields(message.network_timings) if message.network_timings else {},
        stages=message.stages or {},
        speaker=speaker,
        message=message,
    )


def _set_fields(timings: msgspec.Struct) -> dict[str, int]:
    fields: dict[str, Any] = msgspec.structs.asdict(timings)
    return {name: value for name, value in fields.items() if value is not None}


# --- order ----------------------------------------------------------------------------------------


class ResultOrder(Generic[T]):
    """Results arrive in any order and are released by index, from 0 on, without a gap, each once. Pure."""

    def __init__(self) -> None:
        self.next_index = 0
        self._early: dict[int, T | None] = {}

    def put(self, index: int, result: T | None) -> list[T]:
        """A result arrived (None: it is not to be released); all results that are released now. A duplicate has no
        effect."""
        if index < self.next_index or index in self._early:
            return []
        self._early[index] = result
        released: list[T] = []
        while self.next_index in self._early:
            ready = self._early.pop(self.next_index)
            self.next_index += 1
            if ready is not None:
                released.append(ready)
        return released

    def flush(self) -> list[T]:
        """No more results will arrive: release the rest, across the gaps."""
        rest, self._early = self._early, {}
        self.next_index = max(rest, default=self.next_index - 1) + 1
        return [result for _, result in sorted(rest.items(), key=lambda item: item[0]) if result is not None]


class PeerIndices:
    """Deduplicates the results of peers (other members of the room), which arrive in order. Pure."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, int] = OrderedDict()

    def add(self, peer: str, index: int) -> bool:
        """True for a new index; False for a duplicate."""
        if index <= self.last_index(peer):
            return False
        self._last[peer] = index
        self._last.move_to_end(peer)
        if len(self._last) > PEERS_MAX:
            self._last.popitem(last=False)
        return True

    def last_index(self, peer: str) -> int:
        """The last index of that peer; -1 if there is none."""
        return self._last.get(peer, -1)


# --- delivery -------------------------------------------------------------------------------------


class UnreadResults:
    """A bounded queue of translations that wait to be read. Its readers end once it is closed and empty."""

    def __init__(self) -> None:
        self._translations: deque[Translation] = deque(maxlen=UNREAD_MAX)
        self._changed = asyncio.Event()
        self._closed = False

    def extend(self, translations: Sequence[Translation]) -> None:
        """Queue more; beyond the bound the oldest are evicted."""
        self._translations.extend(translations)
        self._changed.set()

    def close(self) -> None:
        """No more will arrive."""
        self._closed = True
        self._changed.set()

    async def read(self) -> AsyncIterator[Translation]:
        """All translations, as they arrive."""
        while True:
            while self._translations:
                yield self._translations.popleft()
            if self._closed:
                return
            self._changed.clear()
            await self._changed.wait()


class PendingResults:
    """The session's own utterances, by the user's index. A result with a future is delivered there, at once; all
    others are queued in `unread`, in order."""

    def __init__(self) -> None:
        self.unread = UnreadResults()
        self._futures: dict[int, asyncio.Future[Translation] | None] = {}
        self._order: ResultOrder[Translation] = ResultOrder()

    def __len__(self) -> int:
        return len(self._futures)

    def add(self, index: int, future: asyncio.Future[Translation] | None) -> None:
        """A whole utterance is about to be sent. Without a future its result is queued in `unread`."""
        self._futures[index] = future

    def cancel(self, index: int) -> None:
        """The caller no longer waits: the result is discarded."""
        self._futures.pop(index, None)
        self.unread.extend(self._order.put(index, None))

    def complete(self, translation: Translation) -> None:
        """Deliver a result; a duplicate has no effect."""
        future = self._futures.pop(translation.utterance_index, None)
        released = self._order.put(translation.utterance_index, translation if future is None else None)
        if released:
            self.unread.extend(released)
        if future is not None and not future.done():
            future.set_result(translation)

    def fail(self, index: int, error: SessionError) -> None:
        """Complete one utterance with an error."""
        error.utterance_index = index
        self.complete(Translation(utterance_index=index, error=error))

    def close(self, code: str, message: str) -> None:
        """The session is closed: all pending utterances fail, and `unread` ends."""
        for index in sorted(self._futures):
            self.fail(index, SessionError(code, message))
        self.unread.extend(self._order.flush())
        self.unread.close()
