"""Who gets what in a room."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.rooms.core.fanout import Fan, plan
from edge.sessions.core.results.result_order import Release, ResultOrder, ResultOrderLimits
from mesh.frames.sessions import RoomMember


def member(session_id: str, preferred_lang: str = "") -> RoomMember:
    return RoomMember(session_id, "", preferred_lang, 0)


def test_outside_a_room_the_speaker_gets_its_own_result() -> None:
    assert plan("s", "en", []) == [Fan("en", ("s",))]


def test_each_language_of_the_others_is_one_job_for_those_who_prefer_it() -> None:
    members = [member("c", "ja"), member("s", "zh"), member("b", "en"), member("a", "en")]
    assert plan("s", "fr", members) == [Fan("en", ("b", "a")), Fan("ja", ("c",))]


def test_case_and_blanks_do_not_make_another_language() -> None:
    assert plan("s", "fr", [member("a", " EN"), member("b", "en "), member("c", "zh-CN")]) == [
        Fan("en", ("a", "b")),
        Fan("zh-cn", ("c",)),
    ]
    assert plan("s", " FR ", []) == [Fan("fr", ("s",))]


def test_whoever_prefers_no_language_gets_nothing() -> None:
    assert plan("s", "fr", [member("a"), member("b", "en"), member("c", "  ")]) == [Fan("en", ("b",))]


def test_a_room_in_which_nobody_else_prefers_a_language_is_like_no_room() -> None:
    assert plan("s", "fr", [member("s", "en"), member("a"), member("b", " ")]) == [Fan("fr", ("s",))]


def test_a_member_who_prefers_the_language_that_is_spoken_gets_a_job_too() -> None:
    spoken = "zh"
    assert plan("s", "en", [member("s", spoken), member("a", spoken)]) == [Fan(spoken, ("a",))]


MEMBERS = st.lists(st.tuples(st.sampled_from("sabcdef"), st.sampled_from(["", "en", "EN ", "de", "ja"])), max_size=7)


@settings(deadline=None)
@given(MEMBERS)
def test_every_other_member_with_a_language_is_in_one_fan_of_that_language(pairs: list[tuple[str, str]]) -> None:
    members = [member(name, lang) for name, lang in dict(pairs).items()]
    fans = plan("s", "fr", members)
    wanting = {one.session_id: one.preferred_lang.strip().lower() for one in members}
    wanting = {name: lang for name, lang in wanting.items() if lang and name != "s"} or {"s": "fr"}
    assert {name: fan.target for fan in fans for name in fan.listeners} == wanting
    assert sum(len(fan.listeners) for fan in fans) == len(wanting)
    assert [fan.target for fan in fans] == sorted(set(wanting.values()))


def test_defect_13_a_ready_result_goes_to_the_listeners_of_its_own_job() -> None:
    """Whichever job's result makes others ready, each member hears its own language, in order, and nothing else."""
    members = [member("s", "zh"), member("a", "en"), member("b", "de"), member("c", "en")]
    fans = plan("s", "fr", members)
    jobs = [(index, fan) for index in range(2) for fan in fans]
    for arrivals in itertools.permutations(jobs):
        orders = {name: ResultOrder(ResultOrderLimits(1_000, 10)) for fan in fans for name in fan.listeners}
        heard: dict[str, list[object]] = {name: [] for name in orders}
        for index, fan in arrivals:
            for name in fan.listeners:
                said = orders[name].arrive(index, (fan.target, index), 0)
                heard[name] += [word.item for word in said if isinstance(word, Release)]
        assert heard == {
            "a": [("en", 0), ("en", 1)],
            "b": [("de", 0), ("de", 1)],
            "c": [("en", 0), ("en", 1)],
        }
