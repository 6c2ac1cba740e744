"""Changes of sessions: ownership, state of the client's connection, and mail (undelivered results)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lua.engine.batch import Answer
from lua.engine.runner import Call, Runner
from lua.store.types.sessions import Claim, Claimed, MailEntry, MailPage, Noted, Parked, SessionOwner
from mesh.cells import cell_of
from mesh.config import Config
from mesh.errors import StoreError
from mesh.frames import PAYLOAD_PARTS_MAX
from mesh.keys import Keys

#: Maximum entries per page of mail: each is two parts of the message that carries it.
PAGE_MAX: Final = PAYLOAD_PARTS_MAX // 2


class SessionStore:
    """The records of sessions and their mail. Methods for the owner are fenced by its epoch."""

    def __init__(self, runner: Runner, keys: Keys, config: Config) -> None:
        self._runner = runner
        self._keys = keys
        self._cells = config.mesh.cells
        session = config.session
        self._ttl = {"ttl_ms": session.idle_ttl_seconds * 1_000}
        self._mail = {"entries_max": session.mail_max, "bytes_max": session.mail_bytes_max, **self._ttl}
        self._page = {"entries_max": PAGE_MAX, "bytes_max": session.mail_page_bytes_max}

    # ownership
    async def claim(self, claim: Claim) -> Claimed:
        """Make an edge the owner: epoch 0 takes over, otherwise it must be the epoch in force."""
        args = {
            "ref": claim.ref,
            "edge": claim.edge,
            "epoch": claim.epoch,
            "resume": int(claim.resume),
            "token": claim.token,
            "tenant_id": claim.tenant_id,
            "src_lang": claim.src_lang,
            "tgt_lang": claim.tgt_lang,
            "trace_id": claim.trace_id,
            "preferred_node": claim.preferred_node,
            "resumable": int(claim.resumable),
            **self._ttl,
        }
        answer = await self._runner.call("session_claim", [self._key(claim.session_id)], args)
        verdict, owner, epoch, *record = answer
        return Claimed(verdict == "ok", owner, epoch, verdict, *record)

    async def note(
        self, session_id: str, edge: str, epoch: int, *, away: bool = False, room: str | None = None
    ) -> Noted:
        """Renew the record of a live session whose client is attached or `away`; `room` None leaves the stored room."""
        args = {
            "edge": edge,
            "epoch": epoch,
            "away": int(away),
            "moves": int(room is not None),
            "room": room or "",
            **self._ttl,
        }
        return Noted(*await self._runner.call("session_note", [self._key(session_id)], args))

    async def release(self, session_id: str, edge: str, epoch: int) -> bool:
        """Delete the session and its mail if owner and epoch match."""
        args = {"edge": edge, "epoch": epoch}
        [released] = await self._runner.call("session_release", self._all_keys(session_id), args)
        return bool(released)

    async def owners(self, session_ids: Sequence[str]) -> list[SessionOwner | StoreError]:
        """The owner of each session; an error in place of each that failed."""
        calls = [Call([self._key(session_id)], {}) for session_id in session_ids]
        return [_owner(answer) for answer in await self._runner.call_many("session_get", calls)]

    # mail
    async def park_mail(self, entries: Sequence[MailEntry]) -> list[Parked | StoreError]:
        """Append each to its session's mail until that is resumed; an error in place of each that failed."""
        calls = []
        for entry in entries:
            args = {"name": entry.key, "frame": entry.frame, "body": entry.body, **self._mail}
            calls.append(Call(self._all_keys(entry.session_id), args))
        answers = await self._runner.call_many("mail_park", calls)
        return [answer if isinstance(answer, StoreError) else Parked(*answer) for answer in answers]

    async def read_mail(self, session_id: str, edge: str, epoch: int, after: str = "") -> MailPage | None:
        """One page of mail after that entry; None unless owner and epoch match. ValueError if `after` is no entry."""
        if after:
            _split_entry_id(after)
        args = {"edge": edge, "epoch": epoch, "after": after, **self._page}
        session, mail, _ = self._all_keys(session_id)
        verdict, last, more, parts = await self._runner.call("mail_read", [session, mail], args)
        return MailPage(last, bool(more), parts) if verdict == "ok" else None

    async def trim_mail(self, session_id: str, edge: str, epoch: int, last: str) -> int | None:
        """Delete mail up to that entry; the number deleted, None unless owner and epoch match. ValueError as above."""
        last_ms, last_no = _split_entry_id(last)
        args = {"edge": edge, "epoch": epoch, "last_ms": last_ms, "last_no": last_no}
        [trimmed] = await self._runner.call("mail_trim", self._all_keys(session_id), args)
        return None if trimmed < 0 else trimmed

    # keys
    def _key(self, session_id: str) -> str:
        return self._keys.session(cell_of(session_id, self._cells), session_id)

    def _all_keys(self, session_id: str) -> list[str]:
        keys, cell = self._keys, cell_of(session_id, self._cells)
        return [keys.session(cell, session_id), keys.mail(cell, session_id), keys.mailed(cell, session_id)]


def _split_entry_id(entry_id: str) -> tuple[int, int]:
    """Timestamp and sequence number of a mail entry. ValueError if the id is invalid."""
    time_ms, _, number = entry_id.partition("-")
    if not (entry_id.isascii() and time_ms.isdecimal() and number.isdecimal()):
        raise ValueError(f"{entry_id!r} is no id of a mail entry")
    return int(time_ms), int(number)


def _owner(answer: Answer) -> SessionOwner | StoreError:
    if isinstance(answer, StoreError):
        return answer
    owner, epoch, away, resumable = answer
    return SessionOwner(owner, epoch, bool(away), bool(resumable))
