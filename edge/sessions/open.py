"""Opening: session_init, from the client's wish to the acknowledgement. Opens a new session or resumes one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.pairing import PairingClient, client_digest
from edge.sessions.actor import Actor
from edge.sessions.client import ClientSocket
from edge.sessions.core.session import Session, SessionLimits
from edge.sessions.messages import trace_of
from edge.sessions.ownership import (
    FoundMail,
    MailResult,
    Token,
    claim,
    dispatch_of,
    in_turn,
    new_token,
    read_mail,
    read_token,
)
from edge.transport.websocket import internal_error
from mesh.clock import now_ms
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Post, SessionClaimed, SessionNote
from mesh.ids import is_id
from mesh.log import get_logger
from mesh.messages.client import PROTOCOL_VERSION, SessionInit, SessionInitAck
from mesh.random_ids import new_session_id
from mesh.words import ResumeOutcome

if TYPE_CHECKING:
    from edge.sessions.endpoint import SessionEndpoint

#: Pages of mail that are read at a resume: more than a full mail has.
MAIL_PAGES_MAX: Final = 64

log = get_logger()


class SessionOpener:
    """Answers session_init."""

    def __init__(
        self, sessions: SessionEndpoint, config: Config, link: EdgeLink, metrics: EdgeMetrics, limits: SessionLimits
    ) -> None:
        self._sessions = sessions
        self._config = config
        self._link = link
        self._metrics = metrics
        self._limits = limits
        self._pairing = PairingClient(link)
        #: One for each token that somebody is resuming with.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def open(self, socket: ClientSocket, message: SessionInit) -> None:
        """Answer session_init with session_init_ack or an error."""
        try:
            if not (message.resume_token and await self._resume(socket, message)):
                await self._begin(socket, message)
        except PeerError as error:
            socket.tell_error(error)
        except Exception:
            # The gateway from clients: our own bug must cost this one message, not the socket.
            log.exception("client_message_failed", type="SessionInit")
            socket.tell_error(internal_error())

    # --- a new session ----------------------------------------------------------------------------

    async def _begin(self, socket: ClientSocket, message: SessionInit) -> None:
        session = self._session(new_session_id(), message)
        if message.pairing_code:
            session.preferred_node = await self._pairing.use(message.pairing_code, client_digest(socket.address))
        before = socket.actor
        if before is not None and not before.ended:
            self._sessions.end(before, "the client opened another session")
        token = new_token(session.session_id)
        await claim(self._link, session, token, resume=False)
        # Whoever resumes counts its chunks from 0, so that the first one may come late, too.
        actor = Actor(session, self._sessions.tools, token.digest, next_seq=0 if message.resumable else None)
        self._sessions.opened(actor, resumed=False)
        self._sessions.attach(actor, socket)
        failed = bool(message.resume_token)
        if failed:
            self._metrics.resumes_total.labels(ResumeOutcome.LOST).inc()
        self._acknowledge(actor, socket, token, resumed=False if failed else None, lost=True if failed else None)

    def _session(self, session_id: str, message: SessionInit) -> Session:
        """A session as its client describes it; PeerError if that cannot be."""
        if message.tenant_id and not is_id(message.tenant_id):
            raise PeerError(ErrorCode.INVALID_ID, "`tenant_id` is not an id")
        return Session(session_id, message, trace_of(message.trace_id), self._limits, self._config.modules.table)

    # --- a session that was there -------------------------------------------------------------------

    async def _resume(self, socket: ClientSocket, message: SessionInit) -> bool:
        """False if there is no such session any more."""
        token = read_token(message.resume_token or "")
        if token is None:
            return False
        # Of two connections with one token the later gets the session from the earlier, not both at once.
        async with self._locks.setdefault(token.digest, asyncio.Lock()):
            return await self._resume_alone(socket, message, token)

    async def _resume_alone(self, socket: ClientSocket, message: SessionInit, token: Token) -> bool:
        here = self._sessions.actors.get(token.session_id)
        if here is not None and (here.token != token.digest or here.life.closing_until_ms):
            return False
        session = here.session if here is not None else self._session(token.session_id, message)
        claimed = await claim(self._link, session, token, resume=True)
        if claimed is None and here is not None and not here.ended:
            # The mesh forgot it, we did not.
            claimed = await claim(self._link, session, token, resume=False)
        if claimed is None or (here is not None and here.life.closing_until_ms):
            return False
        before = socket.actor
        if before is not None and not before.ended and before is not here:
            self._sessions.end(before, "the client resumed another session")
        try:
            if here is not None and not here.ended:
                await self._go_on(here, socket, token, message, claimed)
            else:
                await self._take_over(socket, token, message, claimed)
        except PeerError as error:
            if error.code is not ErrorCode.SESSION_SUPERSEDED:
                raise
            self._sessions.cut_off(socket)
        return True

    async def _go_on(
        self, actor: Actor, socket: ClientSocket, token: Token, message: SessionInit, claimed: SessionClaimed
    ) -> None:
        """The session is here still, with all that it knew; what came while its client was away may be in the mail."""
        self._metrics.resumes_total.labels(ResumeOutcome.HERE).inc()
        actor.life.attached(now_ms())  # its time does not run out while its mail is read
        try:
            found = await self._mail_of(actor.session, claimed)
        except Exception:
            if actor.socket is None and not actor.ended:
                actor.detach()
            raise
        if actor.ended:
            raise PeerError(ErrorCode.SESSION_SUPERSEDED, "the session was taken over meanwhile")
        old, last_index = actor.socket, _place(message.last_index)
        if old is not None and old is not socket:
            self._sessions.cut_off(old)
        actor.release(actor.acks.ack(last_index))
        self._sessions.attach(actor, socket)
        self._acknowledge(actor, socket, token, resumed=True, lost=claimed.lost > 0)
        for data in actor.acks.after(last_index):
            socket.tell_encoded("translation_result", data)
        self._sessions.posts.tell_again(actor)
        actor.mail_read = found.last
        for letter in found.results:
            self._sessions.requests.take(letter.push, letter.result)
        for post, body in found.posts:
            self._sessions.posts.take_mail(actor, post, body)
        self._sessions.rooms.tell_again(actor)
        actor.pump()

    async def _take_over(
        self, socket: ClientSocket, token: Token, message: SessionInit, claimed: SessionClaimed
    ) -> None:
        """The session was elsewhere: go on from what the client has, and from what waited in the mail."""
        self._metrics.resumes_total.labels(ResumeOutcome.ELSEWHERE).inc()
        session = self._session(token.session_id, message)
        session.epoch = claimed.epoch
        session.trace_id = claimed.trace_id or session.trace_id
        session.tenant_id = claimed.tenant_id
        session.preferred_node = claimed.preferred_node
        self._sessions.requests.returned(session.session_id)
        try:
            found = await self._mail_of(session, claimed)
        except Exception:
            # Nobody is here to take anything yet: it shall wait in the mail until the client tries again.
            away = SessionNote(session.session_id, self._link.identity, session.epoch, away=True)
            self._link.to_session_cell(session.session_id, away)
            raise
        if self._sessions.taken_epoch(session.session_id) > session.epoch:
            raise PeerError(ErrorCode.SESSION_SUPERSEDED, "the session was taken over meanwhile")
        next_index, next_seq = _place(message.last_index) + 1, _place(message.last_seq) + 1
        actor = Actor(session, self._sessions.tools, token.digest, next_index=next_index, next_seq=next_seq)
        actor.room, actor.mail_read = claimed.room, found.last
        self._sessions.opened(actor, resumed=True)
        self._sessions.attach(actor, socket)
        results = [letter for letter in found.results if letter.push.utterance_index >= next_index and letter.is_end]
        self._tell_mail(actor, socket, token, results, found.posts, lost=claimed.lost > 0)

    async def _mail_of(self, session: Session, claimed: SessionClaimed) -> FoundMail:
        return await read_mail(self._link, session, MAIL_PAGES_MAX) if claimed.mail else FoundMail("", [], [])

    def _tell_mail(
        self,
        actor: Actor,
        socket: ClientSocket,
        token: Token,
        results: list[MailResult],
        posts: list[tuple[Post, bytes]],
        *,
        lost: bool,
    ) -> None:
        session, target = actor.session, actor.session.init.tgt_lang.strip().lower()
        # In a room an index is several results for several members: each is handed out when its audio comes again.
        turns = [] if actor.room else in_turn(actor, results, target, actor.next_seq or 0)
        last_seqs = [last_seq for _, last_seq in turns if last_seq is not None]
        actor.go_on_at(actor.order.next_index + len(turns), last_seqs[-1] + 1 if last_seqs else None)
        actor.adopted = {letter.push.request_id: (letter.push, letter.result) for letter in results}
        self._acknowledge(actor, socket, token, resumed=True, lost=lost)
        for (push, result), last_seq in turns:
            actor.adopted.pop(push.request_id, None)
            self._sessions.speech.adopt(actor, dispatch_of(push, session, self._link.identity), push, result, last_seq)
        for post, body in posts:
            self._sessions.posts.take_mail(actor, post, body)
        self._sessions.rooms.tell_again(actor)
        actor.pump()

    def _acknowledge(
        self, actor: Actor, socket: ClientSocket, token: Token, *, resumed: bool | None, lost: bool | None
    ) -> None:
        session = actor.session
        socket.tell(
            SessionInitAck(
                session_id=session.session_id,
                assigned_node_id=session.preferred_node or None,
                message="session resumed" if resumed else "session created",
                trace_id=session.trace_id,
                protocol_version=PROTOCOL_VERSION,
                use_binary_frame=bool(session.init.binary_frames),
                negotiated_codec=session.audio_format,
                negotiated_audio_format=session.audio_format,
                negotiated_sample_rate=session.sample_rate,
                negotiated_channel_count=1,
                resume_token=token.text,
                resumed=resumed,
                lost=lost,
                next_utterance_index=actor.next_index if resumed else None,
                resend_from_seq=actor.next_seq if resumed else None,
                room_code=actor.room or None if resumed else None,
            )
        )


def _place(said: int | None) -> int:
    """What a client says of an index or a chunk where it stands: -1 = before the first one."""
    return -1 if said is None else max(said, -1)
