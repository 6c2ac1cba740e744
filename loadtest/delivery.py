"""Checks on delivery, pure: every index of a speaker ends once, in order, and its result is of the audio sent."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

#: The result text of a load test's own nodes begins with this word; results of other nodes are not compared.
MARK: Final = "load"


class Metric(StrEnum):
    """Names of the rows in locust's statistics; their type is the kind of user."""

    OPEN = "session open"
    CLOSE = "session close"
    #: From sending a whole utterance, or the last chunk of a streamed one, until its result.
    RESULT = "utterance -> result"
    #: The same, where the connection was lost in between.
    RESUMED_RESULT = "utterance -> result, resumed"
    PARTIAL = "utterance -> first partial"
    RESUME = "resume"
    ROOM = "room delivery"
    NODE = "node registered"
    ORDER = "order violation"
    DUPLICATE = "duplicate result"
    CONTENT = "result of other audio"
    REPORT = "error without utterance"


@dataclass(frozen=True, slots=True)
class Sample:
    """One row entry: a duration, or a failure with its reason."""

    metric: Metric
    ms: float = 0.0
    size_bytes: int = 0
    failure: str = ""


class IndexOrder:
    """The indices of one speaker as they end. `first` None: the receiver joined later; any first index is accepted."""

    def __init__(self, first: int | None = 0) -> None:
        self._next = first
        self._failed: set[int] = set()  # ended by `error`, ahead of the order

    def fail(self, index: int) -> None:
        """`error` ended this index; a missing_result for it may follow, and is no duplicate."""
        self._failed.add(index)

    def end(self, index: int) -> Metric | None:
        """An index ended: None if it is the next one, else the violation."""
        if index in self._failed:
            self._failed.discard(index)
            if self._next is not None and index == self._next:
                self._next += 1
            return None
        expected = index if self._next is None else self._next
        while expected in self._failed:
            self._failed.discard(expected)
            expected += 1
        if index < expected:
            return Metric.DUPLICATE
        self._next = index + 1
        return Metric.ORDER if index > expected else None


def describe_audio(audio: bytes) -> str:
    """The text that a load test's node returns for this audio."""
    return f"{MARK} {len(audio)} {zlib.crc32(audio)}"


class SentAudio:
    """The audio of one session whose utterances have not ended: results must cover it without gap or overlap."""

    def __init__(self) -> None:
        self._unended = bytearray()

    def add(self, audio: bytes) -> None:
        """More audio was sent."""
        self._unended += audio

    def cover(self, text: str) -> str:
        """A result arrived; why it is not of the next audio, "" if it is. Text of other nodes is not compared."""
        mark, _, numbers = text.partition(" ")
        if mark != MARK:
            self._unended.clear()
            return ""
        length, crc = (int(word) for word in numbers.split())
        audio = bytes(self._unended[:length])
        del self._unended[:length]
        if len(audio) < length:
            return f"{length} bytes were heard where {len(audio)} were sent"
        return "" if zlib.crc32(audio) == crc else f"{length} bytes with another checksum"
