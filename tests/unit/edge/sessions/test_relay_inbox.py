"""Messages of other members: each is sent once, and its senders get their outcome when the client has it."""

from __future__ import annotations

from edge.rooms.core.events import MOVED
from edge.sessions.core import effects, events
from edge.sessions.core.relay_inbox import SPEAKERS_MAX
from tests.unit.edge.sessions.harness import Case, limits


def heard(case: Case) -> int:
    """How many messages of others the client was sent."""
    return sum(isinstance(one, effects.SendEncoded) and one.body == b'{"type": "x"}' for one in case.done)


def replies(case: Case) -> list[tuple[str, str]]:
    """Who got which outcome."""
    return [(one.queue or one.post.edge, one.verdict) for one in case.of(effects.ReplyRelay)]


def test_result_is_delivered_when_it_is_written_for_a_client_that_cannot_resume() -> None:
    case = Case()
    case.hear("s-2", 0)
    case.hear("s-2", 0)
    assert heard(case) == 1 and replies(case) == [("edge:c", "told")] * 2


def test_result_is_delivered_when_a_resumable_client_acknowledges_it() -> None:
    case = Case(resumable=True)
    for index in range(3):
        case.hear("s-2", index)
    assert heard(case) == 3 and not replies(case)
    case.ack(1, "s-2")
    assert len(replies(case)) == 2 and case.state.inbox.unacked == [("s-2", 2)]
    case.ack(9, "s-3")
    assert len(replies(case)) == 2, "another speaker's"


def test_retries_are_sent_once_and_every_sender_gets_its_outcome() -> None:
    """The speaker moved to another edge, which sends the same index; both retry until the client has it."""
    case = Case(resumable=True)
    for ref in ("1", "2"):
        case.hear("s-2", 0, queue="s-2", edge="edge:a", ref="")
        case.hear("s-2", 0, edge="edge:c", ref=ref)
    assert heard(case) == 1 and case.state.inbox.unacked == [("s-2", 0)]
    case.ack(0, "s-2")
    assert replies(case) == [("s-2", "told"), ("edge:c", "told")]


def test_new_connection_gets_what_was_not_acknowledged() -> None:
    case = Case(resumable=True)
    for index in range(2):
        case.hear("s-2", index)
    case.ack(0, "s-2")
    case.detach()
    case.attach()
    assert heard(case) == 3


def test_session_that_ends_or_moves_gives_its_senders_their_outcome() -> None:
    for event, expected in (
        (events.Replaced("another"), [("s-2", "no_session"), ("edge:c", "no_session")]),
        (events.OwnerReported("edge:z", 9), [("s-2", MOVED)]),
    ):
        case = Case(resumable=True)
        case.hear("s-2", 0, queue="s-2", edge="edge:a", ref="")
        case.hear("s-3", 0)
        case.handle(event)
        assert replies(case) == expected, "a sender elsewhere retries and finds the next owner"


def test_mail_has_no_sender_to_answer() -> None:
    case = Case(resumable=True)
    case.hear("s-2", 0, edge="", ref="")
    case.ack(0, "s-2")
    assert heard(case) == 1 and not replies(case)


def test_what_is_remembered_is_bounded() -> None:
    case = Case(resumable=True, bounds=limits(unacked_max=4))
    for number in range(SPEAKERS_MAX + 10):
        case.hear(f"s-{number}", 0)
    assert len(case.state.inbox) == 4
    case.state.check()
