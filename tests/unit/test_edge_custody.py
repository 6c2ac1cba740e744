"""Custody by single steps: what each answer of the mesh does to a request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.core.custody import Custody, Limits
from edge.core.request import (
    AckResult,
    Deliver,
    Effect,
    Fail,
    SendCancel,
    SendDispatch,
    Stage,
    TellBackpressure,
    TellPlaced,
)
from mesh.errors import ErrorCode
from mesh.frames import Dispatch, Placed, Push, Refused, Undone

LIMITS = Limits(400, 5_000, 1_500, 3, 1_000, 8, 30_000)


def dispatch(request_id: str = "r", **fields: Any) -> Dispatch:
    base: dict[str, Any] = {
        "request_id": request_id, "attempt": 1, "session_id": "s", "utterance_index": 0, "edge": "a", "tenant_id": "",
        "src_lang": "en", "tgt_lang": "es", "lang_a": "", "lang_b": "", "services": ["asr"], "public": True,
        "audio_ms": 1_000, "deadline_ms": 0, "trace_id": "t",
    }  # fmt: skip
    return Dispatch(**{**base, **fields})


def placed(attempt: int = 1, job_id: str = "job-00-1", request_id: str = "r") -> Placed:
    return Placed(request_id, attempt, job_id, "n", "s", 0)


def push(attempt: int = 1, **fields: Any) -> Push:
    base: dict[str, Any] = {
        "job_id": "job-00-1", "attempt": attempt, "node_id": "n", "node_edge": "b", "request_id": "r",
        "session_id": "s", "utterance_index": 0,
    }  # fmt: skip
    return Push(**{**base, **fields})


def undone(attempt: int = 1, exclude: bool = True) -> Undone:
    return Undone("r", attempt, "job-00-1", f"n{attempt}", "node_absent", exclude)


def refused(retry_after_ms: int, attempt: int = 1) -> Refused:
    return Refused("r", attempt, "NO_AVAILABLE_NODE", "language", {"language": 4}, retry_after_ms)


class Case:
    """A custody with one request, checked after every step."""

    def __init__(self, deadline_ms: int = 30_000) -> None:
        self.core = Custody(LIMITS)
        self.core.open_session("s")
        self.first = self.core.submit(dispatch(), b"work", b"audio", deadline_ms, 0)
        self.core.check()

    def do(self, effects: list[Effect]) -> list[Effect]:
        self.core.check()
        return effects

    @property
    def request(self) -> Any:
        return self.core.requests["r"]


def test_accepted_utterance_is_sent_at_once_and_again_with_back_off_by_another_broker() -> None:
    case = Case()
    assert isinstance(case.first[0], SendDispatch) and case.first[0].avoid == ""
    case.core.sent("r", "broker-1")
    times = []
    for _ in range(8):
        due = case.core.next_due_ms()
        assert due is not None
        times.append(due)
        (again,) = case.do(case.core.tick(due))
        assert isinstance(again, SendDispatch) and again.avoid == "broker-1"
        assert again.request.frame() == dispatch()
    assert times == [400, 1_200, 2_700, 4_200, 5_700, 7_200, 12_200, 17_200]


def test_placed_is_told_once_and_asked_after_now_and_then() -> None:
    case = Case()
    assert [type(effect) for effect in case.do(case.core.on_placed(placed(), 50))] == [TellPlaced]
    assert case.do(case.core.on_placed(placed(), 60)) == []
    assert case.request.stage is Stage.PLACED and case.core.next_due_ms() == 5_060
    assert [type(effect) for effect in case.do(case.core.tick(5_060))] == [SendDispatch]
    assert case.request.stage is Stage.PLACED and case.core.next_due_ms() == 10_060


def test_result_is_delivered_once_and_every_repeat_is_answered() -> None:
    case = Case()
    case.core.on_placed(placed(), 10)
    effects = case.do(case.core.on_push(push(), b"text", 20))
    assert [type(effect) for effect in effects] == [Deliver, AckResult]
    assert isinstance(effects[1], AckResult) and effects[1].verdict == "delivered"
    (again,) = case.do(case.core.on_push(push(), b"text", 30))
    assert isinstance(again, AckResult) and again.verdict == "duplicate"
    assert case.core.ended == {"delivered": 1} and case.core.next_due_ms() is None
    assert case.core.submit(dispatch(), b"", b"", 99, 40) == [], "the same request again makes no second job"


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        (push(attempt=2), "fenced"),
        (push(attempt=0), "fenced"),
        (push(request_id="other"), "duplicate"),
        (push(session_id="elsewhere"), "no_session"),
        (push(request_id="other", session_id="elsewhere"), "no_session"),
        (push(request_id="", job_id="job-00-2"), "no_session"),
        (push(request_id="", node_id="forger"), "no_session"),
        (push(request_id="", session_id="elsewhere"), "no_session"),
    ],
)
def test_results_that_are_not_wanted(message: Push, verdict: str) -> None:
    case = Case()
    case.core.on_placed(placed(), 10)
    (ack,) = case.do(case.core.on_push(message, b"text", 20))
    assert isinstance(ack, AckResult) and ack.verdict == verdict
    assert "r" in case.core.requests


def test_result_whose_edge_forgot_the_request_is_known_by_its_job() -> None:
    case = Case()
    case.core.on_placed(placed(), 10)
    effects = case.do(case.core.on_push(push(request_id=""), b"text", 20))
    assert isinstance(effects[0], Deliver) and effects[0].request.request_id == "r"


def test_undone_moves_on_at_once_then_slower_then_gives_up() -> None:
    case = Case()
    case.core.on_placed(placed(), 10)
    (second,) = case.do(case.core.on_undone(undone(1), 20))
    assert isinstance(second, SendDispatch)
    assert (second.request.frame().attempt, second.request.frame().excluded) == (2, ["n1"])
    assert case.do(case.core.on_undone(undone(1), 25)) == [], "a repeat of the old word changes nothing"
    assert case.do(case.core.on_undone(undone(2), 30)) == []
    assert case.core.next_due_ms() == 430
    (third,) = case.do(case.core.tick(430))
    assert isinstance(third, SendDispatch) and third.request.frame().excluded == ["n1", "n2"]
    (fail,) = case.do(case.core.on_undone(undone(3), 500))
    assert isinstance(fail, Fail) and fail.code is ErrorCode.NODE_UNAVAILABLE


def test_refused_rests_as_told_and_reports_the_last_reason_at_the_deadline() -> None:
    case = Case(deadline_ms=1_000)
    assert case.do(case.core.on_refused(refused(100), 10)) == []
    assert case.core.next_due_ms() == 110
    assert [type(effect) for effect in case.do(case.core.tick(110))] == [SendDispatch]
    assert case.do(case.core.on_refused(refused(5_000), 120)) == []
    fail, cancel = case.do(case.core.tick(1_000))
    assert isinstance(fail, Fail) and fail.code is ErrorCode.NO_AVAILABLE_NODE
    assert fail.details == {"reason": "language", "removed": {"language": 4}}
    assert isinstance(cancel, SendCancel)


@pytest.mark.parametrize(
    ("removed", "excluded"),
    [
        ({"excluded": 1}, []),
        ({"excluded": 1, "lang_pair_unsupported": 7, "offline": 2}, []),
        ({"excluded": 1, "capacity_exceeded": 2}, ["n1"]),
        ({"lang_pair_unsupported": 7}, ["n1"]),
    ],
)
def test_excluded_nodes_may_be_tried_again_if_there_are_no_others(removed: dict[str, int], excluded: list[str]) -> None:
    case = Case()
    case.core.on_undone(undone(1), 20)
    case.do(case.core.on_refused(Refused("r", 2, "NO_AVAILABLE_NODE", "x", removed, 100), 30))
    (again,) = case.do(case.core.tick(130))
    assert isinstance(again, SendDispatch) and again.request.frame().excluded == excluded
    assert again.request.frame().attempt == 2


def test_refused_for_good_fails_at_once_unless_a_node_has_it() -> None:
    case = Case()
    (fail,) = case.do(case.core.on_refused(refused(0), 10))
    assert isinstance(fail, Fail)
    case = Case()
    case.core.on_placed(placed(), 5)
    assert case.do(case.core.on_refused(refused(0), 10)) == []


def test_deadline_of_a_placed_job_cancels_it() -> None:
    case = Case(deadline_ms=3_000)
    case.core.on_placed(placed(), 10)
    fail, cancel = case.do(case.core.tick(3_000))
    assert isinstance(fail, Fail) and fail.code is ErrorCode.JOB_TIMEOUT
    assert isinstance(cancel, SendCancel) and cancel.request.job_id == "job-00-1"
    (ack,) = case.do(case.core.on_push(push(), b"late", 3_100))
    assert isinstance(ack, AckResult) and ack.verdict == "duplicate"


def test_busy_tells_the_client_and_waits_longer_each_time() -> None:
    case = Case()
    waits = []
    for _ in range(3):
        (slow,) = case.do(case.core.on_busy(dispatch(), 50, 0))
        assert isinstance(slow, TellBackpressure)
        waits.append(slow.resume_after_ms)
        case.do(case.core.tick(slow.resume_after_ms))
    assert waits == [50, 100, 200]
    case.core.on_placed(placed(), 300)
    assert case.do(case.core.on_busy(dispatch(), 50, 310)) == [], "the node has it"


def test_bounce_tries_again_sooner_than_silence() -> None:
    case = Case()
    assert case.do(case.core.on_bounce(dispatch(), 10)) == []
    due = case.core.next_due_ms()
    assert due is not None and 10 < due < 400
    assert [type(effect) for effect in case.do(case.core.tick(due))] == [SendDispatch]


def test_closing_the_session_abandons_and_cancels_what_waits() -> None:
    case = Case()
    (cancel,) = case.do(case.core.close_session("s", 10))
    assert isinstance(cancel, SendCancel) and case.core.ended == {"abandoned": 1}
    (ack,) = case.do(case.core.on_push(push(), b"text", 20))
    assert isinstance(ack, AckResult) and ack.verdict == "duplicate", "its keeper need not go on"
    assert case.do(case.core.close_session("s", 30)) == []


def test_audio_is_bounded_and_given_back() -> None:
    case = Case()
    assert case.core.has_room(995) and not case.core.has_room(996)
    case.core.on_push(push(), b"", 1)
    assert case.core.has_room(1_000)


EVENTS = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 5)),
    st.tuples(st.just("placed"), st.integers(0, 5), st.integers(1, 4)),
    st.tuples(st.just("refused"), st.integers(0, 5), st.integers(1, 4), st.sampled_from([0, 50])),
    st.tuples(st.just("undone"), st.integers(0, 5), st.integers(1, 4)),
    st.tuples(st.just("busy"), st.integers(0, 5), st.integers(1, 4)),
    st.tuples(st.just("bounce"), st.integers(0, 5), st.integers(1, 4)),
    st.tuples(st.just("push"), st.integers(0, 5), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("wait"), st.integers(0, 3_000)),
    st.tuples(st.just("close"), st.integers(0, 1)),
)


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=60))
def test_any_sequence_of_answers_ends_each_request_at_most_once(events: list[Any]) -> None:
    core, now, ends = Custody(LIMITS), 0, []
    for number in (0, 1):
        core.open_session(f"s{number}")
    for kind, *rest in events:
        name = f"r{rest[0]}"
        frame = dispatch(name, session_id=f"s{rest[0] % 2}", attempt=rest[1] if len(rest) > 1 else 1)
        effects: list[Effect] = []
        if kind == "submit":
            core.open_session(frame.session_id)
            effects = core.submit(frame, b"", b"audio", now + 2_000, now)
        elif kind == "placed":
            effects = core.on_placed(placed(rest[1], f"job-00-{rest[0]}", name), now)
        elif kind == "refused":
            effects = core.on_refused(Refused(name, rest[1], "NO_AVAILABLE_NODE", "x", {}, rest[2]), now)
        elif kind == "undone":
            effects = core.on_undone(Undone(name, rest[1], "j", "n", "x", True), now)
        elif kind == "busy":
            effects = core.on_busy(frame, 50, now)
        elif kind == "bounce":
            effects = core.on_bounce(frame, now)
        elif kind == "push":
            named = name if rest[2] else ""
            effects = core.on_push(
                push(rest[1], request_id=named, session_id=frame.session_id, job_id=f"job-00-{rest[0]}"), b"", now
            )
        elif kind == "wait":
            now += rest[0]
            effects = core.tick(now)
        else:
            effects = core.close_session(f"s{rest[0]}", now)
        ends += [effect.request for effect in effects if isinstance(effect, Deliver | Fail)]
        core.check()
    assert len(ends) == len({id(request) for request in ends}), "one request, two ends"
    assert len(ends) == core.ended["delivered"] + core.ended["failed"]
