"""Ownership: resume tokens, and how an edge claims and releases a session.

A session is named by its id and resumed by its token, of which the mesh keeps a digest.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import NamedTuple

from edge.link.core.rpc import Reply
from edge.link.link import EdgeLink
from edge.sessions.core.session import Session
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Failed, SessionClaim, SessionClaimed, SessionRelease
from mesh.ids import is_id


class Token(NamedTuple):
    """A resume token as the client has it, the session it is for, and the digest that the mesh keeps."""

    text: str
    session_id: str
    digest: str


def new_token(session_id: str) -> Token:
    """A token for a new session."""
    return _token(f"{session_id}.{secrets.token_urlsafe(18)}", session_id)


def read_token(text: str) -> Token | None:
    """The token in `text`; None if it is not one."""
    session_id = text.partition(".")[0]
    return _token(text, session_id) if is_id(session_id) else None


def _token(text: str, session_id: str) -> Token:
    return Token(text, session_id, hashlib.blake2s(text.encode(), digest_size=16).hexdigest())


async def claim(link: EdgeLink, session: Session, token: Token, *, resume: bool) -> SessionClaimed | None:
    """Claim ownership. None if there is no session to resume; PeerError if the mesh does not reply."""
    replied: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

    def on_reply(reply: Reply | None) -> None:
        if isinstance(reply, SessionClaimed):
            session.epoch = max(session.epoch, reply.epoch)
            if session.closed:  # the reply to a retried claim arrived after the session's end
                release(link, session.session_id, session.epoch)
        if not replied.done():
            replied.set_result(reply)

    link.ask(lambda ref: claim_frame(ref, link.identity, session, token.digest, resume), session.session_id, on_reply)
    reply = await replied
    if isinstance(reply, SessionClaimed):
        return reply
    if isinstance(reply, Failed):
        if resume and reply.code == ErrorCode.INVALID_SESSION.name:
            return None
        raise PeerError(ErrorCode.__members__.get(reply.code, ErrorCode.INTERNAL_ERROR), reply.message)
    raise PeerError(ErrorCode.SCHEDULER_DEPENDENCY_DOWN, "the mesh did not answer in time")


def release(link: EdgeLink, session_id: str, epoch: int) -> None:
    """Release ownership. Retried until acknowledged or `edge.answer_timeout_ms`; then the record expires by its TTL."""
    edge = link.identity
    link.ask(lambda ref: SessionRelease(session_id, edge, epoch, ref), session_id, lambda reply: None)


def claim_frame(ref: str, edge: str, session: Session, digest: str, resume: bool) -> SessionClaim:
    """The frame of a claim, for any epoch."""
    return SessionClaim(
        ref=ref,
        session_id=session.session_id,
        edge=edge,
        epoch=0,
        tenant_id=session.tenant_id,
        src_lang=session.init.src_lang,
        tgt_lang=session.init.tgt_lang,
        token=digest,
        resume=resume,
        trace_id=session.trace_id,
        preferred_node=session.preferred_node,
        resumable=bool(session.init.resumable),
    )
