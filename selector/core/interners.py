"""The words that nodes use (languages, services, tenants, ...) and the numbers they have in the columns.

What nodes say is held by their rows and given back with them; what jobs ask for is only looked up. Models are an
exception: nodes have hundreds, so only those that a feature of a job may need get a number, whoever says them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from mesh.frames import NodeCaps
from selector.core.interner import UNKNOWN, WORD_BITS, Interner
from selector.core.kernel import LANGUAGE_PLANES, PAIR_PLANES, SERVICES_MAX

#: Distinct tenants, and distinct regions and GPU tiers, that nodes may name.
_TENANTS_MAX: Final = 65_536
_PLACES_MAX: Final = 4_096
#: Directed pairs of one node; the first ones count. Nodes that translate between many languages name none at all.
_PAIRS_PER_NODE_MAX: Final = 256
#: The services that jobs ask for. They always have a number, whatever else nodes say they can do.
_SERVICES: Final = ("asr", "nmt", "tts", "tone", "semantic", "phonetic", "punctuation")
#: A column's value for a node whose word did not fit: no job asks for it, not even one with an unknown word.
NOBODYS: Final = UNKNOWN - 1


class RowInterns(NamedTuple):
    """Numbers that a row holds. Words that did not fit are missing."""

    tenants: tuple[int, ...] = ()
    regions: tuple[int, ...] = ()
    tiers: tuple[int, ...] = ()
    installed: tuple[int, ...] = ()
    ready: tuple[int, ...] = ()
    asr: tuple[int, ...] = ()
    semantic: tuple[int, ...] = ()
    tts: tuple[int, ...] = ()
    pairs: tuple[int, ...] = ()


HELD_NOTHING: Final = RowInterns()


class NodeInterners:
    """All vocabularies of a table."""

    def __init__(self, kept: Iterable[str]) -> None:
        """`kept`: services and models that features of a job may need."""
        kept = [word.lower() for word in kept]
        self.languages = Interner(LANGUAGE_PLANES * WORD_BITS)
        self.pairs = Interner(PAIR_PLANES * WORD_BITS)
        self.services = Interner(SERVICES_MAX, dict.fromkeys((*_SERVICES, *kept)))
        # No tenant is tenant 0. Ids are told apart by case, everywhere.
        self.tenants = Interner(_TENANTS_MAX, [""], exact=True)
        self.regions = Interner(_PLACES_MAX, [""])
        self.tiers = Interner(_PLACES_MAX, [""])
        self._models = {word: self.services.find(word) for word in kept if word not in _SERVICES}

    @property
    def refused(self) -> int:
        """Words turned away so far, in all vocabularies."""
        all_of_them = (self.languages, self.pairs, self.services, self.tenants, self.regions, self.tiers)
        return sum(vocabulary.refused for vocabulary in all_of_them)

    def hold(self, caps: NodeCaps) -> RowInterns:
        """Hold the words of a node."""
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
        """Give a node's words back."""
        self.tenants.release(held.tenants)
        self.regions.release(held.regions)
        self.tiers.release(held.tiers)
        for numbers in (held.installed, held.ready):
            self.services.release(numbers)
        for numbers in (held.asr, held.semantic, held.tts):
            self.languages.release(numbers)
        self.pairs.release(held.pairs)

    def models(self, caps: NodeCaps) -> list[int]:
        """The numbers of those models of a node that jobs may need."""
        found = (self._models.get(model.lower(), UNKNOWN) for model in caps.models)
        return [number for number in found if number != UNKNOWN]
