"""A released result goes to the client or to listeners; it is acknowledged upstream when they have it."""

from __future__ import annotations

from typing import Any

from edge.requests.core.request import AckResult, ResultRejected
from edge.rooms.core.events import RelayCompleted
from edge.sessions.core.effects import SendEncoded, SendRelay, SendToClient
from edge.sessions.core.lifetime import Lifetime
from edge.sessions.core.membership import Membership
from edge.sessions.core.results.delivery import Delivery
from edge.sessions.core.results.request_context import RequestContext
from edge.sessions.core.turn import Turn
from mesh.frames import Push
from mesh.messages.client import MissingResult, UtteranceEnded
from mesh.words import ResultVerdict
from tests.unit.edge.sessions.harness import ID, limits, session_of

PUSH = Push("job-00-0", 1, "n-1", "edge:b", "r", ID, 0)
MISSING = MissingResult(session_id=ID, utterance_index=0, reason="job_failed", created_at_ms=0, trace_id="t")


class Case:
    """A delivery whose client is connected."""

    def __init__(self, *, resumable: bool) -> None:
        self.turn = Turn()
        self.turn.is_attached = True
        session, bounds = session_of(resumable=resumable), limits()
        membership = Membership(self.turn, session, bounds, Lifetime(bounds.lifetime, 0), "123456")
        self.delivery = Delivery(self.turn, session, membership)

    def effects(self, kind: type) -> list[Any]:
        self.delivery.check()
        return [one for one in self.turn.effects if isinstance(one, kind)]

    def relay(self, *listeners: str) -> None:
        self.delivery.open_languages[0] = 1
        self.delivery.unacked.add(0, PUSH)
        self.delivery.send(RequestContext(0, "de", listeners, "t", 3), MISSING)

    def complete(self, number: int, verdict: str = "told") -> None:
        self.delivery.on_relayed(RelayCompleted(self.effects(SendRelay)[number].message, verdict), 0)


def test_result_for_a_resumable_client_is_kept_until_acknowledged() -> None:
    case = Case(resumable=True)
    case.delivery.unacked.add(0, PUSH)
    case.delivery.send(RequestContext(0, "", (), "t", 3), MISSING)
    assert (len(case.effects(SendEncoded)), len(case.delivery.unacked), case.effects(AckResult)) == (1, 1, [])
    case.delivery.acknowledge(0)
    assert case.effects(AckResult) == [AckResult(PUSH, ResultVerdict.DELIVERED)] and not len(case.delivery.unacked)


def test_message_for_a_client_that_cannot_resume_is_not_kept() -> None:
    case = Case(resumable=False)
    case.delivery.send(RequestContext(0, "", (), "t", 3), MISSING)
    assert (len(case.effects(SendToClient)), case.effects(SendEncoded), len(case.delivery.unacked)) == (1, [], 0)


def test_result_for_listeners_is_acknowledged_after_the_last_outcome() -> None:
    case = Case(resumable=True)
    case.relay("l-1", "l-2")
    case.complete(0)
    assert not case.effects(AckResult) and case.delivery.open_languages == {0: 1}
    case.complete(1, "no_session")
    assert case.effects(AckResult) == [AckResult(PUSH, ResultVerdict.DELIVERED)] and not case.delivery.open_languages
    assert [one.message_type for one in case.effects(SendEncoded)] == [UtteranceEnded.__struct_config__.tag]


def test_second_outcome_of_one_listener_is_ignored() -> None:
    case = Case(resumable=True)
    case.relay("l-1", "l-2")
    case.complete(0)
    case.complete(0)
    assert case.delivery.open_languages == {0: 1}


def test_duplicate_of_an_unacked_result_is_not_acknowledged_yet() -> None:
    case = Case(resumable=True)
    rejected = ResultRejected(PUSH, ResultVerdict.DUPLICATE)
    case.delivery.unacked.add(0, PUSH)
    case.delivery.on_rejected(rejected)
    assert not case.effects(AckResult)
    case.delivery.end()
    case.delivery.on_rejected(rejected)
    assert [one.verdict for one in case.effects(AckResult)] == [ResultVerdict.DELIVERED, ResultVerdict.DUPLICATE]


def test_resend_sends_messages_after_the_clients_index() -> None:
    case = Case(resumable=True)
    for index in range(3):
        case.delivery.send_unacked(index, MISSING)
    before = len(case.effects(SendEncoded))
    case.delivery.resend(0)
    assert (before, len(case.effects(SendEncoded))) == (3, 5)
