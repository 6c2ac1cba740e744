"""Languages of a node by stage, and the directed pairs that its rules and lists allow."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.nodes.core import languages
from edge.nodes.core.languages import Languages, languages_of, pairs_of
from mesh.messages.node import InstalledModel, NodeLanguageCapabilities

MODELS = [
    {"model_id": "a", "kind": "ASR", "src_lang": "EN", "version": "1"},
    {"model_id": "b", "kind": "asr", "src_lang": "fr", "version": "1", "enabled": False},
    {"model_id": "c", "kind": "nmt", "src_lang": "en", "tgt_lang": "es", "version": "1"},
    {"model_id": "d", "kind": "tts", "tgt_lang": "es", "version": "1"},
    {"model_id": "e", "kind": "vad", "version": "1"},
]
KNOWN = Languages(["en", "zh"], ["en", "es", "zh"], [])


def said(**fields: Any) -> NodeLanguageCapabilities:
    return msgspec.convert(fields, NodeLanguageCapabilities)


def models(items: list[dict[str, Any]]) -> list[InstalledModel]:
    return msgspec.convert(items, list[InstalledModel])


def nmt(rule: str, langs: list[str], **more: Any) -> dict[str, Any]:
    return {"model_id": "m", "languages": langs, "rule": rule, **more}


@pytest.mark.parametrize("words", [None, {}, {"semantic_core_ready": True}])
def test_missing_languages_are_those_of_the_enabled_models(words: Any) -> None:
    capabilities = None if words is None else said(**words)
    assert languages_of(capabilities, models(MODELS)) == Languages(["en"], ["es"], ["es"])


def test_models_without_languages_do_not_count() -> None:
    assert languages_of(None, models(MODELS[-1:])) == Languages([], [], [])


def test_semantic_languages_fall_back_to_pairs_and_translation_models() -> None:
    def semantic(**fields: Any) -> list[str]:
        return languages_of(said(asr_languages=["en"], **fields), []).semantic

    assert semantic(supported_language_pairs=[{"src": "en", "tgt": "DE"}]) == ["de"]
    assert semantic(nmt_capabilities=[nmt("any_to_any", ["it"])]) == ["it"]
    assert semantic(nmt_capabilities=[nmt("any_to_en", ["it", "fr"])]) == ["en"]
    assert semantic(nmt_capabilities=[nmt("specific_pairs", [], supported_pairs=[["en", "ko"]])]) == ["ko"]


def test_invalid_language_tag_is_dropped() -> None:
    strange = ["EN", "zh-Hant-TW", "e", "en_US", "languages!", "x" * 9, "12", "en-", "de-" + "x" * 9, "\u0435n"]
    assert languages_of(said(asr_languages=strange, semantic_languages=["es"]), []).asr == ["en", "zh-hant-tw"]


def test_languages_per_node_are_bounded() -> None:
    many = [f"{chr(122 - index // 26)}{chr(122 - index % 26)}" for index in range(200)]
    found = languages_of(said(asr_languages=many, semantic_languages=["aa", *many[:3], "bb"]), [])
    assert found.asr == sorted(many[: languages.LANGUAGES_MAX]), "the first that it says, not of the alphabet"
    assert found.semantic == sorted(many[:3])


@pytest.mark.parametrize(
    ("fields", "pairs"),
    [
        ({}, None),
        ({"supported_language_pairs": [], "nmt_capabilities": []}, None),
        ({"supported_language_pairs": [{"src": "ZH", "tgt": "en"}]}, ["zh>en"]),
        ({"supported_language_pairs": [{"src": "zh", "tgt": "zh"}]}, ["zh>zh"]),
        ({"supported_language_pairs": [{"src": "zh", "tgt": "fr"}, {"src": "zh", "tgt": "es"}]}, ["zh>es"]),
        ({"nmt_capabilities": [nmt("any_to_any", ["en", "zh", "es", "fr"])]}, []),
        ({"nmt_capabilities": [nmt("any_to_any", ["en", "zh"])]}, ["en>zh", "zh>en"]),
        (
            {"nmt_capabilities": [nmt("any_to_any", ["en", "zh"], blocked_pairs=[{"src": "en", "tgt": "zh"}])]},
            ["zh>en"],
        ),
        ({"nmt_capabilities": [nmt("Any_To_En", ["zh", "es", "en"])]}, ["zh>en"]),
        ({"nmt_capabilities": [nmt("en_to_any", ["zh", "es", "en"])]}, ["en>es", "en>zh"]),
        ({"nmt_capabilities": [nmt("specific_pairs", ["zh"], supported_pairs=[["zh", "es"], 5, ["x"]])]}, ["zh>es"]),
        ({"nmt_capabilities": [nmt("specific_pairs", ["zh"], supported_pairs="zh>es")]}, None),
        ({"nmt_capabilities": [nmt("by_the_moon", ["zh", "es"])]}, None),
        (
            {"nmt_capabilities": [nmt("any_to_en", ["zh"]), nmt("en_to_any", ["zh", "es"])]},
            ["en>es", "en>zh", "zh>en"],
        ),
        (
            {
                "nmt_capabilities": [nmt("any_to_any", ["en", "zh", "es"])],
                "supported_language_pairs": [{"src": "en", "tgt": "es"}],
            },
            ["en>es"],
        ),
    ],
)
def test_pairs_follow_from_the_list_else_from_the_rules(fields: dict[str, Any], pairs: list[str] | None) -> None:
    assert pairs_of(said(**fields), KNOWN) == pairs


def test_missing_capabilities_have_no_pairs() -> None:
    assert pairs_of(None, KNOWN) is None


def test_node_with_contradictory_languages_suits_no_job() -> None:
    pairs = [{"src": "ko", "tgt": "ja"}]
    assert pairs_of(said(supported_language_pairs=pairs), KNOWN) == ["ko>ja"]
    assert pairs_of(said(nmt_capabilities=[nmt("any_to_en", ["ko"])]), KNOWN) == ["ko>en"]


def test_pairs_per_node_are_bounded() -> None:
    many = [f"{chr(97 + index // 26)}{chr(97 + index % 26)}" for index in range(128)]
    node = Languages(many, many, [])
    blocked = [{"src": many[0], "tgt": many[1]}]
    words = said(nmt_capabilities=[nmt("any_to_any", many, blocked_pairs=blocked)] * 200)
    found = pairs_of(words, node)
    assert found is not None and len(found) == languages.PAIRS_MAX == len(set(found))


ODD = st.one_of(
    st.none(), st.integers(), st.text(max_size=3), st.lists(st.one_of(st.integers(), st.lists(st.text(max_size=3))))
)


@given(
    st.sampled_from(["any_to_any", "any_to_en", "en_to_any", "specific_pairs", ""]),
    st.lists(st.sampled_from(["en", "zh", "es", "ko"]), max_size=4),
    st.lists(st.tuples(st.sampled_from(["en", "zh", "es"]), st.sampled_from(["en", "zh", "es"])), max_size=4),
    ODD,
)
def test_rules_agree_with_their_plain_reading(
    rule: str, langs: list[str], blocked: list[tuple[str, str]], odd: Any
) -> None:
    words = said(
        nmt_capabilities=[nmt(rule, langs, blocked_pairs=[list(pair) for pair in blocked], supported_pairs=odd)]
    )
    found = pairs_of(words, KNOWN)
    plain = {
        (src, tgt)
        for src in KNOWN.asr
        for tgt in KNOWN.semantic
        if src != tgt
        and (src, tgt) not in blocked
        and (src == "en" or src in langs)
        and (tgt == "en" or tgt in langs)
        and {
            "any_to_any": src in langs and tgt in langs,
            "any_to_en": src in langs and tgt == "en",
            "en_to_any": src == "en" and tgt in langs,
        }.get(rule, False)
    }
    if plain and found:
        assert set(found) == {f"{src}>{tgt}" for src, tgt in plain}
    elif found == []:
        assert len(plain) == 4, "from each to each"
    else:
        assert not plain
