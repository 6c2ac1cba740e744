from __future__ import annotations

import pytest

from lua.store.types.commits import Committed
from lua.store.types.jobs import Release, Released
from mesh.frames import (
    Assign,
    AssignFailed,
    CancelJob,
    Undone,
)
from selector.core.filters import Filter, removed_by_name
from selector.placement.core import replies
from tests.support.builders.selector import job

BOUND = Committed("bound", "job-01-x", "n", "edge:b:1", 7, 1, "DISPATCHED")
LOST_MS = 8_000


def test_a_new_job_goes_to_the_edge_of_its_node() -> None:
    answer = replies.assign(job(deadline_ms=9), BOUND._replace(verdict="new"), 80)
    assert answer.to == "edge:b:1"
    assert answer.frame == Assign(
        "job-01-x", 1, "n", 7, "r-1", "s-1", 0, "edge:a:1", 9, "t-1", pair="en>es", audio_ms=1_500, late_after_ms=80
    )


@pytest.mark.parametrize(
    ("commit", "frame", "to"),
    [
        (BOUND, Assign, "edge:b:1"),
        (BOUND._replace(state="CREATED"), Assign, "edge:b:1"),
        (BOUND._replace(state="RUNNING"), Assign, "edge:b:1"),
        (BOUND._replace(state="FINISHED", finished=True), None, ""),
        (BOUND._replace(state="RELEASED", finished=True), None, ""),
        (BOUND._replace(state="RELEASED"), Undone, "edge:a:1"),
        (BOUND._replace(state=""), Undone, "edge:a:1"),
        (BOUND._replace(attempt=2), None, ""),  # its edge has moved on; this Dispatch is an old one
        (BOUND._replace(attempt=2, asked_by="edge:a:1"), None, ""),
    ],
)
def test_a_repeat_hears_what_it_still_needs(commit: Committed, frame: type | None, to: str) -> None:
    answer = replies.on_bound(job(), commit, commit.node_epoch, LOST_MS)
    assert (None if answer is None else type(answer.frame)) is frame
    assert (answer.to if answer else "") == to


@pytest.mark.parametrize(
    ("state", "frame"),
    [("CREATED", Assign), ("DISPATCHED", None), ("ACCEPTED", None), ("RUNNING", None), ("RELEASED", Undone)],
)
def test_a_node_that_connected_elsewhere_keeps_what_it_had(state: str, frame: type | None) -> None:
    answer = replies.on_bound(job(), BOUND._replace(state=state), BOUND.node_epoch + 1, LOST_MS)
    assert (None if answer is None else type(answer.frame)) is frame


def test_a_result_that_nobody_brought_for_long_is_lost_and_the_job_is_done_again() -> None:
    done = BOUND._replace(state="RELEASED", finished=True, asked_by="edge:a:1")
    for ended_for_ms in (-1, 0, LOST_MS):
        assert replies.on_bound(job(), done._replace(ended_for_ms=ended_for_ms), 7, LOST_MS) is None
    answer = replies.on_bound(job(), done._replace(ended_for_ms=LOST_MS + 1), 7, LOST_MS)
    assert answer == ("edge:a:1", Undone("r-1", 1, "job-01-x", "n", "result_lost", False))


def test_an_edge_that_took_a_session_over_catches_up_with_the_attempts() -> None:
    further = BOUND._replace(attempt=3, asked_by="edge:before:1")
    answer = replies.on_bound(job(), further, 7, LOST_MS)
    assert answer == ("edge:a:1", Undone("r-1", 1, "job-01-x", "n", "overtaken", False))


@pytest.mark.parametrize(
    ("reason", "away", "exclude"),
    [
        ("node_absent", True, True),
        ("node_stuck", False, True),
        ("job_lost", False, False),
        ("node_gone", True, False),
        ("node_error", False, True),
        ("drained", False, True),
    ],
)
def test_a_node_that_lost_a_job_or_went_away_is_fine(reason: str, away: bool, exclude: bool) -> None:
    failed = AssignFailed("job-01-x", 1, "n", 7, "r-1", "edge:a:1", reason)
    assert replies.is_node_absent(failed) is away
    assert replies.release_of(failed).epoch == (7 if reason == "node_gone" else 0)
    answer = replies.on_assign_failed(failed, Released("released", 0, 1))
    assert answer == ("edge:a:1", Undone("r-1", 1, "job-01-x", "n", reason, exclude))


@pytest.mark.parametrize("verdict", ["released", "same", "unknown"])
def test_attempts_that_came_to_nothing_are_undone(verdict: str) -> None:
    released = Released(verdict, 0, 1)  # type: ignore[arg-type]
    failed = AssignFailed("job-01-x", 2, "n", 7, "r-1", "edge:a:1", "node_stuck")
    answer = replies.on_assign_failed(failed, released)
    assert answer == ("edge:a:1", Undone("r-1", 2, "job-01-x", "n", "node_stuck", True))
    assigned = Assign("job-01-x", 2, "n", 7, "r-1", "s-1", 0, "edge:a:1", 0, "t")
    answer = replies.on_assign_bounced(assigned, released, "unroutable")
    assert answer == ("edge:a:1", Undone("r-1", 2, "job-01-x", "n", "unroutable", False))


def test_a_fenced_attempt_is_nobodys_business_any_more() -> None:
    fenced = Released("fenced", -1, 0)
    failed = AssignFailed("job-01-x", 1, "n", 7, "r-1", "edge:a:1", "node_absent")
    assigned = Assign("job-01-x", 1, "n", 7, "r-1", "s-1", 0, "edge:a:1", 0, "t")
    cancelled = Release("job-01-x", 1, "n", "closed")
    assert replies.on_assign_failed(failed, fenced) is None
    assert replies.on_assign_bounced(assigned, fenced, "unroutable") is None
    assert replies.on_cancelled(cancelled, fenced, "edge:b:1") is None


def test_a_node_that_came_back_goes_on_with_its_job() -> None:
    failed = AssignFailed("job-01-x", 1, "n", 7, "r-1", "edge:a:1", "node_gone")
    assert replies.on_assign_failed(failed, Released("kept", -1, 0)) is None


def test_a_cancelled_job_is_stopped_where_its_node_is() -> None:
    cancelled = Release("job-01-x", 1, "n", "closed")
    released = Released("released", 0, 1)
    assert replies.on_cancelled(cancelled, released, "") is None
    answer = replies.on_cancelled(cancelled, released, "edge:b:1")
    assert answer == ("edge:b:1", CancelJob("job-01-x", 1, "n", "", "closed"))


def counts(**removed: int) -> list[int]:
    return [removed.get(place.name, 0) for place in Filter]


def test_a_refusal_names_the_filter_that_removed_most() -> None:
    refused = replies.refusal(
        job(), counts(OFFLINE=1, PAIR=3, SLOT=2), 100, nearest=("n", "has no free slot"), waited_ms=40
    )
    assert refused.reason == "lang_pair_unsupported"
    assert refused.removed == {"offline": 1, "lang_pair_unsupported": 3, "capacity_exceeded": 2}
    assert (refused.retry_after_ms, refused.waited_ms) == (100, 40)
    assert (refused.nearest_node, refused.nearest) == ("n", "has no free slot")


def test_nodes_of_other_pools_are_no_reason_while_there_are_nodes_in_its_own() -> None:
    assert replies.main_reason(counts(POOL=90, SLOT=2)) == "capacity_exceeded"
    assert replies.main_reason(counts(POOL=90)) == "pool_not_eligible"


@pytest.mark.parametrize("place", list(Filter))
def test_what_waiting_cannot_help_does_not_wait(place: Filter) -> None:
    lasting = place.name in ("GPU", "PUBLIC", "TENANT", "INSTALLED", "ASR", "AUTO", "PAIR", "TTS")
    alone, beside = counts(**{place.name: 3}), counts(**{"PAIR": 9, place.name: 1})
    # If all who could are excluded, its edge decides whether they stay so.
    assert replies.is_worth_waiting(job(), alone) is not (lasting or place is Filter.EXCLUDED)
    # Without any node in its own pools, one may come; with some, those decide.
    assert replies.is_worth_waiting(job(), beside) is not (lasting or place in (Filter.EXCLUDED, Filter.POOL))
    assert not replies.is_worth_waiting(job(beside=True), alone), "a hedge never waits"


def test_where_there_is_no_node_one_may_come() -> None:
    nobody = replies.refusal(job(), counts(), 100)
    assert (nobody.reason, nobody.removed, nobody.retry_after_ms) == ("no_nodes", {}, 100)


REJECTED = {"a": "full", "b": "gone", "c": "not_ready", "d": "stale", "e": "no such word"}


def test_rejected_nodes_are_counted_under_the_filter_of_their_reason() -> None:
    corrected = replies.with_rejected(counts(EXCLUDED=6, PAIR=1), REJECTED, excluded=5)
    assert removed_by_name(corrected) == {
        "excluded": 1,
        "lang_pair_unsupported": 1,
        "capacity_exceeded": 2,
        "offline": 2,
        "status_not_ready": 1,
    }


def test_nodes_excluded_by_the_job_stay_counted_beside_rejected_ones_that_left_the_table() -> None:
    """The choice counts a node under EXCLUDED only while it has a row."""
    corrected = replies.with_rejected(counts(EXCLUDED=1), {"gone": "gone"}, excluded=0)
    assert removed_by_name(corrected) == {"excluded": 1, "offline": 1}
