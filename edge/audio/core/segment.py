"""Segment: an utterance finalized from streamed audio, the reason why, and its bounds. Data; no rules."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec

from mesh.config.sessions import SpeechConfig


class SegmentLimits(NamedTuple):
    """Bounds of the segmenter: see mesh.config.sessions.SpeechConfig."""

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
        """The bounds in the configuration."""
        return cls(*(getattr(config, name) for name in cls._fields))


class FinalizeReason(Enum):
    """Why an utterance was finalized."""

    MANUAL = "manual"
    PAUSE = "pause"
    TIMEOUT = "timeout"
    MAX_DURATION = "max_duration"
    MAX_LENGTH = "max_length"
    CLOSE = "close"


class SegmentStarted(msgspec.Struct, frozen=True):
    """The first audio of an utterance arrived."""

    index: int


class Segment(msgspec.Struct, frozen=True):
    """An utterance that is finalized."""

    index: int
    audio: bytes
    audio_ms: int
    reason: FinalizeReason
    #: The first chunk with audio, and the last chunk, with or without.
    first_seq: int
    last_seq: int
    turn_id: str
    padding_ms: int
    #: When its first audio was sent, by the client's clock, and when it arrived.
    first_client_ms: int | None
    began_ms: int

    @property
    def is_manual_cut(self) -> bool:
        """The client sent is_final."""
        return self.reason is FinalizeReason.MANUAL

    @property
    def is_pause_triggered(self) -> bool:
        """Audio arrived after a pause."""
        return self.reason is FinalizeReason.PAUSE

    @property
    def is_timeout_triggered(self) -> bool:
        """No more audio arrived."""
        return self.reason is FinalizeReason.TIMEOUT

    @property
    def is_max_duration_triggered(self) -> bool:
        """It reached its maximum duration."""
        return self.reason is FinalizeReason.MAX_DURATION
