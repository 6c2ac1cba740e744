"""Routing to sessions: replies to claims, how a session is reached, delivery of posts.

Pure decisions from a frame and the store's answer. A session is reached through its owner edge while its client is
connected; while the client is detached or the edge is dead, parkable messages go into its mail.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from lua.store.types.sessions import Claim, Claimed, MailEntry, MailPage, Noted, Parked, SessionOwner
from mesh.errors import ErrorCode
from mesh.frames import (
    Failed,
    Mail,
    MailAsk,
    Post,
    Posted,
    SessionClaim,
    SessionClaimed,
    SessionNote,
    SessionTaken,
    encode,
)
from mesh.words import PostVerdict
from selector.core.reply import Reply


class Reach(Enum):
    """How a session can be reached."""

    #: Through its owner edge: the client is connected.
    OWNER = "owner"
    #: Not now; it is resumable, so messages can be parked in its mail.
    MAIL = "mail"
    #: Not at all: it is not resumable.
    OFFLINE = "offline"
    #: It has no record.
    UNKNOWN = "unknown"


def reach_of(session: SessionOwner, *, is_owner_live: bool) -> Reach:
    """How a session with that record can be reached."""
    if not session.owner:
        return Reach.UNKNOWN
    if is_owner_live and not session.away:
        return Reach.OWNER
    return Reach.MAIL if session.resumable else Reach.OFFLINE


# --- ownership ------------------------------------------------------------------------------------------


def claim_of(frame: SessionClaim) -> Claim:
    """The request to the store."""
    return Claim(
        session_id=frame.session_id,
        edge=frame.edge,
        epoch=frame.epoch,
        tenant_id=frame.tenant_id,
        src_lang=frame.src_lang,
        tgt_lang=frame.tgt_lang,
        ref=frame.ref,
        token=frame.token,
        resume=frame.resume,
        trace_id=frame.trace_id,
        preferred_node=frame.preferred_node,
        resumable=frame.resumable,
    )


def on_claimed(frame: SessionClaim, claimed: Claimed) -> list[Reply]:
    """SessionClaimed, and SessionTaken for the previous owner; or Failed."""
    if not claimed.ok:
        return [Reply(frame.edge, Failed(frame.ref, ErrorCode.INVALID_SESSION.name, _why(frame, claimed)))]
    answer = SessionClaimed(
        ref=frame.ref,
        session_id=frame.session_id,
        epoch=claimed.epoch,
        trace_id=claimed.trace_id,
        preferred_node=claimed.preferred_node,
        tenant_id=claimed.tenant_id,
        room=claimed.room,
        mail=claimed.mail,
        lost=claimed.lost,
    )
    answers = [Reply(frame.edge, answer)]
    if claimed.before:
        answers.append(Reply(claimed.before, SessionTaken(frame.session_id, claimed.epoch, frame.edge)))
    return answers


def _why(frame: SessionClaim, claimed: Claimed) -> str:
    if claimed.verdict == "gone":
        return f"there is no session {frame.session_id} to resume"
    if claimed.verdict == "wrong_token":
        return f"session {frame.session_id} cannot be resumed with this token"
    return f"session {frame.session_id} is held elsewhere with epoch {claimed.epoch}"


def on_noted(frame: SessionNote, noted: Noted) -> Reply | None:
    """SessionTaken if the edge is not the owner; with an empty owner the edge must claim it again."""
    if noted.verdict == "ok":
        return None
    return Reply(frame.edge, SessionTaken(frame.session_id, noted.epoch, noted.owner))


# --- mail -------------------------------------------------------------------------------------------------


def on_mail(frame: MailAsk, page: MailPage | None) -> Reply:
    """The page, or Failed for an edge that is not the owner."""
    if page is None:
        text = f"session {frame.session_id} is not held with epoch {frame.epoch}"
        return Reply(frame.edge, Failed(frame.ref, ErrorCode.INVALID_SESSION.name, text))
    return Reply(frame.edge, Mail(frame.ref, frame.session_id, page.last, page.more))


# --- posts ------------------------------------------------------------------------------------------------


class Posting(NamedTuple):
    """The actions for a post: all that are not None, in this order."""

    #: Into the mail of its session; the sender then gets `verdict_of` the store's answer.
    park: MailEntry | None = None
    #: To the owner of the session, which replies itself.
    forward: Reply | None = None
    #: To its sender.
    verdict: PostVerdict | None = None


def on_post(frame: Post, body: bytes, session: SessionOwner, *, is_owner_live: bool) -> Posting:
    """Forward it, park it, or return the verdict that it is undeliverable.

    An edge that only seems dead may still have the client: it gets a parked post as well. The receiver deduplicates
    the two by their key.
    """
    reach = reach_of(session, is_owner_live=is_owner_live)
    if reach is Reach.UNKNOWN:
        return Posting(verdict=PostVerdict.NO_SESSION)
    if reach is Reach.OWNER:
        return Posting(forward=Reply(session.owner, frame))
    if reach is Reach.MAIL and frame.park:
        entry = MailEntry(frame.session_id, frame.key, encode(frame), body)
        return Posting(park=entry, forward=None if session.away else Reply(session.owner, frame))
    return Posting(verdict=PostVerdict.DETACHED)


def posted(frame: Post, verdict: PostVerdict | None) -> Reply | None:
    """The acknowledgement for its sender, if it asked for one."""
    return Reply(frame.edge, Posted(frame.ref, frame.session_id, verdict)) if frame.edge and verdict else None


def verdict_of(parked: Parked) -> PostVerdict:
    """The verdict on a message that was to be parked."""
    return PostVerdict.NO_SESSION if parked.verdict == "no_session" else PostVerdict.PARKED
