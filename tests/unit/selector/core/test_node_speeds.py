from __future__ import annotations

import pytest

from mesh.states.speed import ANY_PAIR, Speed
from selector.core.column_layout import empty_columns
from selector.core.kernel import NOT_ASKED, SPEED_SLOTS
from selector.core.node_speeds import NodeSpeeds, clear
from selector.core.node_table import NodeTable
from tests.support.builders.selector import facts, table_of

OLD = {ANY_PAIR: Speed(0.5, 0.0, 2.0, 10), "en>es": Speed(0.5, 0.0, 2.0, 10)}


def test_what_one_job_taught_leaves_the_other_pairs_alone() -> None:
    table = table_of(("n", facts()))
    table.set_speeds("n", OLD, clock_offset_ms=5)
    learned = {ANY_PAIR: Speed(0.75, 0.25, 3.0, 20), "zh>en": Speed(1.0, 0.0, 1.0, 20)}
    assert table.learn_speeds("n", learned, clock_offset_ms=5)
    assert table.speeds_of("n") == {
        ANY_PAIR: Speed(0.75, 0.25, 3.0, 25),
        "en>es": Speed(0.5, 0.0, 2.0, 15),
        "zh>en": Speed(1.0, 0.0, 1.0, 25),
    }
    table.check()


def test_learning_step_by_step_is_the_same_as_being_told_at_once() -> None:
    one, other = table_of(("n", facts())), table_of(("n", facts()))
    one.set_speeds("n", OLD)
    one.learn_speeds("n", {"zh>en": Speed(1.0, 0.0, 1.0, 20)})
    one.learn_speeds("n", {"en>es": Speed(0.25, 0.0, 3.0, 30), ANY_PAIR: Speed(0.25, 0.0, 3.0, 30)})
    told = {**OLD, "zh>en": Speed(1.0, 0.0, 1.0, 20)}
    told |= {"en>es": Speed(0.25, 0.0, 3.0, 30), ANY_PAIR: Speed(0.25, 0.0, 3.0, 30)}
    other.set_speeds("n", told)
    assert one.speeds_of("n") == other.speeds_of("n")
    for pair in told:
        number, its_number = (table.speeds.pairs.find(pair) for table in (one, other))
        assert one.speeds.prior()[number] == pytest.approx(other.speeds.prior()[its_number])


def test_nothing_of_a_node_that_left_stays_in_the_speed_of_the_fleet() -> None:
    table = table_of(*((node_id, facts()) for node_id in "abc"))
    for node_id, mean in (("a", 0.5), ("b", 90.0), ("c", 1.5)):
        table.learn_speeds(node_id, {ANY_PAIR: Speed(mean, 0.0, 1.0, 1), "en>es": Speed(mean, 0.0, 1.0, 1)})
    assert table.speeds.prior()[0] == 1.5, "the median: one that is stuck makes nobody else look fast"
    table.learn_speeds("c", {ANY_PAIR: Speed(0.25, 0.0, 2.0, 2)})
    assert table.speeds.prior()[0] == 0.5
    table.remove("b")
    assert table.speeds.prior()[0] == 0.25
    table.remove("c")
    assert table.speeds.prior()[0] == table.speeds.prior()[table.speeds.pairs.find("en>es")] == 0.5
    table.remove("a")
    assert table.speeds.prior()[0] < 0 and len(table.speeds.pairs) == 1


def test_a_node_with_too_many_pairs_and_an_unsound_speed_changes_nothing_else() -> None:
    table = table_of(("n", facts()))
    for number in range(40):
        table.learn_speeds("n", {f"l{number}>en": Speed(1.0, 0.0, 1.0, number)})
    table.learn_speeds("n", {ANY_PAIR: Speed(2.0, 0.0, 1.0, 99), "l0>en": Speed(float("nan"), 0.0, 1.0, 99)})
    known = table.speeds_of("n")
    assert len(known) == 17 and known[ANY_PAIR].mean == 2.0 and known["l0>en"].mean == 1.0
    assert len(table.speeds.pairs) == 17, "pairs without room are held by nobody"
    table.check()


def test_an_unknown_node_learns_nothing() -> None:
    table = NodeTable(nodes_max=10)
    assert not table.learn_speeds("n", OLD) and table.speeds_of("n") == {}


def test_latest_pairs_are_stored_when_there_are_too_many() -> None:
    columns, speeds = empty_columns(1), NodeSpeeds()
    clear(columns, 0)
    given = {f"l{number}>en": Speed(1.0, 0.0, 1.0, number) for number in range(SPEED_SLOTS + 3)}
    speeds.write(columns, 0, "n", given, clock_offset_ms=0)
    stored = speeds.read(columns, 0)
    assert sorted(speed.at_ms for speed in stored.values()) == list(range(4, SPEED_SLOTS + 3))
    assert columns.speed_pair[0, 0] == NOT_ASKED, "the first slot is reserved for the node as a whole"


def test_fleet_speed_is_computed_again_only_after_a_change() -> None:
    columns, speeds = empty_columns(2), NodeSpeeds()
    speeds.write(columns, 0, "a", OLD, clock_offset_ms=0)
    before = speeds.prior()
    assert speeds.prior() is before
    speeds.forget("unknown")
    assert speeds.prior() is before
    speeds.write(columns, 1, "b", {ANY_PAIR: Speed(0.25, 0.0, 1.0, 1)}, clock_offset_ms=0)
    assert speeds.prior()[0] == 0.25, "the lower median of two"
    speeds.forget("b")
    assert speeds.prior()[0] == 0.5
