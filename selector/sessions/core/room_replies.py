"""Replies about rooms: pure decisions from a frame and the store's answer."""

from __future__ import annotations

from typing import Final

from lua.store.types.rooms import Room
from mesh.errors import ErrorCode
from mesh.frames import Failed, Post, RoomRequest, RoomSignal, RoomState
from mesh.messages.client import RoomExpired, encode_utf8
from mesh.words import PostKind, RoomAction
from selector.core.reply import Reply

#: Verdict of the store -> error for the member.
_FAULTS: Final[dict[str, tuple[ErrorCode, str]]] = {
    "gone": (ErrorCode.ROOM_NOT_FOUND, "there is no such room"),
    "full": (ErrorCode.ROOM_FULL, "the room is full"),
    "outsider": (ErrorCode.NOT_IN_ROOM, "you are not in that room"),
    "stranger": (ErrorCode.MEMBER_NOT_FOUND, "that session is not in the room"),
    "taken": (ErrorCode.TOO_MANY_ROOMS, "no free code was found for a new room"),
    "crowded": (ErrorCode.TOO_MANY_ROOMS, "there are as many rooms as there may be"),
    "declined": (ErrorCode.RAW_VOICE_DECLINED, "that member does not want your own voice"),
}


def on_room(frame: RoomRequest, code: str, room: Room) -> Reply:
    """RoomState, or Failed. Leaving a room that is gone succeeds."""
    if room.verdict == "gone" and frame.action == RoomAction.LEAVE:
        return Reply(frame.edge, RoomState(frame.ref, code, "", []))
    if room.verdict == "ok" and frame.action == RoomAction.LOOK and not _is_in(room, frame.session_id):
        return fault(frame, "outsider")
    if room.verdict == "ok":
        return Reply(frame.edge, RoomState(frame.ref, code, room.room_id, list(room.members), room.version))
    return fault(frame, room.verdict)


def on_signal(frame: RoomSignal, room: Room) -> Reply:
    """A Post for the receiver; or Failed, if it does not accept signals of the sender."""
    if room.verdict != "ok":
        return fault(frame, room.verdict)
    if not _is_in(room, frame.session_id):
        return fault(frame, "outsider")
    receiver = next((member for member in room.members if member.session_id == frame.target), None)
    if receiver is None:
        return fault(frame, "stranger")
    if not receiver.voices.get(frame.session_id, True):
        return fault(frame, "declined")
    # Refs are unique per edge only, so the key contains both.
    key = f"signal:{frame.edge}:{frame.ref}"
    return Reply("", Post(frame.ref, frame.edge, frame.target, PostKind.SIGNAL, key, room_code=frame.room_code))


def on_expired(code: str, session_id: str, silent_ms: int) -> tuple[Post, bytes]:
    """The notification for a member of an expired room."""
    post = Post("", "", session_id, PostKind.ROOM_EXPIRED, f"expired:{code}", park=True, room_code=code)
    message = f"nobody spoke in room {code} for {_spelled(silent_ms)}, so it was closed"
    return post, encode_utf8(RoomExpired(room_code=code, message=message))


def fault(frame: RoomRequest | RoomSignal, why: str) -> Reply:
    """Failed, for a verdict of the store."""
    code, message = _FAULTS[why]
    return refusal(frame, code, message)


def refusal(frame: RoomRequest | RoomSignal, code: ErrorCode, message: str) -> Reply:
    """Failed, with this error."""
    return Reply(frame.edge, Failed(frame.ref, code.name, message))


def _is_in(room: Room, session_id: str) -> bool:
    return any(member.session_id == session_id for member in room.members)


def _spelled(for_ms: int) -> str:
    minutes = for_ms // 60_000
    return f"{minutes} minute{'' if minutes == 1 else 's'}" if minutes else f"{for_ms / 1_000:g} seconds"
