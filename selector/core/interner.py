"""Words as small numbers, so that sets of them become bitsets. Bounded: what does not fit matches nothing.

Words are held by those who say them and counted: a word that nobody holds any more gives its number back, so that one
node with a long list takes nothing away from the others for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

WORD_BITS: Final = 64
#: A job asks for a word that no node says: nothing matches.
UNKNOWN: Final = -2


class Interner:
    """Interned words. Only what nodes say is added; jobs merely look up, so a client cannot fill it."""

    def __init__(self, bound: int, kept: Iterable[str] = (), *, exact: bool = False) -> None:
        """`kept`: words that stay, whoever says them; they get the first numbers. `exact`: case matters."""
        self.bound = bound
        self._spell: Callable[[str], str] = str if exact else str.lower
        #: Words turned away because the vocabulary was full; each try counts.
        self.refused = 0
        self._numbers: dict[str, int] = {}
        #: By number: the word, and how many hold it.
        self._words: list[str] = []
        self._holders: list[int] = []
        self._free: list[int] = []
        for word in kept:
            self.hold(word)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def size(self) -> int:
        """One more than the highest number ever given."""
        return len(self._words)

    def word(self, number: int) -> str:
        """The word that has a number."""
        return self._words[number]

    def hold(self, word: str) -> int:
        """The number of `word`, new if need be, for one holder more; UNKNOWN when the vocabulary is full."""
        word = self._spell(word)
        number = self._numbers.get(word)
        if number is None:
            if len(self._numbers) >= self.bound:
                self.refused += 1
                return UNKNOWN
            number = self._numbers[word] = self._take_number(word)
        self._holders[number] += 1
        return number

    def hold_all(self, words: Iterable[str]) -> tuple[int, ...]:
        """The numbers of those words that fit, each held once."""
        numbers = (self.hold(word) for word in dict.fromkeys(map(self._spell, words)))
        return tuple(number for number in numbers if number != UNKNOWN)

    def release(self, numbers: Iterable[int]) -> None:
        """Undo one `hold` of each; numbers without a holder are free for other words."""
        for number in numbers:
            assert self._holders[number] > 0, f"{number} is held by nobody"
            self._holders[number] -= 1
            if not self._holders[number]:
                del self._numbers[self._words[number]]
                self._free.append(number)

    def find(self, word: str) -> int:
        """The number of `word`, or UNKNOWN."""
        return self._numbers.get(self._spell(word), UNKNOWN)

    def _take_number(self, word: str) -> int:
        if self._free:
            number = self._free.pop()
            self._words[number] = word
            return number
        self._words.append(word)
        self._holders.append(0)
        return len(self._words) - 1


def bits(numbers: Iterable[int], planes: int) -> npt.NDArray[np.uint64]:
    """The set as `planes` machine words."""
    sums = [0] * planes
    for number in numbers:
        sums[number // WORD_BITS] |= 1 << (number % WORD_BITS)
    return np.array(sums, dtype=np.uint64)
