"""What becomes of requests: who is sent which result in which order, and when it is acknowledged upstream."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.requests.core.request import RequestProgressed
from edge.sessions.core import effects, events
from edge.sessions.core.results.outcomes import Outcomes
from mesh.messages.client import AsrPartial as ClientAsrPartial
from mesh.messages.client import ErrorMessage, MissingResult, TranslationResult, UiEvent, UtteranceEnded
from mesh.messages.node import JobError, NodeAsrPartial
from mesh.words import LatencyStage
from tests.unit.edge.sessions.harness import ID, WALL_MS, Case, limits, member, room_state

DELIVERED = "delivered"


def streaming(count: int = 1, **fields: Any) -> Case:
    """A session with so many utterances pending, each of one chunk."""
    case = Case(**fields)
    for seq in range(count):
        case.chunk(seq, final=True)
    return case


def in_room(*languages: str, **fields: Any) -> Case:
    """A session in a room with listeners l0, l1, ... of these languages, and one utterance pending."""
    case = Case(**fields)
    others = [member(f"l{number}", lang) for number, lang in enumerate(languages)]
    case.enter(*others)
    case.chunk(0, final=True)
    case.room_reply(room_state(member(ID, ""), *others))
    return case


# --- in order -------------------------------------------------------------------------------------------


def test_results_are_sent_in_order() -> None:
    case = streaming(3)
    case.answer(2)
    case.answer(1)
    assert case.indices == []
    case.answer(0)
    assert case.indices == [0, 1, 2]


def test_result_that_never_comes_is_missing_after_the_head_of_line_timeout() -> None:
    case = streaming(2)
    case.answer(1)
    case.wait(9_999)
    assert case.indices == []
    case.wait(1)
    assert case.indices == [0, 1] and case.received(MissingResult)[0].reason == "gap_timeout"
    assert [one.request_id for one in case.of(effects.CancelRequest)] == [case.submitted[0].request_id]
    assert not case.tracker.requests and not case.state.outcomes.requests


def test_index_without_a_result_is_missing_at_its_turn() -> None:
    case = streaming(3)
    case.answer(1, success=False, error=JobError(code="NMT_TIMEOUT", message="slow"))
    case.answer(2, text_asr="", text_translated="")
    assert case.indices == [] and case.codes == ["NMT_TIMEOUT"], "why is told at once"
    case.answer(0)
    assert case.indices == [0, 1, 2]
    assert [one.reason for one in case.received(MissingResult)] == ["job_failed", "silence_detected"]


def test_failure_of_the_mesh_is_told_and_its_index_is_missing() -> None:
    case = streaming(1)
    for effect in case.tracker.tick(case.now_ms + 30_000):
        case._run_tracker([effect])
    (error,) = case.received(ErrorMessage)
    assert error.code == "JOB_TIMEOUT" and error.details["utterance_index"] == 0
    assert case.received(MissingResult)[0].reason == "job_failed"


def test_result_that_cannot_be_read_is_a_failure() -> None:
    case = streaming(1)
    push = case.push_for(case.submitted[0])
    case._run_tracker(case.tracker.on_push(push, None, case.now_ms))
    assert case.codes == ["PROCESSING_ERROR"] and case.indices == [0] and case.acks == [(push.job_id, DELIVERED)]


def test_progress_of_a_request_is_shown_until_it_is_over() -> None:
    case = streaming(1)
    request = next(iter(case.tracker.requests.values()))
    partial = NodeAsrPartial(
        job_id="j", node_id="n", session_id=ID, utterance_index=0, text="ni", is_final=False, trace_id="t"
    )
    case.handle(RequestProgressed(request, "DISPATCHED"))
    case.handle(RequestProgressed(request, "NODE_ACCEPTED", "j"))
    case.handle(RequestProgressed(request, "ASR_PARTIAL", partial=partial))
    shown = [one.event for one in case.received(UiEvent)]
    assert shown == ["INPUT_STARTED", "INPUT_ENDED", "DISPATCHED", "NODE_ACCEPTED", "ASR_PARTIAL"]
    assert [one.text for one in case.received(ClientAsrPartial)] == ["ni"]
    case.answer(0)
    count = len(case.sent)
    case.handle(RequestProgressed(request, "DISPATCHED"))
    assert len(case.sent) == count


# --- acknowledged upstream --------------------------------------------------------------------------------


def test_result_is_acknowledged_at_once_for_a_client_that_cannot_resume() -> None:
    case = streaming(2)
    case.answer(1)
    assert case.indices == [] and case.acks == [("job-00-1-en", DELIVERED)]


def test_result_is_acknowledged_when_a_resumable_client_has_it() -> None:
    case = streaming(3, resumable=True)
    for index in range(3):
        case.answer(index)
    assert case.indices == [0, 1, 2] and not case.acks
    case.ack(1)
    assert case.acks == [("job-00-0-en", DELIVERED), ("job-00-1-en", DELIVERED)]
    case.ack(1)
    assert len(case.acks) == 2, "once"


def test_duplicate_of_an_unacknowledged_result_waits_with_it() -> None:
    case = streaming(1, resumable=True)
    push = case.answer(0)
    case.push(push)
    assert not case.acks and case.indices == [0]
    case.ack(0)
    case.push(push)
    assert case.acks == [(push.job_id, DELIVERED), (push.job_id, "duplicate")]


def test_failure_and_silence_are_acknowledged_like_any_result() -> None:
    case = streaming(2, resumable=True)
    case.answer(0, success=False, error=JobError(code="NMT_TIMEOUT", message="slow"))
    case.answer(1, text_asr="", text_translated="")
    assert case.indices == [0, 1] and not case.acks
    case.ack(1)
    assert len(case.acks) == 2


def test_result_after_its_index_has_ended_is_acknowledged_at_once() -> None:
    case = streaming(2, resumable=True)
    case.answer(1)
    case.wait(10_000)
    case.answer(0)
    assert case.acks == [("job-00-0-en", "duplicate")] and case.indices == [0, 1]


def test_end_of_a_session_acknowledges_what_is_left() -> None:
    case = streaming(2, resumable=True)
    case.answer(0)
    case.answer(1)
    case.handle(events.Replaced("another"))
    assert len(case.acks) == 2


def test_detached_client_gets_its_results_again_and_nothing_is_acknowledged_before() -> None:
    case = streaming(2, resumable=True)
    case.answer(0)
    case.detach()
    case.answer(1)
    assert case.indices == [0], "the second one waits for its client"
    case.attach(last_index=-1)
    assert case.indices == [0, 0, 1] and not case.acks
    case.detach()
    case.attach(last_index=0)
    assert case.indices == [0, 0, 1, 1] and case.acks == [("job-00-0-en", DELIVERED)]


def test_result_names_its_last_chunk_for_a_client_that_resumes() -> None:
    for resumable, last_seq in ((True, 1), (False, None)):
        case = Case(resumable=resumable)
        case.chunk(0)
        case.chunk(1, final=True)
        case.answer(0)
        assert case.received(TranslationResult)[0].last_seq == last_seq


# --- stages -----------------------------------------------------------------------------------------------

#: EDGE_IN to NODE: as a Push carries them.
TO_NODE = [100, 200, 300, 400, 500, 600, 7_000]


def measured(*indices: int, **fields: Any) -> Case:
    """A session whose results arrive in that order, a millisecond apart, each 50 us after its node's edge sent it."""
    case = streaming(len(indices), **fields)
    requests = {one.utterance_index: one for one in case.submitted}
    for index in indices:
        sent_us = (WALL_MS + case.now_ms) * 1_000 - 50
        case.push(case.push_for(requests[index], sent_us=sent_us, stages=TO_NODE))
        case.now_ms += 1
    return case


def test_client_that_asked_for_it_gets_the_time_of_every_stage() -> None:
    case = measured(0, init={"stage_timings": True})
    (message,) = case.received(TranslationResult)
    assert message.stages == dict(zip(LatencyStage, [*TO_NODE, 50, 0], strict=True))


def test_last_stage_is_the_wait_for_earlier_results() -> None:
    case = measured(2, 1, 0, init={"stage_timings": True})
    waited = [one.stages[LatencyStage.ORDER] for one in case.received(TranslationResult) if one.stages is not None]
    assert (case.indices, waited) == ([0, 1, 2], [0, 1_000, 2_000])


@pytest.mark.parametrize("init", [{}, {"stage_timings": False}])
def test_client_that_did_not_ask_gets_no_stages_but_they_are_counted(init: dict[str, Any]) -> None:
    case = measured(1, 0, init=init)
    assert [one.stages for one in case.received(TranslationResult)] == [None, None]
    assert [one.stages for one in case.of(effects.ObserveStages)] == [[*TO_NODE, 50, 0], [*TO_NODE, 50, 1_000]]


def test_result_without_stages_has_none_and_counts_none() -> None:
    case = streaming(1, init={"stage_timings": True})
    case.answer(0)
    assert case.received(TranslationResult)[0].stages is None and not case.of(effects.ObserveStages)


def test_stages_of_a_sender_whose_clock_is_ahead_are_not_negative() -> None:
    case = streaming(1)
    case.push(case.push_for(case.submitted[0], sent_us=(WALL_MS + 10**6) * 1_000, stages=TO_NODE))
    assert [one.stages for one in case.of(effects.ObserveStages)] == [[*TO_NODE, 0, 0]]


# --- in a room --------------------------------------------------------------------------------------------


def test_each_language_of_the_listeners_is_one_request() -> None:
    case = in_room("en", "fr", "en")
    assert [one.tgt_lang for one in case.submitted] == ["en", "fr"]
    assert [one.listener for one in case.of(effects.ExpectRelay)] == ["l0", "l2", "l1"]
    case.answer(0, lang="fr")
    assert [one.listener for one in case.relays] == ["l1"]
    case.answer(0, lang="en")
    assert [one.listener for one in case.relays] == ["l1", "l0", "l2"] and case.indices == []


def test_result_in_a_room_is_acknowledged_when_every_listener_has_it() -> None:
    case = in_room("en", "en", resumable=True)
    case.answer(0)
    case.relayed()
    case.ack(0)
    assert not case.acks and not case.received(UtteranceEnded)
    case.relayed("no_answer")
    assert case.acks == [("job-00-0-en", DELIVERED)]
    assert [one.utterance_index for one in case.received(UtteranceEnded)] == [0]


def test_utterance_has_ended_when_all_languages_have() -> None:
    case = in_room("en", "fr", resumable=True)
    case.answer(0, lang="en")
    case.relayed()
    assert not case.received(UtteranceEnded)
    case.answer(0, lang="fr")
    case.relayed()
    assert len(case.received(UtteranceEnded)) == 1 and not case.state.outcomes.delivery.open_languages


def test_outcome_of_a_message_sent_before_the_session_moved_counts_for_nothing() -> None:
    case = in_room("en", "en", resumable=True)
    case.answer(0)
    first, second = case.relays
    for _ in range(2):
        case.relays = [first]
        case.relayed()
    assert not case.acks, "the second listener has it not"
    case.relays = [second]
    case.relayed()
    assert len(case.acks) == 1


def test_member_whose_session_is_over_is_removed_from_the_room() -> None:
    case = in_room("en")
    case.answer(0)
    case.relayed("no_session")
    (call,) = case.calls
    assert (call.action, call.member) == ("leave", "l0")
    case.room_reply(room_state(member(ID, ""), version=2))
    assert case.state.membership.code == "123456", "the session itself stays"


def test_listeners_of_a_language_wait_for_no_other() -> None:
    case = in_room("en", "fr")
    others = (member(ID, ""), member("l0", "en"), member("l1", "fr"))
    case.chunk(1, final=True)
    case.room_reply(room_state(*others))
    case.answer(1, lang="fr")
    case.answer(0, lang="en")
    assert [(one.listener, one.key) for one in case.relays] == [("l0", f"{ID}/0")]
    case.answer(0, lang="fr")
    assert [one.key for one in case.relays if one.listener == "l1"] == [f"{ID}/0", f"{ID}/1"]


# --- any order --------------------------------------------------------------------------------------------


@given(st.permutations(range(6)), st.data())
def test_every_index_ends_once_and_in_order(arrival: list[int], data: st.DataObject) -> None:
    case = streaming(6, resumable=True, bounds=limits(session={"pending_max": 8}))
    acked = -1
    for index in arrival:
        kind = data.draw(st.sampled_from(["good", "failed", "silent", "never", "twice"]))
        if kind == "never":
            continue
        error = {"success": False, "error": JobError(code="NMT_TIMEOUT", message="")} if kind == "failed" else {}
        push = case.answer(index, **error, **({"text_asr": "", "text_translated": ""} if kind == "silent" else {}))
        if kind == "twice":
            case.push(push)
        if case.indices and data.draw(st.booleans()):
            acked = case.indices[-1]
            case.ack(acked)
        assert all(int(job.split("-")[2]) <= acked for job, _ in case.acks), "nothing before the client has it"
    case.wait(40_000)
    for effect in case.tracker.tick(case.now_ms):
        case._run_tracker([effect])
    assert case.indices == list(range(6))


def test_index_of_an_utterance_that_cannot_be_submitted_is_missing() -> None:
    case = Case()
    outcomes: Outcomes = case.state.outcomes
    outcomes.refuse(0, 3, "t")
    sent = [one.messages for one in outcomes._turn.effects if isinstance(one, effects.SendToClient)]
    missing = [message for messages in sent for message in messages]
    assert [(one.utterance_index, one.reason) for one in missing if isinstance(one, MissingResult)] == [
        (0, "job_failed")
    ]
    assert outcomes.order.next_index == 1 and not outcomes.requests
