"""Mail reader: fetches the mail of a session that is resumed here, page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edge.link.core.rpc import MailPage
from edge.link.link import EdgeLink
from edge.requests.runner import read_result
from edge.sessions.core.events import FoundMail, MailedResult
from edge.sessions.core.session import Session
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Failed, MailAsk, Post, Push, decode_frame
from mesh.log import get_logger

#: Bound of pages per resume: more than a full mail has.
MAIL_PAGES_MAX: Final = 64

log = get_logger()


async def read_mail(link: EdgeLink, session: Session) -> FoundMail:
    """The session's mail, oldest first. PeerError if it cannot be read, or another edge owns the session."""
    last = ""
    results: list[MailedResult] = []
    posts: list[tuple[Post, bytes]] = []
    for _ in range(MAIL_PAGES_MAX):
        page = await link.answer_to(_mail_ask(link, session, last), session.session_id)
        if isinstance(page, Failed) and page.code == ErrorCode.INVALID_SESSION.name:
            raise PeerError(ErrorCode.SESSION_SUPERSEDED, "the session was taken over meanwhile")
        if not isinstance(page, MailPage):
            log.warning("mail_unread", session_id=session.session_id, after=last, answer=str(page))
            raise PeerError(ErrorCode.SCHEDULER_DEPENDENCY_DOWN, "the mail of the session could not be read")
        for text, body in zip(page.parts[::2], page.parts[1::2], strict=True):
            frame = decode_frame(text)
            if isinstance(frame, Post):
                posts.append((frame, body))
            elif isinstance(frame, Push):
                results.append(MailedResult(frame, read_result(frame, (body,))))
        last = page.mail.last or last
        if not page.mail.more:
            break
    return FoundMail(last, tuple(results), tuple(posts))


def _mail_ask(link: EdgeLink, session: Session, after: str) -> Callable[[str], MailAsk]:
    return lambda ref: MailAsk(ref, session.session_id, link.identity, session.epoch, after)
