"""Resuming: how an edge comes to own a session, and how one that was elsewhere goes on here.

A session is named by its id and resumed by its token, of which the mesh keeps a digest. What waited in its mail comes
first: results whose turn it is are told at once, others when the client has sent their audio again.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from typing import NamedTuple

from edge.core.failover import is_failover
from edge.link.core.rpc import MailPage, Reply
from edge.link.link import EdgeLink
from edge.requests.runner import read_result
from edge.sessions.actor import Actor
from edge.sessions.core.session import Session
from mesh.errors import ErrorCode, PeerError
from mesh.frames import (
    Dispatch,
    Failed,
    MailAsk,
    Post,
    Push,
    SessionClaim,
    SessionClaimed,
    SessionRelease,
    decode_frame,
)
from mesh.ids import is_id
from mesh.log import get_logger
from mesh.messages.node import JobResult

log = get_logger()


class MailResult(NamedTuple):
    """A result that waited in the mail; None: it cannot be read."""

    push: Push
    result: JobResult | None

    @property
    def is_end(self) -> bool:
        """False for a failure that another node may not have: the utterance is tried again."""
        return self.result is None or not is_failover(self.result)


class FoundMail(NamedTuple):
    """What waited in the mail, and its last entry; "" = nothing did."""

    last: str
    results: list[MailResult]
    posts: list[tuple[Post, bytes]]


class Token(NamedTuple):
    """A resume token as the client has it, the session it is for, and what the mesh keeps of it."""

    text: str
    session_id: str
    digest: str


def new_token(session_id: str) -> Token:
    """A token for a new session."""
    return _token(f"{session_id}.{secrets.token_urlsafe(18)}", session_id)


def read_token(text: str) -> Token | None:
    """The token in `text`; None if it can be none."""
    session_id = text.partition(".")[0]
    return _token(text, session_id) if is_id(session_id) else None


def _token(text: str, session_id: str) -> Token:
    return Token(text, session_id, hashlib.blake2s(text.encode(), digest_size=16).hexdigest())


async def claim(link: EdgeLink, session: Session, token: Token, *, resume: bool) -> SessionClaimed | None:
    """Own the session from now on. None if there is none to resume; PeerError if the mesh does not answer."""
    answered: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

    def on_answer(answer: Reply | None) -> None:
        if isinstance(answer, SessionClaimed):
            session.epoch = max(session.epoch, answer.epoch)
            if session.closed:  # a repeat of the claim was heard after the session's end
                release(link, session.session_id, session.epoch)
        if not answered.done():
            answered.set_result(answer)

    link.ask(lambda ref: claim_frame(ref, link.identity, session, token.digest, resume), session.session_id, on_answer)
    answer = await answered
    if isinstance(answer, SessionClaimed):
        return answer
    if isinstance(answer, Failed):
        if resume and answer.code == ErrorCode.INVALID_SESSION.name:
            return None
        raise PeerError(ErrorCode.__members__.get(answer.code, ErrorCode.INTERNAL_ERROR), answer.message)
    raise PeerError(ErrorCode.SCHEDULER_DEPENDENCY_DOWN, "the mesh did not answer in time")


def release(link: EdgeLink, session_id: str, epoch: int) -> None:
    """Nobody owns the session any more. Said until the mesh knows it, or for the usual time; then its record lapses."""
    edge = link.identity
    link.ask(lambda ref: SessionRelease(session_id, edge, epoch, ref), session_id, lambda answer: None)


def claim_frame(ref: str, edge: str, session: Session, digest: str, resume: bool) -> SessionClaim:
    """The claim of a session, whatever its epoch was."""
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


async def read_mail(link: EdgeLink, session: Session, pages_max: int) -> FoundMail:
    """What waits for the session, oldest first. PeerError if it cannot be read, or is another edge's to read."""
    found = FoundMail("", [], [])
    for _ in range(pages_max):
        page = await link.answer_to(_mail_ask(link, session, found.last), session.session_id)
        if isinstance(page, Failed) and page.code == ErrorCode.INVALID_SESSION.name:
            raise PeerError(ErrorCode.SESSION_SUPERSEDED, "the session was taken over meanwhile")
        if not isinstance(page, MailPage):
            log.warning("mail_unread", session_id=session.session_id, after=found.last, answer=str(page))
            raise PeerError(ErrorCode.SCHEDULER_DEPENDENCY_DOWN, "what waits for the session could not be read")
        for text, body in zip(page.parts[::2], page.parts[1::2], strict=True):
            frame = decode_frame(text)
            if isinstance(frame, Post):
                found.posts.append((frame, body))
            elif isinstance(frame, Push):
                found.results.append(MailResult(frame, read_result(frame, body)))
        found = found._replace(last=page.mail.last or found.last)
        if not page.mail.more:
            break
    return found


def _mail_ask(link: EdgeLink, session: Session, after: str) -> Callable[[str], MailAsk]:
    return lambda ref: MailAsk(ref, session.session_id, link.identity, session.epoch, after)


def dispatch_of(push: Push, session: Session, edge: str) -> Dispatch:
    """As much as is known of the request that a result from the mail is for."""
    return Dispatch(
        request_id=push.request_id,
        attempt=push.attempt,
        session_id=session.session_id,
        utterance_index=push.utterance_index,
        edge=edge,
        tenant_id=session.tenant_id,
        src_lang=session.init.src_lang,
        tgt_lang=session.init.tgt_lang,
        lang_a="",
        lang_b="",
        services=[],
        public=not session.tenant_id,
        audio_ms=0,
        deadline_ms=0,
        trace_id=session.trace_id,
    )


def in_turn(actor: Actor, found: list[MailResult], target: str, next_seq: int) -> list[tuple[MailResult, int | None]]:
    """The results that can be told at once, each with its last chunk: from the actor's next index on, without a gap.

    Edges may have cut the same audio in different places, and an index may be there more than once: of a stream only
    those count that begin where the one before ended.
    """
    turns: list[tuple[MailResult, int | None]] = []
    index = actor.order.next_index
    while True:
        for letter in found:
            if letter.push.utterance_index != index or f":{index}:{target}:" not in letter.push.request_id:
                continue
            seqs = actor.session.seqs_of(letter.push.request_id, index, target)
            if seqs is None or seqs[0] == next_seq:
                turns.append((letter, None if seqs is None else seqs[1]))
                next_seq = next_seq if seqs is None else seqs[1] + 1
                break
        else:
            return turns
        index += 1
