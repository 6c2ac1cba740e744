"""Frames about sessions: ownership, mail, posts between sessions, rooms and pairing.

Frames about a session go by the session's cell, frames about a room by the cell of its code.
"""

from __future__ import annotations

import msgspec

from mesh.frames.base import Frame, Lane, Role

# --- ownership --------------------------------------------------------------------------------------


class SessionClaim(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector: the edge claims the session. Reply: SessionClaimed | Failed.

    epoch 0 takes over any epoch; otherwise it must be the current one. With `resume` the record must exist, with that
    token; without it the claim creates a record. The previous owner gets SessionTaken.
    """

    ref: str
    session_id: str
    edge: str
    epoch: int
    tenant_id: str
    src_lang: str
    tgt_lang: str
    #: Digest of the resume token: stored when the record is created, compared when the session is resumed.
    token: str = ""
    resume: bool = False
    trace_id: str = ""
    #: The node that the session is paired with.
    preferred_node: str = ""
    #: The client can resume: while it is detached its results go to the mail.
    resumable: bool = False


class SessionClaimed(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge: reply. The fields after the epoch are those of the record, for a resumed session."""

    ref: str
    session_id: str
    epoch: int
    trace_id: str = ""
    preferred_node: str = ""
    tenant_id: str = ""
    #: Code of the session's room; "" = none.
    room: str = ""
    #: Entries in its mail, and entries that were evicted from it.
    mail: int = 0
    lost: int = 0


class SessionRelease(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge -> selector: the session is closed. Ignored unless owner and epoch match. Reply: SessionReleased."""

    session_id: str
    edge: str
    epoch: int
    #: "" = no reply is wanted.
    ref: str = ""


class SessionReleased(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge: acknowledges SessionRelease (idempotent): the sender does not own the session."""

    ref: str
    session_id: str


class SessionNote(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge -> selector: renews the session's record. Reply: SessionTaken if the edge is not its owner, else none."""

    session_id: str
    edge: str
    epoch: int
    #: The client is detached: what cannot be delivered goes to the mail.
    away: bool = False
    #: Code of its room; None = unchanged.
    room: str | None = None


class SessionTaken(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge: another edge owns the session, with that epoch. edge "": there is no record; claim it anew."""

    session_id: str
    epoch: int
    edge: str


# --- mail: results and posts for a detached session --------------------------------------------------


class MailAsk(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector: read the session's mail after that entry. Reply: Mail | Failed."""

    ref: str
    session_id: str
    edge: str
    epoch: int
    after: str = ""


class Mail(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge: a page of mail, oldest first. Payload: two parts per entry, its frame (Push or Post) and body.

    `last` is the id of the page's last entry, "" if it is empty; `more`: another page follows it.
    """

    ref: str
    session_id: str
    last: str
    more: bool


class MailTrim(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge -> selector: delete the mail up to that entry; the client has it. Ignored unless owner and epoch match."""

    session_id: str
    edge: str
    epoch: int
    last: str


# --- posts: a message for a session at any edge -------------------------------------------------------


class Post(Frame, frozen=True, to=Role.EDGE | Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector -> the edge that owns the session. Payload: the JSON text for its client. Reply: Posted.

    Retried with the same `key` until replied to; the receiver deduplicates by it. A selector that expires a room sends
    posts too and wants no reply: its `edge` is "".
    """

    ref: str
    edge: str
    session_id: str
    kind: str  # mesh.words.PostKind
    key: str
    #: True: goes to the mail while the session is detached. False: is dropped then.
    park: bool = False
    room_code: str = ""


class Posted(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """To the sender of a Post: its outcome."""

    ref: str
    session_id: str
    verdict: str  # mesh.words.PostVerdict


# --- rooms --------------------------------------------------------------------------------------------


class RoomMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of a room. `voices`: session id -> whether it receives that member's own voice; missing = yes."""

    session_id: str
    display_name: str
    preferred_lang: str
    joined_ms: int
    voices: dict[str, bool] = {}


class RoomRequest(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector, by the room's cell (create: the session's). Reply: RoomState | Failed.

    Every action is idempotent.
    """

    ref: str
    edge: str
    session_id: str
    action: str  # mesh.words.RoomAction
    room_code: str = ""
    display_name: str = ""
    preferred_lang: str = ""
    #: prefer: the member whose voice is meant, and whether it is wanted.
    target: str = ""
    wanted: bool = True


class RoomState(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge: the room after that request, members in the order of joining."""

    ref: str
    room_code: str
    room_id: str
    members: list[RoomMember]
    #: Grows with each change of the room.
    version: int = 0


class RoomSignal(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector, by the room's cell: forward this to another member. Payload: the JSON text for it.

    If both are members and the receiver wants the sender's voice, it goes on as a Post with that ref, whose receiver
    replies Posted; otherwise the reply is Failed.
    """

    ref: str
    edge: str
    session_id: str
    room_code: str
    target: str


# --- pairing ------------------------------------------------------------------------------------------


class PairingAsk(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector, by the node's cell: issue a code for this node. Reply: PairingCode | Failed."""

    ref: str
    edge: str
    node_id: str


class PairingCode(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge: the first client to present this code within that time is paired with the node."""

    ref: str
    node_id: str
    code: str
    expires_in_ms: int


class PairingUse(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector, by the code's cell: a client presents a code. Reply: Paired | Failed.

    `client`: digest of the client's address, by which wrong codes are counted. Idempotent by `use`.
    """

    ref: str
    edge: str
    code: str
    client: str
    use: str


class Paired(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge: the node of the code."""

    ref: str
    node_id: str
