"""Languages of a node: normalized tags by stage, and the directed pairs that it translates. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from mesh.frames import pair_of
from mesh.messages.node import InstalledModel, NmtCapability, NodeLanguageCapabilities

#: A language tag, in lower case: `en`, `zh-cn`, `zh-hant-tw`. Anything else is no language and is left out.
_TAG: Final = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8})*")
_TAG_CHARACTERS_MAX: Final = 35
#: Different languages of one node, all lists together; the first ones count. A large speech model knows about a
#: hundred. Selectors have 256 bits for them (docs/adr/0005-kernel.md), which one node must not fill alone.
LANGUAGES_MAX: Final = 128
#: Directed pairs of one node; the first ones count. Only for nodes that do not translate from each to each.
PAIRS_MAX: Final = 1_024
#: Bound of pairs that are expanded from the rules of a node's models: a message must not block the edge.
_PAIRS_EXPANDED_MAX: Final = 2 * LANGUAGES_MAX * LANGUAGES_MAX

Pair = tuple[str, str]

_ENGLISH: Final = "en"
#: A translation model's rule -> from which languages to which; None = all of the model's.
_RULES: Final[dict[str, tuple[list[str] | None, list[str] | None]]] = {
    "any_to_any": (None, None),
    "any_to_en": (None, [_ENGLISH]),
    "en_to_any": ([_ENGLISH], None),
}
_NOTHING: Final[tuple[list[str], list[str]]] = ([], [])


class Languages(NamedTuple):
    """The languages that a node recognises, translates to and speaks; sorted."""

    asr: list[str]
    semantic: list[str]
    tts: list[str]


def language(text: str) -> str:
    """A normalized language tag: trimmed, lower case."""
    return text.strip().lower()


def languages_of(given: NodeLanguageCapabilities | None, models: list[InstalledModel]) -> Languages:
    """The languages by stage: as the node lists them, else those of its models."""
    given = given or NodeLanguageCapabilities()
    enabled = [model for model in models if model.enabled is not False]
    asr, semantic, tts = given.asr_languages, given.semantic_languages, given.tts_languages
    if asr is None:
        asr = [m.src_lang for m in enabled if m.kind.lower() == "asr" and m.src_lang]
    if semantic is None:
        semantic = _translated(given) or [m.tgt_lang for m in enabled if m.kind.lower() == "nmt" and m.tgt_lang]
    if tts is None:
        tts = [m.tgt_lang for m in enabled if m.kind.lower() == "tts" and m.tgt_lang]
    known: set[str] = set()
    return Languages(_tags(asr, known), _tags(semantic, known), _tags(tts, known))


def pairs_of(given: NodeLanguageCapabilities | None, languages: Languages) -> list[str] | None:
    """The directed pairs, sorted, as `pair_of` spells them; [] = from each to each; None if the node gives none.

    The node's own list of pairs counts; without one, the pairs that its translation models allow. Pairs that the
    node's other languages rule out are left out, unless that leaves none: then it is a node that no job suits, and not
    one that suits them all.
    """
    if given is None:
        return None
    everything = {(src, tgt) for src in languages.asr for tgt in languages.semantic if src != tgt}
    sources, targets = set(languages.asr), set(languages.semantic)
    useful = {pair: None for pair in _pairs(given, sources, targets) if pair[0] in sources and pair[1] in targets}
    if not useful:
        elsewhere = sorted(pair_of(*pair) for pair in set(islice(_pairs(given), PAIRS_MAX)))
        return elsewhere or None
    if everything <= useful.keys():
        return []
    return sorted(pair_of(*pair) for pair in islice(useful, PAIRS_MAX))


def _pairs(
    given: NodeLanguageCapabilities, sources: Set[str] | None = None, targets: Set[str] | None = None
) -> Iterator[Pair]:
    """All pairs of the node; pairs allowed by rules only between those languages, if any are given."""
    listed = list(_clean((pair.src, pair.tgt) for pair in given.supported_language_pairs or []))
    if listed:
        return iter(listed)
    allowed = (_allowed(capability, sources, targets) for capability in given.nmt_capabilities or [])
    return islice(chain.from_iterable(allowed), _PAIRS_EXPANDED_MAX)


def _allowed(
    capability: NmtCapability, sources: Set[str] | None = None, targets: Set[str] | None = None
) -> Iterator[Pair]:
    """The pairs of one translation model. An unknown rule allows none."""
    langs = _tags(capability.languages, set())
    rule = capability.rule.strip().lower()
    if rule == "specific_pairs":
        allowed = _clean(_listed(capability.supported_pairs))
    else:
        from_, to = _RULES.get(rule, _NOTHING)
        allowed = (
            (src, tgt)
            for src in (_among(langs, sources) if from_ is None else from_)
            for tgt in (_among(langs, targets) if to is None else to)
            if src != tgt
        )
    blocked = set(_clean(_listed(capability.blocked_pairs)))
    return (pair for pair in allowed if pair not in blocked)


def _among(langs: list[str], wanted: Set[str] | None) -> list[str]:
    return langs if wanted is None else [lang for lang in langs if lang in wanted]


def _listed(pairs: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs in either spelling, {"src": .., "tgt": ..} or [src, tgt]; any other entry is skipped."""
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, dict):
            yield pair.get("src"), pair.get("tgt")
        elif isinstance(pair, list) and len(pair) == 2:
            yield pair[0], pair[1]


def _clean(pairs: Iterable[tuple[Any, Any]]) -> Iterator[Pair]:
    for src, tgt in pairs:
        if isinstance(src, str) and isinstance(tgt, str) and _is_tag(language(src)) and _is_tag(language(tgt)):
            yield language(src), language(tgt)


def _translated(given: NodeLanguageCapabilities) -> list[str]:
    """Target languages in the lists that one generation of nodes sends in place of semantic_languages."""
    listed = [pair.tgt for pair in given.supported_language_pairs or []]
    return listed or [lang for capability in given.nmt_capabilities or [] for lang in _targets(capability)]


def _targets(capability: NmtCapability) -> list[str]:
    rule = capability.rule.strip().lower()
    if rule == "any_to_en":
        return [_ENGLISH]
    if rule == "specific_pairs":
        return [tgt for _, tgt in _clean(_listed(capability.supported_pairs))]
    return list(capability.languages)


def _is_tag(tag: str) -> bool:
    return len(tag) <= _TAG_CHARACTERS_MAX and _TAG.fullmatch(tag) is not None


def _tags(names: Iterable[str], known: set[str]) -> list[str]:
    """The language tags among `names`. `known` collects those of all lists, at most LANGUAGES_MAX."""
    tags = set()
    for name in names:
        tag = language(name)
        if _is_tag(tag) and (tag in known or len(known) < LANGUAGES_MAX):
            known.add(tag)
            tags.add(tag)
    return sorted(tags)
