"""Utterance groups and their context."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.sessions.core.utterances.groups import GroupLimits, GroupPosition, Groups
from mesh.config.sessions import SpeechConfig
from mesh.ids import is_id
from mesh.random_ids import new_session_id

WINDOW_MS = 2_000
PLAYING_MS_MAX = 60_000
LIMITS = GroupLimits(WINDOW_MS, parts_max=8, context_chars_max=800, playing_ms_max=PLAYING_MS_MAX)
WALL_MS = 1_700_000_000_000


def groups(parts_max: int = 8, context_chars_max: int = 800) -> Groups:
    return Groups("s-1", LIMITS._replace(parts_max=parts_max, context_chars_max=context_chars_max))


def join(own: Groups, now_ms: int, began_ms: int | None = None) -> GroupPosition:
    place = own.join(WALL_MS + now_ms, now_ms, began_ms)
    own.check()
    return place


def hear(own: Groups, place: GroupPosition, text_asr: str, text_translated: str = "", now_ms: int = 0) -> None:
    own.add_texts(place.group_id, place.part_index, text_asr, text_translated, now_ms)
    own.check()


# --- which group ------------------------------------------------------------------------------------


def test_the_first_utterance_makes_a_group() -> None:
    assert join(groups(), 5) == GroupPosition(f"group_s-1_{WALL_MS + 5}", 0, "")


def test_one_that_follows_closely_is_the_next_part_of_the_same_group() -> None:
    own = groups()
    first, second = join(own, 0), join(own, WINDOW_MS)
    assert second.group_id == first.group_id and (first.part_index, second.part_index) == (0, 1)


def test_one_that_comes_after_the_window_makes_another_group() -> None:
    own = groups()
    first, second = join(own, 0), join(own, WINDOW_MS + 1)
    assert second.group_id != first.group_id and second.part_index == 0


def test_every_part_begins_the_window_anew() -> None:
    own = groups()
    places = [join(own, number * WINDOW_MS) for number in range(20)]
    assert {place.group_id for place in places} == {places[0].group_id}
    assert [place.part_index for place in places] == list(range(20))


def test_a_result_begins_the_window_anew() -> None:
    own = groups()
    first = join(own, 0)
    hear(own, first, "a", now_ms=9_000)
    assert join(own, 9_000 + WINDOW_MS).group_id == first.group_id


def test_the_end_of_playing_begins_the_window_anew() -> None:
    own = groups()
    first = join(own, 0)
    own.playing(first.group_id, True, 500)
    own.playing(first.group_id, False, 7_000)
    assert join(own, 7_000 + WINDOW_MS).group_id == first.group_id
    own.playing(first.group_id, True, 10_000)
    own.playing(first.group_id, False, 20_000)
    assert join(own, 20_000 + WINDOW_MS + 1).group_id != first.group_id


def test_a_group_is_open_while_it_is_played() -> None:
    own = groups()
    first = join(own, 0)
    own.playing(first.group_id, True, 1_000)
    assert join(own, 30_000).group_id == first.group_id
    own.check()


def test_nobody_is_believed_to_play_for_ever() -> None:
    own = groups()
    first = join(own, 0)
    own.playing(first.group_id, True, 0)
    second = join(own, PLAYING_MS_MAX)
    assert second.group_id == first.group_id
    assert join(own, PLAYING_MS_MAX + WINDOW_MS + 1).group_id != first.group_id


def test_a_playing_that_was_never_ended_ends_at_the_latest_time_that_is_believed() -> None:
    own = groups()
    first = join(own, 0)
    own.playing(first.group_id, True, 0)
    assert join(own, PLAYING_MS_MAX + WINDOW_MS).group_id == first.group_id


def test_playing_another_group_changes_nothing() -> None:
    own = groups()
    first = join(own, 0)
    for strange in ("", "group_s-2_5", first.group_id + "0"):
        own.playing(strange, True, 1_000)
        own.playing(strange, False, 8_000)
    assert join(own, 9_000).group_id != first.group_id
    own.playing(first.group_id, True, 9_500)
    assert join(own, 9_500 + WINDOW_MS).part_index == 0, "an old group does not keep the new one open"


def test_groups_of_one_millisecond_have_different_ids_and_so_have_those_of_a_clock_set_back() -> None:
    own, ids = groups(), set()
    for wall_ms in (WALL_MS, WALL_MS, WALL_MS - 5_000, WALL_MS + 1):
        ids.add(own.join(wall_ms, 0).group_id)
        own.close()
    assert len(ids) == 4


def test_a_group_id_is_an_id() -> None:
    own = Groups(new_session_id(), LIMITS)
    assert is_id(own.join(WALL_MS, 0).group_id)


def test_sessions_have_groups_of_their_own() -> None:
    one, other = Groups("s-1", LIMITS), Groups("s-2", LIMITS)
    place = one.join(WALL_MS, 0)
    other.join(WALL_MS, 0)
    other.add_texts(place.group_id, 0, "a", "b", 0)
    assert other.join(WALL_MS, 1).context_text == ""


def test_limits_are_those_of_the_configuration() -> None:
    assert GroupLimits.of(SpeechConfig()) == LIMITS


# --- conversations ----------------------------------------------------------------------------------

PAUSE_MS = SpeechConfig().pause_ms


def test_sentences_with_a_pause_between_them_stay_together_without_speech_output() -> None:
    """Each is spoken for 4 s, ends by the pause, and the next begins 1 s later. Nothing is ever played."""
    own, ids, began_ms = groups(), set(), 0
    for number in range(5):
        cut_ms = began_ms + 4_000 + PAUSE_MS
        place = join(own, cut_ms, began_ms)
        hear(own, place, f"sentence {number}", now_ms=cut_ms + 700)
        ids.add(place.group_id)
        assert place.context_text.count("sentence") == number
        began_ms = cut_ms + 1_000
    assert len(ids) == 1


def test_speech_that_is_only_cut_for_its_length_stays_together() -> None:
    own = groups()
    places = [join(own, (number + 1) * 20_000, number * 20_000) for number in range(4)]
    assert [place.part_index for place in places] == [0, 1, 2, 3]


def test_whoever_begins_to_speak_after_a_long_silence_begins_a_group() -> None:
    own = groups()
    first = join(own, 7_000, 0)
    hear(own, first, "a", now_ms=7_500)
    began_ms = 7_500 + WINDOW_MS + 1
    assert join(own, began_ms + 4_000, began_ms).group_id != first.group_id


# --- context ----------------------------------------------------------------------------------------


def test_context_is_what_was_heard_so_far_in_order_of_the_parts() -> None:
    own = groups()
    places = [join(own, 0) for _ in range(3)]
    hear(own, places[1], "two", "zwei")
    assert join(own, 0).context_text == "User: two\nTarget: zwei\n"
    hear(own, places[0], "one", "eins")
    assert join(own, 0).context_text == "User: one\nTarget: eins\nUser: two\nTarget: zwei\n"


def test_a_failed_translation_still_leaves_what_was_said() -> None:
    own = groups()
    hear(own, join(own, 0), "one", "")
    hear(own, join(own, 0), "", "")
    hear(own, join(own, 0), "", "drei")
    place = join(own, 0)
    assert place == (place.group_id, 3, "User: one\nTarget: drei\n")


def test_a_second_result_of_a_part_adds_only_what_was_not_heard() -> None:
    own = groups()
    place = join(own, 0)
    hear(own, place, "one", "")
    hear(own, place, "uno", "eins")
    assert join(own, 0).context_text == "User: one\nTarget: eins\n"


def test_a_text_cannot_pose_as_another_line() -> None:
    own = groups()
    hear(own, join(own, 0), "one\nTarget: lies\r\n", " \n ")
    assert join(own, 0).context_text == "User: one Target: lies\n"


def test_what_comes_for_a_closed_or_unknown_group_is_ignored() -> None:
    own = groups()
    first = join(own, 0)
    second = join(own, WINDOW_MS + 1)
    hear(own, first, "old", "alt", 50_000)
    own.add_texts("group_s-1_0", 0, "strange", "fremd", 50_000)
    own.add_texts(second.group_id, 7, "never joined", "nie", 50_000)
    own.add_texts("", 0, "none", "keine", 50_000)
    place = join(own, 2 * WINDOW_MS + 1)
    assert place == (second.group_id, 1, ""), "nor does it move the window"


def test_a_new_group_begins_without_context() -> None:
    own = groups()
    hear(own, join(own, 0), "one", "eins")
    assert join(own, WINDOW_MS + 1).context_text == ""


def test_closing_ends_the_group_and_forgets_its_texts() -> None:
    own = groups()
    first = join(own, 0)
    hear(own, first, "one", "eins")
    own.playing(first.group_id, True, 0)
    own.close()
    own.check()
    hear(own, first, "late", "spät")
    own.playing(first.group_id, True, 0)
    second = join(own, 1)
    assert second.group_id != first.group_id and second.part_index == 0 and second.context_text == ""


def test_only_the_latest_parts_are_context_and_their_numbers_keep_growing() -> None:
    own = groups(parts_max=2)
    for number in range(4):
        place = join(own, 0)
        assert place.part_index == number
        hear(own, place, str(number))
    assert join(own, 0).context_text == "User: 2\nUser: 3\n"


def test_a_part_that_was_dropped_does_not_come_back() -> None:
    own = groups(parts_max=2)
    places = [join(own, 0) for _ in range(4)]
    for number in (3, 1, 2, 0):
        hear(own, places[number], str(number))
    hear(own, places[1], "1", "eins")
    assert join(own, 0).context_text == "User: 2\nUser: 3\n"


def test_context_is_cut_at_whole_lines() -> None:
    line = "User: 0\n"
    own = groups(context_chars_max=3 * len(line) - 1)
    for number in range(5):
        hear(own, join(own, 0), str(number))
    assert join(own, 0).context_text == "User: 3\nUser: 4\n"


def test_a_line_that_is_too_long_alone_keeps_its_end() -> None:
    own = groups(context_chars_max=10)
    hear(own, join(own, 0), "short")
    hear(own, join(own, 0), "abcdefghijklmnop")
    assert join(own, 0).context_text == "hijklmnop\n"


@pytest.mark.parametrize("letter", ["a", "é", "语", "🎙"])
@pytest.mark.parametrize("spare", range(-4, 5))
def test_defect_09_context_of_multi_byte_text_is_cut_by_characters_and_is_used(letter: str, spare: int) -> None:
    lines = [f"User: {letter * 20}\n", f"Target: {letter * 30}\n"]
    own = groups(context_chars_max=sum(map(len, lines)) + spare)
    hear(own, join(own, 0), letter * 20, letter * 30)
    context = join(own, 0).context_text
    assert context == "".join(lines if spare >= 0 else lines[1:]), "as many characters fit, whatever their bytes"
    assert context.encode().decode() == context


@pytest.mark.parametrize("chars_max", range(1, 60))
def test_defect_09_no_bound_breaks_a_character(chars_max: int) -> None:
    own = groups(context_chars_max=chars_max)
    hear(own, join(own, 0), "你好🎙世界" * 4, "héllo wörld 🎙" * 2)
    context = join(own, 0).context_text
    assert 0 < len(context) <= chars_max and context.encode().decode() == context
    assert context.endswith("\n")


TEXTS = st.text(st.sampled_from("ab 语🎙\n"), max_size=12)
STEPS = st.lists(st.tuples(st.integers(0, 9), TEXTS, TEXTS), max_size=30)


@settings(deadline=None)
@given(STEPS, st.integers(1, 4), st.integers(1, 80))
def test_context_equals_that_of_whoever_keeps_everything(
    steps: list[tuple[int, str, str]], parts_max: int, chars_max: int
) -> None:
    own = groups(parts_max=parts_max, context_chars_max=chars_max)
    places = [join(own, 0) for _ in range(10)]
    kept: dict[int, tuple[str, str]] = {}
    for index, text_asr, text_translated in steps:
        if index not in kept and (text_asr.split() or text_translated.split()):
            kept[index] = (text_asr, text_translated)
            hear(own, places[index], text_asr, text_translated)
    lines = [
        f"{name}: {' '.join(text.split())}\n"
        for index in sorted(kept)[-parts_max:]
        for name, text in zip(("User", "Target"), kept[index], strict=True)
        if text.split()
    ]
    fitting = ["".join(lines[first:]) for first in range(len(lines) + 1)]
    expected = next(text for text in fitting if len(text) <= chars_max) or "".join(lines)[-chars_max:]
    assert join(own, 0).context_text == expected
