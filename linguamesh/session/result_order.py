"""In which order the ends of utterances reach the user, each once. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

#: Speakers of whom the last index is remembered; beyond, whoever was silent longest is forgotten.
SPEAKERS_MAX: Final = 1_000

T = TypeVar("T")


class ResultOrder(Generic[T]):
    """Ends come in any order and leave by index, from 0 on, without a gap. None: nobody wants to hear of that one."""

    def __init__(self) -> None:
        self.next_index = 0
        self._ahead: dict[int, T | None] = {}

    def is_new(self, index: int) -> bool:
        """False if that index has ended before."""
        return index >= self.next_index and index not in self._ahead

    def put(self, index: int, end: T | None) -> list[T]:
        """An index ended; the ends whose turn it is now."""
        if not self.is_new(index):
            return []
        self._ahead[index] = end
        ready: list[T] = []
        while self.next_index in self._ahead:
            known = self._ahead.pop(self.next_index)
            self.next_index += 1
            if known is not None:
                ready.append(known)
        return ready

    def flush(self) -> list[T]:
        """Nothing more will come: what waited for earlier ones."""
        rest, self._ahead = self._ahead, {}
        self.next_index = max(rest, default=self.next_index - 1) + 1
        return [end for _, end in sorted(rest.items(), key=lambda item: item[0]) if end is not None]


class Speakers:
    """What was heard of others. The mesh tells it in order; a repeat is told from news by its index."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, int] = OrderedDict()

    def is_new(self, speaker: str, index: int) -> bool:
        """True if that is the latest of this speaker; then it is remembered."""
        if index <= self.last_index(speaker):
            return False
        self._last[speaker] = index
        self._last.move_to_end(speaker)
        if len(self._last) > SPEAKERS_MAX:
            self._last.popitem(last=False)
        return True

    def last_index(self, speaker: str) -> int:
        """The latest that was heard; -1 if nothing was."""
        return self._last.get(speaker, -1)
