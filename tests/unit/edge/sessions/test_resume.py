"""Sessions that continue here: with what they knew, or with their mail alone."""

from __future__ import annotations

from typing import Any

from edge.core.failover import is_failover
from edge.sessions.core import effects, events
from edge.sessions.core.events import FoundMail, MailedResult
from edge.sessions.core.resume import in_order, is_end, plan_resume
from edge.sessions.core.state import Phase
from mesh.frames import Post, Push
from mesh.messages.client import SessionInitAck
from mesh.messages.node import JobError
from tests.unit.edge.sessions.harness import ID, PIECE, Case, result, session_of


def mailed(index: int, seqs: str, *, lang: str = "en", **fields: Any) -> MailedResult:
    """A result of a streamed utterance, cut from these chunks by another edge."""
    request_id = f"{ID}:{index}:{lang}:trace:{seqs}"
    push = Push(f"job-00-{index}", 1, "n-1", "edge:b", request_id, ID, index)
    return MailedResult(push, result(push, **fields))


def taken_over(*results: MailedResult, last_index: int = -1, last_seq: int = -1, **fields: Any) -> Case:
    """A session from another edge, with this mail."""
    posts = fields.pop("posts", ())
    case = Case(resumable=True, attached=False, next_index=last_index + 1, next_seq=last_seq + 1, **fields)
    mail = FoundMail("9-0" if results or posts else "", results, posts)
    case.handle(events.Attached("token", True, False, last_index, mail))
    return case


def place(case: Case) -> tuple[int | None, int | None]:
    """Where the client is told to go on: index and chunk."""
    (ack,) = case.received(SessionInitAck)
    assert ack.resumed is True
    return ack.next_utterance_index, ack.resend_from_seq


def test_results_whose_turn_it_is_are_sent_at_once() -> None:
    case = taken_over(mailed(0, "0-1"), mailed(1, "2-4"))
    assert place(case) == (2, 5) and case.indices == [0, 1] and not case.acks
    case.ack(0)
    assert not case.of(effects.TrimMail)
    case.ack(1)
    assert len(case.acks) == 2 and case.of(effects.TrimMail) == [effects.TrimMail("9-0")]


def test_what_the_client_has_is_not_sent_again() -> None:
    case = taken_over(mailed(0, "0-1"), mailed(1, "2-4"), last_index=0, last_seq=1)
    assert place(case) == (2, 5) and case.indices == [1]


def test_result_behind_a_gap_waits_for_its_audio() -> None:
    case = taken_over(mailed(1, "2-4"))
    assert place(case) == (0, 0) and case.indices == []
    case.chunk(0)
    case.chunk(1, final=True)
    for seq in range(2, 5):
        case.chunk(seq, final=seq == 4)
    assert [one.utterance_index for one in case.submitted] == [0], "index 1 has its result already"
    case.answer(0)
    assert case.indices == [0, 1]


def test_result_that_was_cut_in_other_places_is_of_no_use_and_does_not_stay() -> None:
    case = taken_over(mailed(0, "0-7"), last_seq=1)
    assert place(case) == (0, 2)
    case.chunk(2, final=True)
    case.answer(0)
    assert case.indices == [0] and not case.of(effects.TrimMail)
    case.ack(0)
    assert len(case.of(effects.TrimMail)) == 1


def test_failure_that_another_node_may_not_have_is_submitted_again() -> None:
    failure = mailed(0, "0-0", success=False, error=JobError(code="NODE_OVERLOADED", message=""))
    assert failure.result is not None and is_failover(failure.result)
    case = taken_over(failure)
    assert place(case) == (0, 0)
    case.chunk(0, final=True)
    assert len(case.submitted) == 1


def test_results_in_a_room_are_handed_out_when_their_audio_comes_again() -> None:
    case = taken_over(mailed(0, "0-0", lang="fr"), room="123456")
    assert place(case) == (0, 0) and [one.action for one in case.calls] == ["look"]


def test_messages_of_other_members_are_sent_and_their_senders_not_answered() -> None:
    posts = tuple((Post("7", "edge:c", ID, "result", f"s-2/{index}", True), b'{"type": "x"}') for index in range(2))
    case = taken_over(posts=posts, room="123456")
    assert case.state.inbox.unacked == [("s-2", 0), ("s-2", 1)]
    case.ack(1, "s-2")
    assert not case.of(effects.ReplyRelay) and len(case.of(effects.TrimMail)) == 1


def test_session_that_is_here_still_takes_its_mail_as_if_it_were_pushed() -> None:
    case = Case(resumable=True)
    case.chunk(0, final=True)
    case.chunk(1, final=True)
    case.detach()
    pushes = [case.push_for(one) for one in case.submitted]
    found = FoundMail("5-0", tuple(MailedResult(push, result(push)) for push in pushes))
    case.attach(mail=found)
    assert case.indices == [0, 1] and case.received(SessionInitAck)[-1].next_utterance_index == 2
    case.ack(1)
    assert [verdict for _, verdict in case.acks] == ["delivered"] * 2
    assert case.of(effects.TrimMail) == [effects.TrimMail("5-0")]


def test_chunk_that_was_missing_at_a_loss_is_still_waited_for() -> None:
    case = Case(resumable=True)
    case.chunk(0)
    case.chunk(2)
    case.detach()
    case.wait(10_000)  # longer than a late chunk is waited for
    case.attach()
    assert case.received(SessionInitAck)[-1].resend_from_seq == 1
    case.now_ms += 100
    for seq in (1, 2, 3):
        case.chunk(seq, final=seq == 3)
    assert case.of(effects.Submit)[0].audio == PIECE * 4


def test_silence_while_the_client_was_away_is_no_pause() -> None:
    case = Case(resumable=True)
    case.chunk(0)
    case.detach()
    case.wait(30_000)
    assert not case.submitted and case.phase is Phase.DETACHED
    case.attach()
    case.chunk(1, final=True)
    assert case.of(effects.Submit)[0].audio == PIECE * 2


def test_streamed_results_are_in_order_only_while_each_begins_where_the_last_ended() -> None:
    found = [mailed(0, "0-4"), mailed(1, "6-8"), mailed(1, "5-7"), mailed(2, "8-9"), mailed(4, "12-13")]
    ordered = in_order(session_of(), found, 0, 0)
    assert [(one.mailed.push.utterance_index, one.last_seq) for one in ordered] == [(0, 4), (1, 7), (2, 9)]


def test_plan_continues_after_the_last_result_in_order_and_adopts_all() -> None:
    found = [mailed(3, "0-4"), mailed(5, "9-9"), mailed(1, "0-1")]
    plan = plan_resume(session_of(), found, 3, 0, is_in_room=False)
    assert (plan.next_index, plan.next_seq, len(plan.ordered)) == (4, 5, 1)
    assert list(plan.adopted) == [found[0].push.request_id, found[1].push.request_id], "1 is before the client's index"


def test_plan_in_a_room_sends_nothing_at_once() -> None:
    plan = plan_resume(session_of(), [mailed(0, "0-4")], 0, 0, is_in_room=True)
    assert not plan.ordered and (plan.next_index, plan.next_seq) == (0, None) and len(plan.adopted) == 1


def test_failure_is_an_end_unless_another_node_may_not_have_it() -> None:
    unreadable = MailedResult(mailed(0, "0-1").push, None)
    failed = mailed(0, "0-1", success=False, error=JobError(code="INVALID_AUDIO", message="x"))
    assert is_end(unreadable) and is_end(mailed(0, "0-1"))
    assert failed.result is not None and is_end(failed) is not is_failover(failed.result)
