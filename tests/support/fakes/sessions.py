"""The part of a fake selector that keeps the records of sessions and their mail, in dicts."""

from __future__ import annotations

from dataclasses import dataclass, field

from mesh.errors import ErrorCode
from mesh.frames import (
    Failed,
    Frame,
    Mail,
    MailAsk,
    MailTrim,
    Post,
    Posted,
    SessionClaim,
    SessionClaimed,
    SessionNote,
    SessionRelease,
    SessionReleased,
    SessionTaken,
    encode,
)
from mesh.link.link import Link, Received


@dataclass
class Record:
    """What the mesh knows of a session."""

    owner: str
    epoch: int
    token: str
    trace_id: str
    tenant_id: str
    resumable: bool
    away: bool = False
    room: str = ""
    mail: dict[str, tuple[Frame, bytes]] = field(default_factory=dict)
    #: Claims that were answered: edge and ref -> the epoch they got.
    claims: dict[tuple[str, str], int] = field(default_factory=dict)


class FakeSessions:
    """Handlers of FakeSelector."""

    link: Link
    _epoch: int

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        #: Session -> the edge that owns it.
        self.sessions: dict[str, str] = {}
        #: Entries that one page of mail has.
        self.page_max = 100

    def _on_sessionclaim(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, SessionClaim)
        record = self.records.get(frame.session_id)
        if frame.resume and (record is None or record.token != frame.token):
            self.link.send(frame.edge, 0, Failed(frame.ref, ErrorCode.INVALID_SESSION.name, "nothing to resume"))
            return
        if record is None:
            record = Record(frame.edge, 0, frame.token, frame.trace_id, frame.tenant_id, frame.resumable)
            self.records[frame.session_id] = record
        before, again = record.owner, record.claims.get((frame.edge, frame.ref))
        if again is not None and again != record.epoch:
            return  # a repeat of a claim that another one followed
        if again is None:
            self._epoch += 1
            record.claims[frame.edge, frame.ref] = self._epoch
            record.owner, record.epoch, record.away = frame.edge, self._epoch, False
            self.sessions[frame.session_id] = frame.edge
        claimed = SessionClaimed(
            frame.ref,
            frame.session_id,
            record.epoch,
            trace_id=record.trace_id,
            tenant_id=record.tenant_id,
            room=record.room,
            mail=len(record.mail),
        )
        self.link.send(frame.edge, 0, claimed)
        if before != frame.edge:
            self.link.send(before, 0, SessionTaken(frame.session_id, record.epoch, frame.edge))

    def _on_sessionnote(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, SessionNote)
        record = self.records.get(frame.session_id)
        if record is None:
            self.link.send(frame.edge, 0, SessionTaken(frame.session_id, 0, ""))
        elif (record.owner, record.epoch) != (frame.edge, frame.epoch):
            self.link.send(frame.edge, 0, SessionTaken(frame.session_id, record.epoch, record.owner))
        else:
            record.away = frame.away
            record.room = record.room if frame.room is None else frame.room

    def _on_sessionrelease(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, SessionRelease)
        record = self.records.get(frame.session_id)
        if record is not None and (record.owner, record.epoch) == (frame.edge, frame.epoch):
            del self.records[frame.session_id]
            self.sessions.pop(frame.session_id, None)
        self.link.send(frame.edge, 0, SessionReleased(frame.ref, frame.session_id))

    # --- mail and posts ---------------------------------------------------------------------------

    def park(self, session_id: str, key: str, frame: Frame, body: bytes) -> None:
        """Put something into a session's mail."""
        self.records[session_id].mail.setdefault(key, (frame, body))

    def _on_mailask(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, MailAsk)
        record = self.records.get(frame.session_id)
        if record is None or (record.owner, record.epoch) != (frame.edge, frame.epoch):
            self.link.send(frame.edge, 0, Failed(frame.ref, ErrorCode.INVALID_SESSION.name, "not the owner"))
            return
        keys = list(record.mail)
        first = keys.index(frame.after) + 1 if frame.after else 0
        page = keys[first : first + self.page_max]
        parts = [part for key in page for part in (encode(record.mail[key][0]), record.mail[key][1])]
        more = first + len(page) < len(keys)
        self.link.send(frame.edge, 0, Mail(frame.ref, frame.session_id, page[-1] if page else "", more), *parts)

    def _on_mailtrim(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, MailTrim)
        record = self.records.get(frame.session_id)
        if record is not None and (record.owner, record.epoch) == (frame.edge, frame.epoch):
            for key in list(record.mail):
                del record.mail[key]
                if key == frame.last:
                    break

    def _on_post(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, Post)
        record = self.records.get(frame.session_id)
        if record is not None and not record.away:
            self.link.send(record.owner, 0, frame, *message.payload)
            return
        verdict = "no_session" if record is None else "away"
        if record is not None and record.resumable and frame.park:
            self.park(frame.session_id, frame.key, frame, message.payload[0])
            verdict = "parked"
        if frame.edge:
            self.link.send(frame.edge, 0, Posted(frame.ref, frame.session_id, verdict))
