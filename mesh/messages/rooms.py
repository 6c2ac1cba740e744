"""Messages about rooms on /ws/session: membership, voice preferences and WebRTC signals."""

from __future__ import annotations

from typing import Any

from mesh.messages.base import Id, Lang, Line, Message, Part, Whole, Word


class Participant(Part, frozen=True, kw_only=True):
    """A member of a room. A missing voice preference means true: receive."""

    participant_id: Id
    session_id: Id
    display_name: Word | None = None
    preferred_lang: Lang | None = None
    raw_voice_preferences: dict[Id, bool] | None = None
    joined_at: Word  # RFC 3339


class RoomCreate(Message, frozen=True, kw_only=True):
    """Creates a room. Reply: room_create_ack, then room_members."""

    client_ts: Whole
    display_name: Word | None = None
    preferred_lang: Lang | None = None


class RoomJoin(Message, frozen=True, kw_only=True):
    """Joins a room. Reply: room_members to all members."""

    room_code: Word
    display_name: Word | None = None
    preferred_lang: Lang | None = None


class RoomLeave(Message, frozen=True, kw_only=True):
    """Leaves a room. Reply: room_members to the remaining members."""

    room_code: Word


class RoomRawVoicePreference(Message, frozen=True, kw_only=True):
    """Whether to receive another member's own voice."""

    room_code: Word
    target_session_id: Id
    receive_raw_voice: bool


class WebrtcOffer(Message, frozen=True, kw_only=True):
    """Both directions: `to` is the receiver on the way in and the sender on the way out."""

    room_code: Word
    to: Id
    sdp: Any


class WebrtcAnswer(Message, frozen=True, kw_only=True):
    """As webrtc_offer."""

    room_code: Word
    to: Id
    sdp: Any


class WebrtcIce(Message, frozen=True, kw_only=True):
    """As webrtc_offer."""

    room_code: Word
    to: Id
    candidate: Any


class RoomCreateAck(Message, frozen=True, kw_only=True):
    """The room was created."""

    room_code: Word
    room_id: Id | None = None


class RoomMembers(Message, frozen=True, kw_only=True):
    """All members of the room."""

    room_code: Word
    members: list[Participant]


class RoomErrorMessage(Message, frozen=True, kw_only=True, tag="room_error"):
    """A room request failed."""

    code: Word  # a name of mesh.errors, 6xx, or INTERNAL_ERROR
    message: Line | None = None


class RoomExpired(Message, frozen=True, kw_only=True):
    """The room was closed after rooms.silent_ms without speech."""

    room_code: Word
    message: Line
