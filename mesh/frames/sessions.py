"""Frames of sessions: who owns one, what waits for it, what others tell it, rooms and pairing.

What is for a session goes to the selector of the session's cell, what is about a room to that of the code's cell.
"""

from __future__ import annotations

import msgspec

from mesh.frames.base import Frame, Lane, Role

# --- ownership --------------------------------------------------------------------------------------


class SessionClaim(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector: this session is mine now. Answer: SessionClaimed | Failed.

    epoch 0 takes over whatever is there; otherwise it must be the epoch in force. With `resume` the record must be
    there, with that token; without it the claim makes a new record. Whoever owned it before hears SessionTaken.
    """

    ref: str
    session_id: str
    edge: str
    epoch: int
    tenant_id: str
    src_lang: str
    tgt_lang: str
    #: Digest of the resume token: stored by a claim that makes the record, compared by one that resumes.
    token: str = ""
    resume: bool = False
    trace_id: str = ""
    #: The node that the session is paired with.
    preferred_node: str = ""
    #: The client will come back if its connection is lost: until then its results wait in the mail.
    resumable: bool = False


class SessionClaimed(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge. What follows the epoch is what the record held, for a session that is resumed."""

    ref: str
    session_id: str
    epoch: int
    trace_id: str = ""
    preferred_node: str = ""
    tenant_id: str = ""
    #: Code of the room that the session is in; "" = none.
    room: str = ""
    #: Entries that wait in its mail, and those that had to be dropped from it.
    mail: int = 0
    lost: int = 0


class SessionRelease(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge -> selector: the session is closed. Ignored unless owner and epoch match. Answer: SessionReleased."""

    session_id: str
    edge: str
    epoch: int
    #: "": no answer is wanted.
    ref: str = ""


class SessionReleased(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge: that session is not the edge's, whether it was until now or not."""

    ref: str
    session_id: str


class SessionNote(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge -> selector: the session lives, which renews its record. SessionTaken if it is not the edge's own."""

    session_id: str
    edge: str
    epoch: int
    #: The client's connection is lost: what cannot be told goes into the mail.
    away: bool = False
    #: The room that it is in; None = as before.
    room: str | None = None


class SessionTaken(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge: another edge owns the session now, with that epoch. edge "": the record is gone, claim anew."""

    session_id: str
    epoch: int
    edge: str


# --- mail: what waits for a session that is away ------------------------------------------------------


class MailAsk(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector: what waits for my session, after that entry. Answer: Mail | Failed."""

    ref: str
    session_id: str
    edge: str
    epoch: int
    after: str = ""


class Mail(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge: a page of mail, oldest first. Payload: two parts per entry, its frame (Push or Post) and body.

    `last` is the id of the page's last entry, "" if there is none; `more`: ask again after it.
    """

    ref: str
    session_id: str
    last: str
    more: bool


class MailTrim(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge -> selector: the client has all mail up to that entry. Ignored unless owner and epoch match."""

    session_id: str
    edge: str
    epoch: int
    last: str


# --- posts: a message for a session, wherever it is ----------------------------------------------------


class Post(Frame, frozen=True, to=Role.EDGE | Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector -> the edge that owns the session. Payload: the JSON text for its client. Answer: Posted.

    Repeated with the same `key` until answered; the receiver tells its client once. A selector that lets a room expire
    is a sender too, and wants no answer: its `edge` is "".
    """

    ref: str
    edge: str
    session_id: str
    #: "room_members" | "room_expired" | "result" | "signal"
    kind: str
    key: str
    #: Keep it in the mail while the session is away; otherwise it is dropped then.
    park: bool = False
    room_code: str = ""


class Posted(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """To the sender of a Post. verdict: "told" | "parked" | "away" | "no_session"."""

    ref: str
    session_id: str
    verdict: str


# --- rooms --------------------------------------------------------------------------------------------


class RoomMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of a room. `voices`: whose own voice it wants (or not); whoever is not named, it wants."""

    session_id: str
    display_name: str
    preferred_lang: str
    joined_ms: int
    voices: dict[str, bool] = {}


class RoomRequest(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector, by the room's cell (create: the session's). Answer: RoomState | Failed.

    action: "create" | "join" | "leave" | "prefer" | "speak" (somebody speaks, which keeps the room alive) | "look".
    Each may be repeated: joining twice is joining once.
    """

    ref: str
    edge: str
    session_id: str
    action: str
    room_code: str = ""
    display_name: str = ""
    preferred_lang: str = ""
    #: prefer: whose voice, and whether.
    target: str = ""
    wanted: bool = True


class RoomState(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge: the room after that request, members in the order in which they came."""

    ref: str
    room_code: str
    room_id: str
    members: list[RoomMember]
    #: Of two lists of one room the higher is the later.
    version: int = 0


class RoomSignal(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector, by the room's cell: pass this to another member. Payload: the JSON text for it.

    Checked: both are members, and the receiver wants the sender's voice. Then it goes on as a Post with that ref, whose
    receiver answers Posted; otherwise Failed.
    """

    ref: str
    edge: str
    session_id: str
    room_code: str
    target: str


# --- pairing ------------------------------------------------------------------------------------------


class PairingAsk(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector, by the node's cell: a code for this node. Answer: PairingCode | Failed."""

    ref: str
    edge: str
    node_id: str


class PairingCode(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge: whoever presents this code first, within that time, is paired with the node."""

    ref: str
    node_id: str
    code: str
    expires_in_ms: int


class PairingUse(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector, by the code's cell: a client presents a code. Answer: Paired | Failed.

    `client`: a digest of where the client comes from; wrong codes are counted by it. A repeat of the same use, which
    `use` names, gets the same answer.
    """

    ref: str
    edge: str
    code: str
    client: str
    use: str


class Paired(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge: the node that the code stood for."""

    ref: str
    node_id: str
