"""Opener: handles session_init: opens a new session or resumes one, and acknowledges it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.pairing import PairingClient, client_digest
from edge.sessions.actor import Actor, ClientSocket
from edge.sessions.core.events import NO_MAIL, Attached, FoundMail, Replaced, ResumeFailed, ResumeStarted
from edge.sessions.core.session import Session
from edge.sessions.mail_reader import read_mail
from edge.sessions.messages import trace_of
from edge.sessions.ownership import Token, claim, new_token, read_token
from edge.transport.websocket import internal_error
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import SessionClaimed, SessionNote
from mesh.ids import is_id
from mesh.log import get_logger
from mesh.messages.client import SessionInit
from mesh.random_ids import new_session_id
from mesh.words import ResumeOutcome

if TYPE_CHECKING:
    from edge.sessions.endpoint import Sessions

log = get_logger()


class Opener:
    """Replies to session_init."""

    def __init__(self, sessions: Sessions, config: Config, link: EdgeLink, metrics: EdgeMetrics) -> None:
        self._sessions = sessions
        self._config = config
        self._link = link
        self._metrics = metrics
        self._pairing = PairingClient(link)
        #: One for each token of a resume in progress.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def open(self, socket: ClientSocket, message: SessionInit) -> None:
        """Reply with session_init_ack or an error."""
        socket.uses_binary_messages = bool(message.binary_messages)
        try:
            if not (message.resume_token and await self._resume(socket, message)):
                await self._begin(socket, message)
        except PeerError as error:
            socket.send_error(error)
        except Exception:
            # Our own bug costs this one message, not the socket.
            log.exception("client_message_failed", type="SessionInit")
            socket.send_error(internal_error())

    # --- a new session ----------------------------------------------------------------------------

    async def _begin(self, socket: ClientSocket, message: SessionInit) -> None:
        session = self._session(new_session_id(), message)
        if message.pairing_code:
            session.preferred_node = await self._pairing.use(message.pairing_code, client_digest(socket.address))
        _replace(socket.actor, "the client opened another session")
        token = new_token(session.session_id)
        await claim(self._link, session, token, resume=False)
        # A resumable client counts its chunks from 0, so that even the first one may arrive late.
        actor = self._sessions.add(session, token.digest, next_seq=0 if message.resumable else None)
        failed = bool(message.resume_token)
        if failed:
            self._metrics.resumes_total.labels(ResumeOutcome.LOST).inc()
        attached = Attached(token.text, resumed=False, lost=True) if failed else Attached(token.text)
        self._sessions.attach(actor, socket, attached)

    def _session(self, session_id: str, message: SessionInit) -> Session:
        """A session as its client describes it; PeerError if that cannot be."""
        if message.tenant_id and not is_id(message.tenant_id):
            raise PeerError(ErrorCode.INVALID_ID, "`tenant_id` is not an id")
        seen_max = self._config.edge.utterances_remembered_max
        return Session(session_id, message, trace_of(message.trace_id), seen_max, self._config.modules.table)

    # --- resume -------------------------------------------------------------------------------------

    async def _resume(self, socket: ClientSocket, message: SessionInit) -> bool:
        """Resume a session; False if it is over."""
        token = read_token(message.resume_token or "")
        if token is None:
            return False
        # Two connections with one token resume one after the other: the later one supersedes the earlier.
        async with self._locks.setdefault(token.digest, asyncio.Lock()):
            return await self._resume_alone(socket, message, token)

    async def _resume_alone(self, socket: ClientSocket, message: SessionInit, token: Token) -> bool:
        here = self._sessions.actors.get(token.session_id)
        if here is not None and not here.state.may_resume(token.digest):
            return False
        session = here.state.session if here is not None else self._session(token.session_id, message)
        claimed = await claim(self._link, session, token, resume=True)
        if claimed is None and here is not None and not here.state.is_ended:
            # The mesh lost its record, this edge did not.
            claimed = await claim(self._link, session, token, resume=False)
        if claimed is None or (here is not None and not here.state.may_resume(token.digest)):
            return False
        if socket.actor is not here:
            _replace(socket.actor, "the client resumed another session")
        try:
            if here is not None and not here.state.is_ended:
                await self._reattach(here, socket, token, message, claimed)
            else:
                await self._take_over(socket, token, message, claimed)
        except PeerError as error:
            if error.code is not ErrorCode.SESSION_SUPERSEDED:
                raise
            self._sessions.close_superseded(socket)
        return True

    async def _reattach(
        self, actor: Actor, socket: ClientSocket, token: Token, message: SessionInit, claimed: SessionClaimed
    ) -> None:
        """The session stayed at this edge."""
        self._metrics.resumes_total.labels(ResumeOutcome.HERE).inc()
        actor.handle(ResumeStarted())
        try:
            mail = await self._mail_of(actor.state.session, claimed)
        except Exception:
            actor.handle(ResumeFailed())
            raise
        if actor.state.is_ended:
            raise PeerError(ErrorCode.SESSION_SUPERSEDED, "the session was taken over meanwhile")
        last_index = _position(message.last_index)
        self._sessions.attach(actor, socket, Attached(token.text, True, claimed.lost > 0, last_index, mail))

    async def _take_over(
        self, socket: ClientSocket, token: Token, message: SessionInit, claimed: SessionClaimed
    ) -> None:
        """The session was at another edge: it continues here, with its mail."""
        self._metrics.resumes_total.labels(ResumeOutcome.ELSEWHERE).inc()
        session = self._session(token.session_id, message)
        session.epoch = claimed.epoch
        session.trace_id = claimed.trace_id or session.trace_id
        session.tenant_id = claimed.tenant_id
        session.preferred_node = claimed.preferred_node
        self._sessions.requests.returned(session.session_id)
        try:
            mail = await self._mail_of(session, claimed)
        except Exception:
            # The client is not attached yet: results go to the mail until it retries.
            detached = SessionNote(session.session_id, self._link.identity, session.epoch, away=True)
            self._link.to_session_cell(session.session_id, detached)
            raise
        if self._sessions.taken_epoch(session.session_id) > session.epoch:
            raise PeerError(ErrorCode.SESSION_SUPERSEDED, "the session was taken over meanwhile")
        last_index = _position(message.last_index)
        actor = self._sessions.add(
            session,
            token.digest,
            next_index=last_index + 1,
            next_seq=_position(message.last_seq) + 1,
            room=claimed.room,
            resumed=True,
        )
        self._sessions.attach(actor, socket, Attached(token.text, True, claimed.lost > 0, last_index, mail))

    async def _mail_of(self, session: Session, claimed: SessionClaimed) -> FoundMail:
        return await read_mail(self._link, session) if claimed.mail else NO_MAIL


def _replace(before: Actor | None, reason: str) -> None:
    """The connection had another session: it is over."""
    if before is not None and not before.state.is_ended:
        before.handle(Replaced(reason))


def _position(reported: int | None) -> int:
    """The last index or chunk that a client reports; -1 = before the first one."""
    return -1 if reported is None else max(reported, -1)
