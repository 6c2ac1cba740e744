"""Of two lists of one room the later counts."""

from __future__ import annotations

from edge.rooms.core.member_list import MemberList


def test_only_later_lists_of_a_room_are_taken() -> None:
    roster = MemberList()
    came = [("room-1", 1), ("room-1", 3), ("room-1", 2), ("room-1", 3), ("room-1", 4)]
    assert [roster.take(*one) for one in came] == [True, True, False, False, True]


def test_versions_of_another_room_begin_anew() -> None:
    roster = MemberList()
    assert roster.take("room-1", 9)
    assert roster.take("room-2", 1)
    assert not roster.take("room-2", 1)


def test_same_list_is_no_news_and_yet_not_older() -> None:
    roster = MemberList()
    roster.take("room-1", 3)
    assert [roster.is_older("room-1", version) for version in (2, 3, 4)] == [True, False, False]
    assert not roster.is_older("room-2", 1)
