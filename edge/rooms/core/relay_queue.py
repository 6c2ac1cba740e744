"""Letters: what speakers have for listeners, in the order in which it was said. Pure.

Between one speaker and one listener letters leave in the order of their places. A place may be kept for one that is
yet to come: a listener who changes its language must not hear the later utterance first. What waits for one listener is
bounded, in letters and in bytes: one who takes nothing costs the speaker no more than that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from mesh.words import PostKind


class RelayMessage(NamedTuple):
    """One message for one session. `key` is the same however often it is sent."""

    listener: str
    kind: str
    key: str
    body: bytes
    room_code: str
    #: Worth keeping while the listener is away.
    park: bool
    #: The session that is notified of the outcome; "" = none is.
    sender: str = ""
    #: The sender's own label, which comes back with the outcome.
    lane: str = ""


class RelayLimits(NamedTuple):
    """What may wait between one speaker and one listener."""

    letters_max: int
    bytes_max: int


@dataclass(slots=True, eq=False)
class _Place:
    key: str
    #: None: it is yet to come.
    letter: RelayMessage | None = None


class _Line:
    """The places between one speaker and one listener, and the bytes in them."""

    __slots__ = ("bytes", "places")

    def __init__(self) -> None:
        self.places: deque[_Place] = deque()
        self.bytes = 0


class RelayQueue:
    """All that waits, by speaker and listener."""

    def __init__(self, limits: RelayLimits) -> None:
        self._limits = limits
        self._lines: dict[str, dict[str, _Line]] = {}

    def __len__(self) -> int:
        lines = (line for lines in self._lines.values() for line in lines.values())
        return sum(place.letter is not None for line in lines for place in line.places)

    def reserve(self, speaker: str, listener: str, key: str) -> None:
        """A letter with that key will come, and those after it wait for it, unless too many wait already."""
        line = self._line(speaker, listener)
        if len(line.places) < self._limits.letters_max:
            line.places.append(_Place(key))
        self._tidy(speaker, listener)

    def put(self, speaker: str, letter: RelayMessage) -> bool:
        """A letter, at its place or else behind all others; False if there is no room for it."""
        line = self._line(speaker, letter.listener)
        place = next((one for one in line.places if one.letter is None and one.key == letter.key), None)
        latest = line.places[-1] if len(line.places) > 1 else None  # the first one may be on its way
        if (
            letter.kind == PostKind.ROOM_MEMBERS
            and latest is not None
            and latest.letter
            and latest.letter.kind == PostKind.ROOM_MEMBERS
        ):
            line.bytes -= len(latest.letter.body)
            place = latest
        fits = not line.bytes or line.bytes + len(letter.body) <= self._limits.bytes_max
        if not fits or (place is None and len(line.places) >= self._limits.letters_max):
            if place is not None:
                line.places.remove(place)
            self._tidy(speaker, letter.listener)
            return False
        if place is None:
            place = _Place(letter.key)
            line.places.append(place)
        place.letter = letter
        line.bytes += len(letter.body)
        return True

    def first(self, speaker: str, listener: str) -> RelayMessage | None:
        """The letter whose turn it is; None if there is none, or it is yet to come."""
        line = self._lines.get(speaker, {}).get(listener)
        return line.places[0].letter if line is not None else None

    def pop(self, speaker: str, listener: str) -> None:
        """The first one is in good hands, or given up."""
        line = self._lines[speaker][listener]
        letter = line.places.popleft().letter
        assert letter is not None, "only what was sent is done with"
        line.bytes -= len(letter.body)
        self._tidy(speaker, listener)

    def forget(self, speaker: str) -> list[str]:
        """The speaker will send nothing more of what was reserved; the listeners of whom something waits."""
        for listener, line in list(self._lines.get(speaker, {}).items()):
            line.places = deque(place for place in line.places if place.letter is not None)
            self._tidy(speaker, listener)
        return list(self._lines.get(speaker, ()))

    def _line(self, speaker: str, listener: str) -> _Line:
        return self._lines.setdefault(speaker, {}).setdefault(listener, _Line())

    def _tidy(self, speaker: str, listener: str) -> None:
        lines = self._lines[speaker]
        if not lines[listener].places:
            del lines[listener]
        if not lines:
            del self._lines[speaker]

    def check(self) -> None:
        """Nothing is kept of what is empty, all counts are true and all bounds hold."""
        for lines in self._lines.values():
            assert lines
            for line in lines.values():
                sizes = [len(place.letter.body) for place in line.places if place.letter is not None]
                assert 0 < len(line.places) <= self._limits.letters_max and line.bytes == sum(sizes)
                assert line.bytes <= self._limits.bytes_max or sum(map(bool, sizes)) == 1
