"""Requests and results of the scripts for sessions and their mail. Plain values, no Redis: cores may import them."""

from __future__ import annotations

from typing import Literal, NamedTuple

#: Also the label values of a metric.
ClaimVerdict = Literal["ok", "held", "gone", "wrong_token"]


class Claim(NamedTuple):
    """An edge claims the ownership of a session. For the fields see mesh.frames.SessionClaim."""

    session_id: str
    edge: str
    epoch: int
    tenant_id: str
    src_lang: str
    tgt_lang: str
    #: Deduplicates retries of the claim; "": none.
    ref: str = ""
    token: str = ""
    resume: bool = False
    trace_id: str = ""
    preferred_node: str = ""
    resumable: bool = False


class Claimed(NamedTuple):
    """Result of a Claim: whether the caller is the owner, the owner, and fields of the record."""

    ok: bool
    owner: str
    epoch: int
    #: "held": another epoch is in force. "gone", "wrong_token": the session cannot be resumed.
    verdict: ClaimVerdict = "ok"
    #: The edge that lost it by this claim; "" if none did.
    before: str = ""
    tenant_id: str = ""
    trace_id: str = ""
    preferred_node: str = ""
    room: str = ""
    #: Entries in the mail, and entries evicted from it since the last trim.
    mail: int = 0
    lost: int = 0


class Noted(NamedTuple):
    """Reply to the renewal of a session. "taken": the edge is not the owner, or has another epoch."""

    verdict: Literal["ok", "taken", "gone"]
    owner: str
    epoch: int


class SessionOwner(NamedTuple):
    """Owner of a session. Empty owner: there is no record."""

    owner: str
    epoch: int = 0
    #: Its client is detached.
    away: bool = False
    #: Undelivered results go to its mail.
    resumable: bool = False


class MailEntry(NamedTuple):
    """An entry for the mail of a session; deduplicated by `key`."""

    session_id: str
    key: str
    frame: bytes
    body: bytes


class Parked(NamedTuple):
    """Result of parking a MailEntry. "same": duplicate. "no_session": no such session, or not resumable."""

    verdict: Literal["parked", "same", "no_session"]
    #: Older entries evicted for it.
    dropped: int = 0


class MailPage(NamedTuple):
    """One page of mail, oldest first. `last`: id of its last entry, "" if it is empty."""

    last: str
    more: bool
    #: Per entry its frame and its payload.
    parts: list[bytes]
