"""Routing of results: to the edge that owns the session, into the session's mail, or nowhere. Pure decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from lua.store.types.jobs import Advance, Advanced
from lua.store.types.sessions import MailEntry, Parked, SessionOwner
from mesh.frames import Finished, JobDone, Push, ResultAck, encode
from mesh.keys import lease_member
from mesh.states.job import JobAction
from mesh.words import ResultVerdict
from selector.core.reply import Reply
from selector.sessions.core.session_routing import Reach, reach_of, verdict_of

_FINISH: Final = f"{JobAction.FINISH} {JobAction.RELEASE}"
#: A `took_ms` that was not measured.
NOT_KNOWN: Final = -1


class AckTo(NamedTuple):
    """An acknowledgement, and the node's edge that it goes to; those for one edge are gathered into one frame."""

    to: str
    ack: ResultAck


class Delivery(NamedTuple):
    """The actions for a result: all that are not None, in this order."""

    #: Into the mail of its session; `on_parked` makes the acknowledgement.
    park: MailEntry | None = None
    #: To the edge of its session.
    push: Reply | None = None
    #: To the edge of its node.
    ack: AckTo | None = None


def finish_of(done: JobDone | Finished) -> Advance:
    """The end of a job, with the sample of its node's speed."""
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
    """True if the result belongs to the current attempt. A job that Redis lost is delivered too: its edge decides."""
    return advanced.verdict == "unknown" or (advanced.verdict in ("moved", "same") and advanced.finished)


def session_of(done: JobDone, advanced: Advanced) -> str:
    """The result's session: by the job's record, or by the frame if there is none."""
    return advanced.session_id or done.session_id


def needs_owner(done: JobDone, advanced: Advanced) -> bool:
    """True if the owner must be read from Redis.

    A redelivered result was not acknowledged: the session may have moved, or its client may be detached.
    """
    return (done.resend > 0 or not (advanced.edge or done.session_edge)) and is_deliverable(advanced)


def on_result(
    done: JobDone,
    advanced: Advanced,
    payload: Sequence[Any],
    session: SessionOwner | None,
    is_live: Callable[[str], bool],
) -> Delivery:
    """Push it to the session's edge, park it, or acknowledge it as undeliverable to the node's edge.

    `session`: its record; None if it was not read, or on a store error. If Redis lost the record, the edge of the job
    may still have the session and gets the result. An edge that only seems dead may still have the client: it gets a
    parked result as well, and deduplicates the two by their request.
    """
    if not is_deliverable(advanced):
        return Delivery(ack=_ack(done, ResultVerdict.FENCED))
    push = Push(
        job_id=done.job_id,
        attempt=done.attempt,
        node_id=done.node_id,
        node_edge=done.node_edge,
        request_id=advanced.request_id or done.request_id,
        session_id=session_of(done, advanced),
        utterance_index=done.utterance_index,
    )
    asked = advanced.edge or done.session_edge
    if session is None:
        return Delivery(push=Reply(asked, push)) if asked else _undeliverable(done)
    owner = session.owner or asked
    is_owner_live = bool(owner) and is_live(owner)
    reach = reach_of(session, is_owner_live=is_owner_live)
    if reach is Reach.MAIL:
        body = bytes(payload[0]) if payload else b""  # the link may deliver a view of its buffer
        entry = MailEntry(push.session_id, lease_member(push.job_id, push.attempt), encode(push), body)
        return Delivery(park=entry, push=None if session.away else Reply(owner, push))
    return Delivery(push=Reply(owner, push)) if is_owner_live else _undeliverable(done)


def on_parked(done: JobDone, parked: Parked) -> AckTo:
    """It is stored in the session's mail: its node's edge may forget it."""
    return _ack(done, ResultVerdict(verdict_of(parked)))


def _undeliverable(done: JobDone) -> Delivery:
    return Delivery(ack=_ack(done, ResultVerdict.NO_SESSION))


def _ack(done: JobDone, verdict: ResultVerdict) -> AckTo:
    return AckTo(done.node_edge, ResultAck(done.node_id, done.job_id, done.attempt, verdict))
