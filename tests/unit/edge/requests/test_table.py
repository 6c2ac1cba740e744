"""The table of pending requests: conservation, audio, and verdicts on results of no request."""

from __future__ import annotations

import pytest

from edge.requests.core.request import Attempt, Request, Stage
from edge.requests.core.table import RequestTable
from mesh.words import EdgeCount, ResultVerdict
from tests.unit.edge.requests.test_tracker import dispatch, push


def table(*, resumed: bool = False) -> RequestTable:
    made = RequestTable(4, 30_000)
    made.open_session("s", resumed=resumed)
    return made


def add(own: RequestTable, request_id: str = "r", audio: bytes = b"1234") -> Request:
    request = Request(dispatch(request_id), b"", audio, 0, 60_000, Attempt(1, 0))
    own.add(request)
    own.timers.set((request_id, 1), 100)
    own.check()
    return request


def test_accepted_is_pending_or_ended_once() -> None:
    own = table()
    first, second = add(own, "r-1"), add(own, "r-2")
    assert own.counts()[EdgeCount.ACCEPTED] == own.counts()[EdgeCount.IN_FLIGHT] == own.pending("s") == 2
    own.end(first, EdgeCount.DELIVERED, 1, first.current)
    own.end(second, EdgeCount.CANCELLED, 1)
    own.check()
    assert own.counts()[EdgeCount.DELIVERED] == own.counts()[EdgeCount.CANCELLED] == 1 and own.pending("s") == 0
    own.close_session("s")
    assert "s" not in own.sessions


def test_audio_is_counted_by_session_and_in_total() -> None:
    own = table()
    first = add(own, "r-1", b"12")
    add(own, "r-2", b"")
    add(own, "r-3", b"345")
    assert own.audio_bytes == own.bytes_of["s"] == 5
    own.end(first, EdgeCount.FAILED, 1)
    assert own.audio_bytes == own.bytes_of["s"] == 3 and "other" not in own.bytes_of
    own.check()


@pytest.mark.parametrize(("resumed", "is_known"), [(False, True), (True, False)])
def test_recently_ended_request_is_known_unless_its_session_was_resumed(resumed: bool, is_known: bool) -> None:
    own = table(resumed=resumed)
    request = add(own)
    assert own.is_known("r", "s", 2)
    own.end(request, EdgeCount.DELIVERED, 1, request.current)
    assert own.is_known("r", "s", 2) is is_known


def test_result_belongs_to_a_request_of_its_own_session_only() -> None:
    own = table()
    request = add(own)
    assert own.request_of(push()) is request and own.request_of(push(session_id="t")) is None


def test_result_without_request_id_needs_a_placed_job_of_that_node() -> None:
    own = table()
    request = add(own)
    assert own.request_of(push(request_id="")) is None
    request.current.stage, request.current.job_id, request.current.node_id = Stage.PLACED, "job-00-1", "n"
    assert own.request_of(push(request_id="")) is request
    assert own.request_of(push(request_id="", node_id="other")) is None


@pytest.mark.parametrize(
    ("resumed", "fields", "verdict"),
    [
        (False, {}, ResultVerdict.DUPLICATE),
        (False, {"session_id": "t"}, ResultVerdict.NO_SESSION),
        (False, {"request_id": ""}, ResultVerdict.NO_SESSION),
        (True, {}, ResultVerdict.NO_SESSION),
    ],
)
def test_verdict_on_a_result_of_no_request(resumed: bool, fields: dict[str, str], verdict: ResultVerdict) -> None:
    assert table(resumed=resumed).verdict_on(push(**fields), 2) == verdict


def test_result_of_a_recently_ended_request_is_a_duplicate_until_it_is_forgotten() -> None:
    own = table(resumed=True)
    request = add(own)
    own.end(request, EdgeCount.DELIVERED, 1, request.current)
    assert own.verdict_on(push(), 2) == ResultVerdict.DUPLICATE
    assert not own.ended_without("r", 1, 2) and own.ended_without("r", 2, 2)
    own.forget(["r"])
    assert own.verdict_on(push(), 2) == ResultVerdict.NO_SESSION and not own.ended_without("r", 2, 2)
