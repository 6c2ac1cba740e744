"""Words as small numbers, so that sets of them become bitsets. Bounded: what does not fit matches nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

WORD_BITS: Final = 64
#: A job asks for a word that no node ever said: nothing matches.
UNKNOWN: Final = -2


class Vocabulary:
    """Interned words. Only what nodes say is added; jobs merely look up, so a client cannot fill it."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        #: Words turned away because the vocabulary was full; each try counts.
        self.refused = 0
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, word: str) -> int:
        """The number of `word`, new if need be; UNKNOWN when the vocabulary is full."""
        word = word.lower()
        number = self._numbers.get(word)
        if number is None:
            if len(self._numbers) >= self.bound:
                self.refused += 1
                return UNKNOWN
            number = len(self._numbers)
            self._numbers[word] = number
        return number

    def find(self, word: str) -> int:
        """The number of `word`, or UNKNOWN."""
        return self._numbers.get(word.lower(), UNKNOWN)

    def bits(self, words: Iterable[str], planes: int) -> npt.NDArray[np.uint64]:
        """The set as `planes` machine words; words that do not fit are left out."""
        sums = [0] * planes
        for word in words:
            number = self.add(word)
            if number >= 0:
                sums[number // WORD_BITS] |= 1 << (number % WORD_BITS)
        return np.array(sums, dtype=np.uint64)
