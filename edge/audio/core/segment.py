"""Cuts: what an utterance is once it is cut out of streamed audio, why it was cut, and the bounds for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from mesh.config.sessions import SpeechConfig


class SegmentLimits(NamedTuple):
    """The bounds this core obeys, from the configuration: see mesh.config.sessions.SpeechConfig."""

    pause_ms: int
    max_duration_ms: int
    utterance_bytes_max: int
    hangover_manual_ms: int
    hangover_auto_ms: int
    padding_manual_ms: int
    padding_auto_ms: int
    short_merge_ms: int
    short_merge_wait_ms: int
    playing_ms_max: int
    chunks_early_max: int

    @classmethod
    def of(cls, config: SpeechConfig) -> SegmentLimits:
        """What the configuration says."""
        return cls(*(getattr(config, name) for name in cls._fields))


class FinalizeReason(Enum):
    """Why an utterance ended."""

    MANUAL = "manual"
    PAUSE = "pause"
    TIMEOUT = "timeout"
    MAX_DURATION = "max_duration"
    MAX_LENGTH = "max_length"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class SegmentStarted:
    """The first audio of an utterance came."""

    index: int


@dataclass(frozen=True, slots=True)
class Segment:
    """An utterance is complete."""

    index: int
    audio: bytes
    audio_ms: int
    reason: FinalizeReason
    #: The first chunk with audio, and the last chunk of all.
    first_seq: int
    last_seq: int
    turn_id: str
    padding_ms: int
    #: When its first audio was sent, by the client's clock, and when it came.
    first_client_ms: int | None
    began_ms: int

    @property
    def is_manual_cut(self) -> bool:
        """The client asked for it."""
        return self.reason is FinalizeReason.MANUAL

    @property
    def is_pause_triggered(self) -> bool:
        """Audio came after a pause."""
        return self.reason is FinalizeReason.PAUSE

    @property
    def is_timeout_triggered(self) -> bool:
        """No audio came any more."""
        return self.reason is FinalizeReason.TIMEOUT

    @property
    def is_max_duration_triggered(self) -> bool:
        """It went on for too long."""
        return self.reason is FinalizeReason.MAX_DURATION
