"""An utterance becomes requests: for the client, per language of its listeners, or from the mail."""

from __future__ import annotations

from edge.sessions.core import effects, events
from edge.sessions.core.events import FoundMail, MailedResult
from edge.sessions.core.utterances.submission import OrderedResult
from mesh.frames import Push
from mesh.messages.client import TranslationResult
from tests.unit.edge.sessions.harness import EDGE, ID, PIECE, Case, member, result, room_state


def test_utterance_of_a_client_alone_is_one_request_in_its_own_language() -> None:
    case = Case()
    case.chunk(0, final=True)
    (dispatch,) = case.submitted
    assert (dispatch.tgt_lang, dispatch.edge, dispatch.utterance_index) == ("en", EDGE, 0)
    (context,) = case.state.outcomes.requests.values()
    assert (context.language, context.listeners, context.audio_bytes) == ("", (), len(PIECE))
    assert not case.of(effects.ExpectRelay)


def test_utterance_in_a_room_is_one_request_per_language_and_one_place_per_listener() -> None:
    case = Case()
    case.enter(member("l-1", "de"), member("l-2", "fr"), member("l-3", "de"))
    case.chunk(0, final=True)
    case.room_reply(room_state(member(ID, ""), member("l-1", "de"), member("l-2", "fr"), member("l-3", "de")))
    assert [one.tgt_lang for one in case.submitted] == ["de", "fr"]
    assert [one.listener for one in case.of(effects.ExpectRelay)] == ["l-1", "l-3", "l-2"]
    assert [one.is_first for one in case.state.outcomes.requests.values()] == [True, False]
    assert len(case.of(effects.Submit)) == 2


def test_places_are_reserved_before_the_requests_are_submitted() -> None:
    case = Case()
    case.enter(member("l-1", "de"))
    case.chunk(0, final=True)
    case.room_reply(room_state(member(ID, ""), member("l-1", "de")))
    kinds = [type(one) for one in case.done]
    assert kinds.index(effects.ExpectRelay) < kinds.index(effects.Submit)


def test_resent_audio_of_an_adopted_result_makes_no_request() -> None:
    push = Push("job-00-1", 1, "n-1", "edge:b", f"{ID}:1:en:trace:1-1", ID, 1)
    mail = FoundMail("9-0", (MailedResult(push, result(push, text_translated="mailed")),))
    case = Case(resumable=True, attached=False, next_index=0, next_seq=0)
    case.handle(events.Attached("token", True, False, -1, mail))
    for seq in (0, 1):
        case.chunk(seq, final=True)
    assert [one.utterance_index for one in case.submitted] == [0] and not case.state.submission.adopted
    case.answer(0)
    assert [one.text_translated for one in case.received(TranslationResult)] == ["hello", "mailed"]


def test_mailed_result_is_sent_as_it_was_found() -> None:
    case = Case(resumable=True)
    push = Push("job-00-0", 2, "n-1", "edge:b", f"{ID}:0:en:trace:0-3", ID, 0)
    case.state.submission.send_mailed(OrderedResult(MailedResult(push, result(push)), 3))
    sent = [one for one in case.state._turn.effects if isinstance(one, effects.SendEncoded)]
    assert [one.message_type for one in sent] == ["translation_result"] and b'"last_seq":3' in sent[0].body
