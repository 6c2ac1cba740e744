"""One request: its live attempts, the frame of each, and their cancels."""

from __future__ import annotations

from typing import get_args

import pytest

from edge.requests.core.request import Attempt, Effect, Request, SendReason
from mesh.frames import Dispatch
from tests.unit.edge.requests.test_tracker import dispatch


def request(**fields: object) -> Request:
    made = Request(dispatch(), b"work", b"audio", 0, 60_000, Attempt(1, 0))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_first_attempt_sends_the_dispatch_unchanged() -> None:
    own = request()
    assert own.frame(own.current) is own.dispatch


def test_next_attempt_carries_its_number_and_all_exclusions() -> None:
    own = request(current=Attempt(2, 0, SendReason.NEXT_ATTEMPT), attempts=2)
    for node_id in ("n-1", "n-1", "", "n-2"):
        own.exclude(node_id)
    frame = own.frame(own.current)
    assert isinstance(frame, Dispatch) and (frame.attempt, frame.excluded, frame.beside) == (2, ["n-1", "n-2"], False)


@pytest.mark.parametrize("excluded", [[], ["n-1"]])
def test_hedge_excludes_the_late_node_once(excluded: list[str]) -> None:
    own = request(current=Attempt(1, 0, job_id="j", node_id="n-1"), hedge=Attempt(2, 5), excluded=excluded)
    assert own.hedge is not None
    frame = own.frame(own.hedge)
    assert (frame.attempt, frame.excluded, frame.beside) == (2, ["n-1"], True)
    assert own.excluded == excluded, "only the hedge avoids it"


def test_attempt_is_found_only_while_it_is_live() -> None:
    own = request(hedge=Attempt(2, 5), attempts=2)
    assert own.attempt(1) is own.current and own.attempt(2) is own.hedge and own.attempt(3) is None
    own.current, own.hedge = own.live()[1], None
    assert own.attempt(1) is None and own.attempt(2) is own.current


def test_blameless_attempts_are_not_counted() -> None:
    assert request(attempts=5, blameless=3).counted_attempts == 2


def test_cancel_names_the_attempt_and_its_job() -> None:
    own = request(current=Attempt(3, 0, job_id="job-00-1", node_id="n-1"))
    cancel = own.cancel(own.current, "superseded").cancel
    assert (cancel.request_id, cancel.attempt, cancel.job_id, cancel.node_id) == ("r", 3, "job-00-1", "n-1")
    assert (cancel.session_id, cancel.reason) == ("s", "superseded") and own.session_id == "s"


def test_effects_are_frozen() -> None:
    assert all(effect.__struct_config__.frozen for effect in get_args(Effect))
