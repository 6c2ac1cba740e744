"""The values of a node's handler (Job, Result) and of the node's machine (Gpu, Usage)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mesh.messages import node as wire
from mesh.messages.audio import audio_bytes


@dataclass(frozen=True, slots=True)
class Gpu:
    """One graphics card."""

    name: str
    memory_gb: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Load of the node's machine, in percent. Above 85 a node is assigned no new jobs."""

    cpu_percent: float = 0.0
    mem_percent: float = 0.0
    gpu_percent: float | None = None
    gpu_mem_percent: float | None = None


class Job:
    """One utterance to translate."""

    def __init__(
        self, assign: wire.JobAssign, send_partial: Callable[[wire.JobAssign, str, bool], Awaitable[None]]
    ) -> None:
        self._assign = assign
        self._send_partial = send_partial
        self.job_id: str = assign.job_id
        #: 1 for the first attempt; higher when an earlier attempt failed, perhaps on another node.
        self.attempt: int = assign.attempt_id
        self.session_id: str = assign.session_id
        self.utterance_index: int = assign.utterance_index
        self.src: str = assign.src_lang
        self.tgt: str = assign.tgt_lang
        #: "pcm16" (little-endian mono) or "opus" (packets, each after its length in 2 bytes, little-endian).
        self.audio_format: str = assign.audio_format
        self.sample_rate: int = assign.sample_rate
        self.trace_id: str = assign.trace_id
        #: Utterances that follow one another closely are parts of a group; `context_text` has its earlier parts, as
        #: lines of the speaker and of the translation. None: the utterance belongs to no group.
        self.group_id: str | None = assign.group_id
        self.part_index: int | None = assign.part_index
        self.context_text: str | None = assign.context_text
        #: Streamed utterances that were finalized in the middle of speech have the same turn.
        self.turn_id: str | None = assign.turn_id
        #: Silence to append before recognition.
        self.padding_ms: int = assign.padding_ms or 0
        #: Why a streamed utterance was finalized: by the client, a pause, the idle timeout, or its maximum length.
        self.is_manual_cut: bool = assign.is_manual_cut
        self.is_pause_triggered: bool = assign.is_pause_triggered
        self.is_timeout_triggered: bool = assign.is_timeout_triggered
        self.is_max_duration_triggered: bool = assign.is_max_duration_triggered

    @cached_property
    def audio(self) -> bytes:
        """The audio's bytes; ValueError if they are not valid base64, which fails the job."""
        return bytes(audio_bytes(self._assign.audio))

    @property
    def audio_s(self) -> float:
        """Length of the audio in seconds; 0.0 if the format is not PCM16."""
        if self.audio_format != "pcm16" or self.sample_rate <= 0:
            return 0.0
        return len(self.audio) / 2 / self.sample_rate

    @property
    def message(self) -> wire.JobAssign:
        """The whole job_assign, for the fields that have no name here."""
        return self._assign

    async def partial(self, text: str, *, is_final: bool = False) -> None:
        """Send the text recognised so far to the speaker. Best effort: lost while the connection is down."""
        await self._send_partial(self._assign, text, is_final)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a job. All empty: the audio contains no speech."""

    text_asr: str = ""
    text_translated: str = ""
    #: Speech, as bytes in `tts_format`.
    tts_audio: bytes = b""
    tts_format: str = "pcm16"
    #: Stage -> milliseconds: asr_ms, nmt_ms, tts_ms, total_ms.
    timings: Mapping[str, int] = field(default_factory=dict)
    #: More fields of ExtraResult, such as emotion or speech_rate.
    extra: Mapping[str, Any] = field(default_factory=dict)
    asr_quality_level: str | None = None
    quality_score: float | None = None
    reason_codes: list[str] | None = None
