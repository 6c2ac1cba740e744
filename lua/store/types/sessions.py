"""Requests and results of the scripts for sessions and their mail. Plain values, no Redis: cores may import them."""

from __future__ import annotations

from typing import Literal, NamedTuple

#: Also the label values of a metric.
ClaimVerdict = Literal["ok", "held", "gone", "wrong_token"]


class Claim(NamedTuple):
    """An edge wants to own a session. What the fields mean: mesh.frames.SessionClaim."""

    session_id: str
    edge: str
    epoch: int
    tenant_id: str
    src_lang: str
    tgt_lang: str
    #: A repeat is recognised by it; "": it is not.
    ref: str = ""
    token: str = ""
    resume: bool = False
    trace_id: str = ""
    preferred_node: str = ""
    resumable: bool = False


class Claimed(NamedTuple):
    """Who owns the session now, and whether that is the caller; then, what the record holds."""

    ok: bool
    owner: str
    epoch: int
    #: "held": another epoch is in force. "gone", "wrong_token": it cannot be resumed.
    verdict: ClaimVerdict = "ok"
    #: The edge that lost it by this claim; "" if none did.
    before: str = ""
    tenant_id: str = ""
    trace_id: str = ""
    preferred_node: str = ""
    room: str = ""
    #: Entries that wait in the mail, and those that were dropped from it since the last trim.
    mail: int = 0
    lost: int = 0


class Noted(NamedTuple):
    """Answer to an edge that says that its session lives. "taken": it is not the owner, or has another epoch."""

    verdict: Literal["ok", "taken", "gone"]
    owner: str
    epoch: int


class SessionOwner(NamedTuple):
    """Where a session is. Without an owner there is no record of it."""

    owner: str
    epoch: int = 0
    #: Its client's connection is lost.
    away: bool = False
    #: What it misses may wait in its mail.
    resumable: bool = False


class MailEntry(NamedTuple):
    """Something for the mail of a session; `key` names it, so that a repeat adds nothing."""

    session_id: str
    key: str
    frame: bytes
    body: bytes


class Parked(NamedTuple):
    """What became of a Letter. "same": it waits already. "no_session": there is none that anybody will resume."""

    verdict: Literal["parked", "same", "no_session"]
    #: Older entries that made room for it.
    dropped: int = 0


class MailPage(NamedTuple):
    """Mail, oldest first. `last`: id of the page's last entry, "" if there is none."""

    last: str
    more: bool
    #: Per entry its frame and its payload.
    parts: list[bytes]
