"""What comes back for an utterance."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from linguamesh.errors import SessionError
from mesh.messages import client as wire
from mesh.messages.base import audio_text


@dataclass(frozen=True)
class Translation:
    """The result of one utterance, or why there is none: then `error` is set and the texts are empty."""

    #: Counts from 0 over the whole session of the speaker, whatever happens to its connection.
    utterance_index: int
    text_asr: str = ""
    text_translated: str = ""
    tts_format: str = "pcm16"
    job_id: str = ""
    trace_id: str = ""
    #: From sending (streamed: the last of it) to receiving, measured here; 0 for what others said.
    total_ms: int = 0
    #: Stage -> ms on the node: asr_ms, nmt_ms, tts_ms, total_ms; as far as the node tells.
    service_timings: dict[str, int] = field(default_factory=dict)
    #: Way -> ms: web_to_scheduler_ms, scheduler_to_node_ms, ...; as far as they are known.
    network_timings: dict[str, int] = field(default_factory=dict)
    error: SessionError | None = None
    #: Session id of the member of the room who said it; "" = this session itself.
    speaker: str = ""
    #: Said by this session in a room: the others have the translation, so there are no texts here.
    for_room: bool = False
    #: The whole translation_result, for the fields that have no name here.
    message: wire.TranslationResult | None = field(default=None, repr=False)

    @cached_property
    def tts_audio(self) -> bytes:
        """The speech, in `tts_format`; b"" if there is none."""
        return base64.b64decode(audio_text(self.message.tts_audio)) if self.message else b""


def translation_of(message: wire.TranslationResult, index: int, total_ms: int, speaker: str = "") -> Translation:
    """A wire result as the user sees it, under the user's own index."""
    timings = message.service_timings or (message.extra.service_timings if message.extra else None)
    return Translation(
        utterance_index=index,
        text_asr=message.text_asr,
        text_translated=message.text_translated,
        tts_format=message.tts_format,
        job_id=message.job_id,
        trace_id=message.trace_id,
        total_ms=total_ms,
        service_timings=_known(timings),
        network_timings=_known(message.network_timings),
        speaker=speaker,
        message=message,
    )


def _known(timings: msgspec.Struct | None) -> dict[str, int]:
    fields: dict[str, Any] = msgspec.structs.asdict(timings) if timings else {}
    return {name: value for name, value in fields.items() if value is not None}
