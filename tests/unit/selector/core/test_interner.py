from __future__ import annotations

from selector.core.interner import UNKNOWN, Interner, NodeInterners, bits
from tests.support.builders.selector import caps


def test_find_does_not_add_a_string() -> None:
    words = Interner(2)
    assert words.find("en") == UNKNOWN
    assert words.hold("en") == 0
    assert (words.find("EN"), len(words)) == (0, 1)


def test_strings_are_found_as_one_bitset() -> None:
    words = Interner(4, permanent=["en", "es", "fr"])
    assert words.find_bits(["en", "FR", "fr"]) == (0b101, False)
    assert words.find_bits(["es", "zh"]) == (0b010, True), "the known ones, and that one is unknown"
    assert (words.find_bits([]), words.size) == ((0, False), 3)


def test_number_is_reused_after_its_last_reference() -> None:
    words = Interner(2, permanent=["en"])
    es = words.hold_all(["es", "ES"])
    assert words.hold_all(["es", "fr"]) == es, "two references; fr does not fit"
    words.release(es)
    assert words.hold("fr") == UNKNOWN
    words.release(es)
    assert (words.find("es"), words.hold("fr")) == (UNKNOWN, *es)
    assert (words.find("en"), words.refused) == (0, 2)


def test_bits_of_numbers_beyond_the_first_plane() -> None:
    assert bits([0, 63, 64], 2).tolist() == [1 | 1 << 63, 1]


def test_strings_of_a_node_are_released_with_it() -> None:
    interners = NodeInterners(["model-1"])
    before = len(interners.languages), len(interners.services), len(interners.tenants)
    held = interners.hold(caps(asr_langs=["en"], tenant_id="t", services_installed=["asr", "magic"]))
    assert interners.languages.find("en") in held.asr
    assert interners.services.find("magic") in held.installed
    interners.release(held)
    assert (len(interners.languages), len(interners.services), len(interners.tenants)) == before


def test_only_models_that_jobs_may_need_have_a_number() -> None:
    interners = NodeInterners(["model-1"])
    assert interners.models(caps(models=["MODEL-1", "other"])) == [interners.services.find("model-1")]
