"""What pipelines and features need, against the table of the original, and tables that cannot be right."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.sessions.core.utterances.features import check_modules, closure, required
from mesh.config.scheduler import Module, ModulesConfig
from mesh.errors import ConfigError

TABLE = ModulesConfig().table
ALL = {"use_asr": True, "use_nmt": True, "use_tts": True, "use_semantic": False, "use_tone": False}


@pytest.mark.parametrize(
    ("features", "services", "models"),
    [
        ([], ["asr", "nmt", "tts"], []),
        (["emotion_detection"], ["asr", "nmt", "tts"], ["emotion-xlm-r"]),
        (["speaker_identification"], ["asr", "nmt", "tts", "tone"], ["speaker-id-ecapa"]),
        (["voice_style_detection"], ["asr", "nmt", "tts", "tone"], ["speaker-id-ecapa", "vc-model-v1"]),
        (["speech_rate_detection"], ["asr", "nmt", "tts"], ["sr-d-v1"]),
        (["speech_rate_control"], ["asr", "nmt", "tts"], ["sr-d-v1", "tts-vocoder-v1"]),
        (["persona_adaptation"], ["asr", "nmt", "tts"], ["persona-style-transformer"]),
        (["a_feature_of_tomorrow"], ["asr", "nmt", "tts"], []),
    ],
)
def test_features_need_what_the_original_says(features: list[str], services: list[str], models: list[str]) -> None:
    needs = required(ALL, dict.fromkeys(features, True), TABLE)
    assert (needs.services, needs.models) == (services, models)


def test_a_feature_that_is_off_needs_nothing_and_one_that_is_on_may_need_a_stage_that_is_off() -> None:
    text_only = {"use_asr": False, "use_nmt": True, "use_tts": False, "use_semantic": True}
    assert required(text_only, {"emotion_detection": False}, TABLE) == (["nmt", "semantic"], [])
    assert required(text_only, {"speech_rate_control": True}, TABLE).services == ["asr", "nmt", "tts", "semantic"]


def test_services_beyond_the_pipeline_come_last() -> None:
    table = {"odd": Module(services=["punctuation", "tone"])}
    assert required({"use_asr": True}, {"odd": True}, table).services == ["asr", "tone", "punctuation"]


def test_default_table_is_sound() -> None:
    check_modules(TABLE)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"a": Module(modules=["b"])}, "modules.table.a: needs the module 'b'"),
        ({"a": Module(modules=["a"])}, "a -> a"),
        ({"a": Module(modules=["b"]), "b": Module(modules=["c"]), "c": Module(modules=["b"])}, "b -> c -> b"),
    ],
)
def test_unknown_modules_and_circles_are_named(table: dict[str, Module], text: str) -> None:
    with pytest.raises(ConfigError, match=text.replace("(", ".")):
        check_modules(table)


NAMES = "abcdef"


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3), max_size=6))
def test_a_table_that_passes_is_a_tree_of_needs(links: dict[str, list[str]]) -> None:
    table = {name: Module(modules=needs, models=[name]) for name, needs in links.items()}
    try:
        check_modules(table)
    except ConfigError:
        known = all(needed in table for needs in links.values() for needed in needs)
        # Wrong for a reason: a name that is missing, or a module that is among what it needs.
        assert not known or any(table[name] in closure(links[name], table) for name in table)
        return
    for name in table:
        assert table[name] not in closure(links[name], table)
