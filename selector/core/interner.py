"""Interning: strings of nodes (languages, services, tenants, ...) as small numbers, so that sets of them are bitsets.

Bounded: a string that does not fit matches no job. Strings are reference-counted by the rows that hold them; a number
without a holder is reused, so a node with a long list occupies nothing once it is removed. Jobs only look up. Models
are an exception: nodes have hundreds, so only those that a feature of a job may need have a number, permanently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mesh.frames import NodeCaps
from selector.core.kernel import LANGUAGE_PLANES, PAIR_PLANES, SERVICES_MAX

WORD_BITS: Final = 64
#: The number of a string that no node has: matches nothing.
UNKNOWN: Final = -2
#: Distinct tenants, and distinct regions and GPU tiers, that nodes may name.
_TENANTS_MAX: Final = 65_536
_PLACES_MAX: Final = 4_096
#: Directed pairs of one node; further ones are ignored. Nodes that translate between many languages list none.
_PAIRS_PER_NODE_MAX: Final = 256
#: The services that jobs need. They always have a number.
_SERVICES: Final = ("asr", "nmt", "tts", "tone", "semantic", "phonetic", "punctuation")
#: A column's value for a node whose string did not fit: matches no job, not even one with an unknown string.
NOT_INTERNED: Final = UNKNOWN - 1


class Interner:
    """Strings with reference counts. Only nodes add strings; jobs look them up, so a client cannot fill it."""

    def __init__(self, bound: int, permanent: Iterable[str] = (), *, exact: bool = False) -> None:
        """`permanent`: strings that always have a number, the first ones. `exact`: case-sensitive."""
        self.bound = bound
        self._spell: Callable[[str], str] = str if exact else str.lower
        #: Strings refused because the interner was full; each try counts.
        self.refused = 0
        #: Counts words that got or lost a number: what was looked up before may be outdated.
        self.changes = 0
        self._numbers: dict[str, int] = {}
        #: By number: the string, and its reference count.
        self._words: list[str] = []
        self._holders: list[int] = []
        self._free: list[int] = []
        #: One more than the highest number ever given.
        self.size = 0
        for word in permanent:
            self.hold(word)

    def __len__(self) -> int:
        return len(self._numbers)

    def string(self, number: int) -> str:
        """The string of a number."""
        return self._words[number]

    def hold(self, word: str) -> int:
        """The number of `word`, new if needed, with one reference more; UNKNOWN when the interner is full."""
        word = self._spell(word)
        number = self._numbers.get(word)
        if number is None:
            if len(self._numbers) >= self.bound:
                self.refused += 1
                return UNKNOWN
            if self._free:
                number = self._free.pop()
                self._words[number] = word
            else:
                number = self.size
                self._words.append(word)
                self._holders.append(0)
                self.size += 1
            self._numbers[word] = number
            self.changes += 1
        self._holders[number] += 1
        return number

    def hold_all(self, words: Iterable[str]) -> tuple[int, ...]:
        """The numbers of the strings that fit, with one reference each."""
        numbers = (self.hold(word) for word in dict.fromkeys(map(self._spell, words)))
        return tuple(number for number in numbers if number != UNKNOWN)

    def release(self, numbers: Iterable[int]) -> None:
        """Drop one reference of each; numbers without a reference are reused."""
        for number in numbers:
            assert self._holders[number] > 0, f"{number} has no reference"
            self._holders[number] -= 1
            if not self._holders[number]:
                del self._numbers[self._words[number]]
                self._free.append(number)
                self.changes += 1

    def find(self, word: str) -> int:
        """The number of `word`, or UNKNOWN."""
        return self._numbers.get(self._spell(word), UNKNOWN)

    def find_bits(self, words: Iterable[str]) -> tuple[int, bool]:
        """The numbers of the words as one bitset, and whether any of them is unknown."""
        numbers = {self._numbers.get(self._spell(word), UNKNOWN) for word in words}
        return sum(1 << number for number in numbers if number != UNKNOWN), UNKNOWN in numbers


def bits(numbers: Iterable[int], planes: int) -> npt.NDArray[np.uint64]:
    """The set as `planes` machine words."""
    sums = [0] * planes
    for number in numbers:
        sums[number // WORD_BITS] |= 1 << (number % WORD_BITS)
    return np.array(sums, dtype=np.uint64)


class RowInterns(NamedTuple):
    """Numbers that a row references. Strings that did not fit are missing."""

    tenants: tuple[int, ...] = ()
    regions: tuple[int, ...] = ()
    tiers: tuple[int, ...] = ()
    installed: tuple[int, ...] = ()
    ready: tuple[int, ...] = ()
    asr: tuple[int, ...] = ()
    semantic: tuple[int, ...] = ()
    tts: tuple[int, ...] = ()
    pairs: tuple[int, ...] = ()


NO_INTERNS: Final = RowInterns()


class NodeInterners:
    """All interners of a node table."""

    def __init__(self, permanent: Iterable[str]) -> None:
        """`permanent`: services and models that features of a job may need."""
        permanent = [word.lower() for word in permanent]
        self.languages = Interner(LANGUAGE_PLANES * WORD_BITS)
        self.pairs = Interner(PAIR_PLANES * WORD_BITS)
        self.services = Interner(SERVICES_MAX, dict.fromkeys((*_SERVICES, *permanent)))
        # No tenant is tenant 0. Ids are case-sensitive, everywhere.
        self.tenants = Interner(_TENANTS_MAX, [""], exact=True)
        self.regions = Interner(_PLACES_MAX, [""])
        self.tiers = Interner(_PLACES_MAX, [""])
        self._models = {word: self.services.find(word) for word in permanent if word not in _SERVICES}

    @property
    def refused(self) -> int:
        """Strings refused so far, in all interners."""
        all_of_them = (self.languages, self.pairs, self.services, self.tenants, self.regions, self.tiers)
        return sum(interner.refused for interner in all_of_them)

    def changes(self) -> int:
        """Counts words that got or lost a number, in all interners."""
        return (
            self.languages.changes
            + self.pairs.changes
            + self.services.changes
            + self.tenants.changes
            + self.regions.changes
            + self.tiers.changes
        )

    def hold(self, caps: NodeCaps) -> RowInterns:
        """Intern the strings of a node."""
        return RowInterns(
            self.tenants.hold_all([caps.tenant_id]),
            self.regions.hold_all([caps.region]),
            self.tiers.hold_all([caps.gpu_tier]),
            self.services.hold_all(caps.services_installed),
            self.services.hold_all(caps.services_ready),
            self.languages.hold_all(caps.asr_langs),
            self.languages.hold_all(caps.semantic_langs),
            self.languages.hold_all(caps.tts_langs),
            self.pairs.hold_all(caps.pairs[:_PAIRS_PER_NODE_MAX]),
        )

    def release(self, held: RowInterns) -> None:
        """Release the strings of a node."""
        self.tenants.release(held.tenants)
        self.regions.release(held.regions)
        self.tiers.release(held.tiers)
        for numbers in (held.installed, held.ready):
            self.services.release(numbers)
        for numbers in (held.asr, held.semantic, held.tts):
            self.languages.release(numbers)
        self.pairs.release(held.pairs)

    def models(self, caps: NodeCaps) -> list[int]:
        """The numbers of a node's models that jobs may need."""
        found = (self._models.get(model.lower(), UNKNOWN) for model in caps.models)
        return [number for number in found if number != UNKNOWN]
