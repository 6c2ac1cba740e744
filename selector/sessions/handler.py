"""Handlers for sessions: ownership, mail and posts.

Call the store, decide in the core, send. On a store error nothing is done: the sender retries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from lua.store.types.sessions import MailEntry, SessionOwner
from mesh.cells import cell_of
from mesh.errors import StoreError
from mesh.frames import (
    MailAsk,
    MailTrim,
    Post,
    SessionClaim,
    SessionNote,
    SessionRelease,
    SessionReleased,
    SessionTaken,
)
from mesh.link.link import Received, bytes_of
from mesh.log import get_logger
from mesh.words import ParkedKind, PostVerdict, TakenCause
from selector.context import SelectorContext
from selector.core.reply import Reply, store_down
from selector.metrics import FORWARDED
from selector.sessions.core import session_routing

log = get_logger()


class Outgoing(NamedTuple):
    """A post to deliver. `message`: the received one; None for this selector's own."""

    frame: Post
    body: bytes
    message: Received | None = None


class SessionHandler:
    """Handlers for the frames of sessions."""

    def __init__(self, context: SelectorContext, is_live: Callable[[str], bool]) -> None:
        """`is_live`: whether an edge is."""
        self._store = context.store
        self._cells = context.config.mesh.cells
        self._metrics = context.metrics
        self._guard = context.guard
        self._send = context.send
        self._is_live = is_live

    # --- ownership --------------------------------------------------------------------------------------------

    async def on_session_claim(self, frame: SessionClaim, message: Received) -> None:
        """An edge takes ownership of a session; the previous owner is notified."""
        try:
            claimed = await self._store.sessions.claim(session_routing.claim_of(frame))
        except StoreError:
            self._reply(message.broker, frame.session_id, store_down(frame.ref, frame.edge))
            raise
        self._metrics.claims_total.labels(claimed.verdict).inc()
        for answer in session_routing.on_claimed(frame, claimed):
            if isinstance(answer.frame, SessionTaken):
                self._metrics.session_taken_total.labels(TakenCause.CLAIMED).inc()
                log.info("session_taken", session_id=frame.session_id, edge=frame.edge, before=answer.to)
            self._reply(message.broker, frame.session_id, answer)

    async def on_session_note(self, frame: SessionNote, message: Received) -> None:
        """The owner refreshes a session's record: client attached or detached, and its room."""
        noted = await self._store.sessions.note(
            frame.session_id, frame.edge, frame.epoch, away=frame.away, room=frame.room
        )
        answer = session_routing.on_noted(frame, noted)
        if answer is not None:
            self._metrics.session_taken_total.labels(
                TakenCause.GONE if noted.verdict == "gone" else TakenCause.NOTED
            ).inc()
            self._reply(message.broker, frame.session_id, answer)

    async def on_session_release(self, frame: SessionRelease, message: Received) -> None:
        """A session is closed. Acknowledged only once the store released it; the edge retries until then."""
        await self._store.sessions.release(frame.session_id, frame.edge, frame.epoch)
        if frame.ref:
            answer = Reply(frame.edge, SessionReleased(frame.ref, frame.session_id))
            self._reply(message.broker, frame.session_id, answer)

    # --- mail -------------------------------------------------------------------------------------------------

    async def on_mail_ask(self, frame: MailAsk, message: Received) -> None:
        """An edge reads the mail of its session."""
        try:
            page = await self._store.sessions.read_mail(frame.session_id, frame.edge, frame.epoch, frame.after)
        except StoreError:
            self._reply(message.broker, frame.session_id, store_down(frame.ref, frame.edge))
            raise
        answer = session_routing.on_mail(frame, page)
        self._reply(message.broker, frame.session_id, answer, *(page.parts if page else ()))

    async def on_mail_trim(self, frame: MailTrim, message: Received) -> None:
        """The client has received its mail up to an entry."""
        await self._store.sessions.trim_mail(frame.session_id, frame.edge, frame.epoch, frame.last)

    # --- posts ------------------------------------------------------------------------------------------------

    async def on_posts(self, messages: list[Received]) -> None:
        """Messages for sessions, from other edges."""
        posts = []
        for message in messages:
            assert isinstance(message.frame, Post)
            posts.append(Outgoing(message.frame, bytes_of(message.payload[0]) if message.payload else b"", message))
        await self._deliver_all(posts)

    async def post(self, posts: Sequence[tuple[Post, bytes]]) -> None:
        """Messages for sessions, from this selector itself. A store error is logged, and not retried."""
        await self._deliver_all([Outgoing(frame, body) for frame, body in posts])

    async def _deliver_all(self, posts: Sequence[Outgoing]) -> None:
        wanted = list(dict.fromkeys(post.frame.session_id for post in posts))
        owners = dict(zip(wanted, await self._store.sessions.owners(wanted), strict=True))
        parked: list[tuple[Outgoing, MailEntry]] = []
        for post in posts:
            session = owners[post.frame.session_id]
            if isinstance(session, StoreError):
                self._note(post, session)
                continue
            entry = self._deliver(post, session)
            if entry is not None:
                parked.append((post, entry))
        if parked:
            await self._park(parked)

    def _deliver(self, post: Outgoing, session: SessionOwner) -> MailEntry | None:
        """Forward it, or reply with the verdict; returns the entry to park, if any."""
        is_live = bool(session.owner) and self._is_live(session.owner)
        park, forward, verdict = session_routing.on_post(post.frame, post.body, session, is_owner_live=is_live)
        if forward is not None:
            self._reply(_broker(post), post.frame.session_id, forward, post.body)
        if park is None:
            self._metrics.posts_total.labels(verdict or FORWARDED).inc()
            self._acknowledge(post, verdict)
        return park

    async def _park(self, entries: Sequence[tuple[Outgoing, MailEntry]]) -> None:
        answers = await self._store.sessions.park_mail([entry for _, entry in entries])
        for (post, _), parked in zip(entries, answers, strict=True):
            if isinstance(parked, StoreError):
                self._note(post, parked)
                continue
            verdict = session_routing.verdict_of(parked)
            self._metrics.posts_total.labels(verdict).inc()
            self._metrics.parked_total.labels(ParkedKind.POST).inc(parked.verdict == "parked")
            self._metrics.mail_dropped_total.inc(parked.dropped)
            self._acknowledge(post, verdict)

    # --- inside -----------------------------------------------------------------------------------------------

    def _acknowledge(self, post: Outgoing, verdict: PostVerdict | None) -> None:
        answer = session_routing.posted(post.frame, verdict)
        if answer is not None:
            self._reply(_broker(post), post.frame.session_id, answer)

    def _note(self, post: Outgoing, error: StoreError) -> None:
        if post.message is not None:
            self._guard.note(post.message, error)
            return
        self._metrics.store_errors_total.labels(Post.__name__).inc()
        log.warning("post_failed", session_id=post.frame.session_id, kind=post.frame.kind, error=str(error))

    def _reply(self, broker: str, session_id: str, answer: Reply, *payload: bytes) -> None:
        self._send(answer.to, cell_of(session_id, self._cells), answer.frame, *payload, prefer=broker)


def _broker(post: Outgoing) -> str:
    """A reply goes through the broker that delivered the message."""
    return post.message.broker if post.message is not None else ""
