"""Of two lists of one room the later counts."""

from __future__ import annotations

from edge.core.roster import Roster


def test_only_later_lists_of_a_room_are_taken() -> None:
    roster = Roster()
    came = [("room-1", 1), ("room-1", 3), ("room-1", 2), ("room-1", 3), ("room-1", 4)]
    assert [roster.take(*one) for one in came] == [True, True, False, False, True]


def test_versions_of_another_room_begin_anew() -> None:
    roster = Roster()
    assert roster.take("room-1", 9)
    assert roster.take("room-2", 1)
    assert not roster.take("room-2", 1)
