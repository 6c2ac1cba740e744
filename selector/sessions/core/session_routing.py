"""What to do about sessions: whom a claim concerns, how a session can be reached, what becomes of a post.

Pure decisions from a frame and what Redis said about it. A session is reached by its owner edge while its client is
there; while the client is away, or its edge is gone, what may wait goes into its mail.
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

    #: By its owner, whose client is there.
    HERE = "here"
    #: It cannot; what it misses may wait in its mail.
    LATER = "later"
    #: It cannot, and nobody will ask for what it missed.
    AWAY = "away"
    #: There is no record of it.
    NOWHERE = "nowhere"


def reach_of(seat: SessionOwner, *, owner_lives: bool) -> Reach:
    """How a session with that record can be reached."""
    if not seat.owner:
        return Reach.NOWHERE
    if owner_lives and not seat.away:
        return Reach.HERE
    return Reach.LATER if seat.resumable else Reach.AWAY


# --- ownership ------------------------------------------------------------------------------------------


def claim_of(frame: SessionClaim) -> Claim:
    """What the store is asked."""
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
    """SessionClaimed, and SessionTaken for the edge that lost it; or Failed."""
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
    """SessionTaken, if the session is not the edge's own; without an owner, it is to be claimed anew."""
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
    """What to do with a post: all that is there, in this order."""

    #: Into the mail of its session; what its sender is told then is `verdict_of` that.
    park: MailEntry | None = None
    #: To the edge that owns the session, which answers itself.
    forward: Reply | None = None
    #: For its sender.
    verdict: PostVerdict | None = None


def on_post(frame: Post, body: bytes, seat: SessionOwner, *, owner_lives: bool) -> Posting:
    """Pass it on, let it wait, or say that nobody is there.

    An edge that only seems to be gone may have the client still: it gets what is parked as well. Whoever sees both
    knows them by their key.
    """
    reach = reach_of(seat, owner_lives=owner_lives)
    if reach is Reach.NOWHERE:
        return Posting(verdict=PostVerdict.NO_SESSION)
    if reach is Reach.HERE:
        return Posting(forward=Reply(seat.owner, frame))
    if reach is Reach.LATER and frame.park:
        letter = MailEntry(frame.session_id, frame.key, encode(frame), body)
        return Posting(park=letter, forward=None if seat.away else Reply(seat.owner, frame))
    return Posting(verdict=PostVerdict.AWAY)


def posted(frame: Post, verdict: PostVerdict | None) -> Reply | None:
    """The word for its sender, if that wants one."""
    return Reply(frame.edge, Posted(frame.ref, frame.session_id, verdict)) if frame.edge and verdict else None


def verdict_of(parked: Parked) -> PostVerdict:
    """What is told of something that went into the mail, or should have."""
    return PostVerdict.NO_SESSION if parked.verdict == "no_session" else PostVerdict.PARKED
