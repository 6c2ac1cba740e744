"""Where a result goes: to the edge that owns its session, into the session's mail, or nowhere. Pure decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from lua.store.types.jobs import Advance, Advanced
from lua.store.types.sessions import MailEntry, Parked, SessionOwner
from mesh.frames import JobDone, Push, ResultAck, encode
from mesh.keys import lease_member
from mesh.states.job import JobAction
from mesh.words import ResultVerdict
from selector.core.reply import Reply
from selector.sessions.core.session_routing import Reach, reach_of, verdict_of

_FINISH: Final = f"{JobAction.FINISH} {JobAction.RELEASE}"
#: Of took_ms.
NOT_KNOWN: Final = -1


class Delivery(NamedTuple):
    """What to do with a result: all that is not None, in this order."""

    #: Into the mail of its session; its fate there is told by `on_parked`.
    park: MailEntry | None = None
    #: To the edge of its session.
    push: Reply | None = None
    #: To the edge of its node.
    ack: Reply | None = None


def finish_of(done: JobDone) -> Advance:
    """The end of a job, and what it says of its node's speed."""
    return Advance(
        done.job_id,
        done.attempt,
        done.node_id,
        _FINISH,
        done.success,
        done.pair,
        max(0, done.audio_ms),
        max(NOT_KNOWN, done.took_ms),
    )


def is_deliverable(advanced: Advanced) -> bool:
    """True if the result is the job's own. An unknown job was lost by Redis, not by us: its edge decides."""
    return advanced.verdict == "unknown" or (advanced.verdict in ("moved", "same") and advanced.finished)


def session_of(done: JobDone, advanced: Advanced) -> str:
    """The result's session: what the job's record says counts, what the node says only if there is none."""
    return advanced.session_id or done.session_id


def needs_seat(done: JobDone, advanced: Advanced) -> bool:
    """True if Redis must tell where the session is.

    A repeat was pushed before and nobody acknowledged it: the session may have moved, or its client may be away.
    """
    return is_deliverable(advanced) and (done.resend > 0 or not (advanced.edge or done.session_edge))


def on_result(
    done: JobDone, advanced: Advanced, body: bytes, seat: SessionOwner | None, lives: Callable[[str], bool]
) -> Delivery:
    """Push it to the session's edge, let it wait, or tell the node's edge that nobody wants it.

    `seat`: where the session is; None if that was not asked, or cannot be told. An edge that has the session in its
    memory may live although Redis forgot the session: it is asked. One that only seems to be gone may have the client
    still: it gets what is parked as well, and knows the two by their request.
    """
    if not is_deliverable(advanced):
        return Delivery(ack=_ack(done, ResultVerdict.FENCED))
    push = _push(done, advanced)
    asked = advanced.edge or done.session_edge
    if seat is None:
        return Delivery(push=Reply(asked, push)) if asked else _nobody(done)
    owner = seat.owner or asked
    owner_lives = bool(owner) and lives(owner)
    reach = reach_of(seat, owner_lives=owner_lives)
    if reach is Reach.LATER:
        letter = MailEntry(push.session_id, lease_member(push.job_id, push.attempt), encode(push), body)
        return Delivery(park=letter, push=None if seat.away else Reply(owner, push))
    return Delivery(push=Reply(owner, push)) if owner_lives else _nobody(done)


def on_parked(done: JobDone, parked: Parked) -> Reply:
    """It waits in the mail, where nobody but the session can lose it: its node's edge may forget it."""
    return _ack(done, ResultVerdict(verdict_of(parked)))


def _push(done: JobDone, advanced: Advanced) -> Push:
    return Push(
        job_id=done.job_id,
        attempt=done.attempt,
        node_id=done.node_id,
        node_edge=done.node_edge,
        request_id=advanced.request_id or done.request_id,
        session_id=session_of(done, advanced),
        utterance_index=done.utterance_index,
    )


def _nobody(done: JobDone) -> Delivery:
    return Delivery(ack=_ack(done, ResultVerdict.NO_SESSION))


def _ack(done: JobDone, verdict: ResultVerdict) -> Reply:
    return Reply(done.node_edge, ResultAck(done.job_id, done.attempt, done.node_id, verdict))
