"""Resumption: a connected client: where it continues, which messages are resent, and the use of its mail.

A session that stayed at this edge is complete: unacked messages are resent, and results from the mail are handled as if
the mesh had pushed them. Of one from another edge there is only the mail. Results whose turn it is are sent at once.
The others are adopted: when the client has resent their audio, the same request gets its result from here instead of
from a node. In a room an index is several results for several members, so all of them are adopted. The mail
is deleted when the client has acknowledged all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from edge.core.failover import is_failover
from edge.rooms.core.events import RelayReceived
from edge.sessions.core.effects import TakeResult, TrimMail
from edge.sessions.core.events import Attached, FoundMail, MailedResult
from edge.sessions.core.membership import Membership
from edge.sessions.core.relay_inbox import RelayInbox
from edge.sessions.core.results.outcomes import Outcomes
from edge.sessions.core.session import Session
from edge.sessions.core.turn import Turn
from edge.sessions.core.utterances.intake import Intake
from edge.sessions.core.utterances.submission import OrderedResult, Submission
from mesh.messages.client import PROTOCOL_VERSION, SessionInitAck


class Resumption:
    """The mail of one session, and the connections of its client."""

    __slots__ = ("_inbox", "_intake", "_membership", "_outcomes", "_session", "_submission", "_turn", "last")

    def __init__(
        self,
        turn: Turn,
        session: Session,
        intake: Intake,
        submission: Submission,
        outcomes: Outcomes,
        inbox: RelayInbox,
        membership: Membership,
    ) -> None:
        self._turn = turn
        self._session = session
        self._intake = intake
        self._submission = submission
        self._outcomes = outcomes
        self._inbox = inbox
        self._membership = membership
        #: The last entry of the mail that was read; "" = there is none to delete.
        self.last = ""

    def open(self, event: Attached) -> None:
        """The first connection: of a new session, or of one from another edge with its mail."""
        if not event.resumed:
            self._send_init_ack(event)
            return
        next_index, next_seq = self._outcomes.order.next_index, self._intake.next_seq or 0
        is_in_room = bool(self._membership.code)
        plan = plan_resume(self._session, event.mail.results, next_index, next_seq, is_in_room=is_in_room)
        self.last = event.mail.last
        self._intake.continue_at(plan.next_index, plan.next_seq)
        self._submission.adopted = plan.adopted
        self._send_init_ack(event)
        for ordered in plan.ordered:
            self._submission.send_mailed(ordered)
        self._take_posts(event.mail)

    def reopen(self, event: Attached) -> None:
        """Another connection of a session that stayed here."""
        self._send_init_ack(event)
        self._outcomes.delivery.resend(event.last_index)
        self._inbox.resend()
        self.last = event.mail.last
        for push, result in event.mail.results:
            self._turn.do(TakeResult(push, result))
        self._take_posts(event.mail)

    def trim(self) -> None:
        """Delete the mail that was read, up to `last`, once the client has all of it."""
        if len(self._inbox) or len(self._outcomes.delivery.unacked):
            return
        # A result of an index that has ended is not needed: the audio was segmented differently this time.
        adopted, next_index = self._submission.adopted, self._outcomes.order.next_index
        if not any(mailed.push.utterance_index >= next_index for mailed in adopted.values()):
            adopted.clear()
            self._turn.do(TrimMail(self.last))
            self.last = ""

    def _take_posts(self, mail: FoundMail) -> None:
        """Messages of other members from the mail; their senders have been notified that they were parked."""
        for post, body in mail.posts:
            self._inbox.receive(RelayReceived(msgspec.structs.replace(post, edge=""), body))
        self._membership.look()

    def _send_init_ack(self, event: Attached) -> None:
        intake = self._intake
        self._turn.send(init_ack(self._session, event, intake.next_index, intake.next_seq, self._membership.code))


class ResumePlan(NamedTuple):
    """The continuation of a session whose client has everything before `next_index`."""

    ordered: list[OrderedResult]
    #: Index and first chunk of the next utterance; None: the chunk that the client named.
    next_index: int
    next_seq: int | None
    adopted: dict[str, MailedResult]


def plan_resume(
    session: Session, mailed: Sequence[MailedResult], next_index: int, next_seq: int, *, is_in_room: bool
) -> ResumePlan:
    """Plan the continuation. After a failure that another node may not have, the utterance is submitted anew."""
    found = [one for one in mailed if one.push.utterance_index >= next_index and is_end(one)]
    ordered = [] if is_in_room else in_order(session, found, next_index, next_seq)
    last_seqs = [one.last_seq for one in ordered if one.last_seq is not None]
    adopted = {one.push.request_id: one for one in found}
    return ResumePlan(ordered, next_index + len(ordered), last_seqs[-1] + 1 if last_seqs else None, adopted)


def is_end(mailed: MailedResult) -> bool:
    """False for a failure that another node may not have."""
    return mailed.result is None or not is_failover(mailed.result)


def in_order(session: Session, found: Sequence[MailedResult], index: int, next_seq: int) -> list[OrderedResult]:
    """The results that can be sent at once: from `index` on, without a gap.

    Edges may have segmented the same audio differently, so an index may occur more than once: a streamed result counts
    only if it begins where the previous one ended.
    """
    target = session.init.tgt_lang.strip().lower()
    ordered: list[OrderedResult] = []
    while True:
        for mailed in found:
            push = mailed.push
            if push.utterance_index != index or f":{index}:{target}:" not in push.request_id:
                continue
            seqs = session.seqs_of(push.request_id, index, target)
            if seqs is None or seqs[0] == next_seq:
                ordered.append(OrderedResult(mailed, None if seqs is None else seqs[1]))
                next_seq = next_seq if seqs is None else seqs[1] + 1
                break
        else:
            return ordered
        index += 1


def init_ack(session: Session, event: Attached, next_index: int, next_seq: int | None, room: str) -> SessionInitAck:
    """The reply to session_init. For a client that resumes it says where to continue."""
    return SessionInitAck(
        session_id=session.session_id,
        assigned_node_id=session.preferred_node or None,
        message="session resumed" if event.resumed else "session created",
        trace_id=session.trace_id,
        protocol_version=PROTOCOL_VERSION,
        use_binary_frame=bool(session.init.binary_frames),
        negotiated_codec=session.audio_format,
        negotiated_audio_format=session.audio_format,
        negotiated_sample_rate=session.sample_rate,
        negotiated_channel_count=1,
        binary_messages=event.binary_messages or None,
        resume_token=event.token,
        resumed=event.resumed,
        lost=event.lost,
        next_utterance_index=next_index if event.resumed else None,
        resend_from_seq=next_seq if event.resumed else None,
        room_code=room or None if event.resumed else None,
    )
