"""Membership: the room that a session is in, the list of members that its client has, and calls to the room's cell.

The mesh knows who is in a room; a session calls and its reply decides. A call on behalf of the client (create, join,
leave, prefer) and the call before an utterance (speak) suspend the client's further messages; look and the removal of
another member do not. Lists of members arrive from several edges; their version orders them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from edge.rooms.core.events import RoomCall, SignalReplied, numbered_key, read_key
from edge.rooms.core.fanout import Fan, plan
from edge.rooms.core.member_list import MemberList, members_of
from edge.rooms.core.relay_queue import RelayMessage
from edge.sessions.core.effects import CallRoom, Log, RenewRecord, SendRelay, SendSignal
from edge.sessions.core.lifetime import Lifetime
from edge.sessions.core.limits import SessionLimits
from edge.sessions.core.session import Session, language_of
from edge.sessions.core.turn import Turn
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Failed, Post, RoomMember, RoomState
from mesh.messages.base import Message, encode_utf8
from mesh.messages.client import (
    RoomCreate,
    RoomCreateAck,
    RoomErrorMessage,
    RoomJoin,
    RoomLeave,
    RoomRawVoicePreference,
    WebrtcAnswer,
    WebrtcIce,
    WebrtcOffer,
)
from mesh.words import PostKind, PostVerdict, RoomAction

#: Failures that mean: the room or the membership is gone.
GONE: Final = frozenset({ErrorCode.ROOM_NOT_FOUND.name, ErrorCode.NOT_IN_ROOM.name})
#: And: the mesh has no answer at the moment.
PASSING: Final = ErrorCode.SCHEDULER_DEPENDENCY_DOWN.name
#: Calls that put a session into a room.
ENTERS: Final = frozenset({RoomAction.CREATE, RoomAction.JOIN})

Signal = WebrtcOffer | WebrtcAnswer | WebrtcIce


class Membership:
    """Of one session."""

    __slots__ = ("_lifetime", "_limits", "_list", "_session", "_signals", "_turn", "code")

    def __init__(self, turn: Turn, session: Session, limits: SessionLimits, lifetime: Lifetime, code: str = "") -> None:
        self._turn = turn
        self._lifetime = lifetime
        self._session = session
        self._limits = limits
        #: Code of the room; "" = none.
        self.code = code
        #: The list that the client has.
        self._list = MemberList()
        #: Signals to other members that have no reply yet.
        self._signals = 0

    # --- messages of the client: the call to make, None if the client got an error ----------------

    def create(self, message: RoomCreate) -> RoomCall | None:
        """room_create."""
        return None if self._is_elsewhere("") else RoomCall(RoomAction.CREATE, "", **_who(message))

    def join(self, message: RoomJoin) -> RoomCall | None:
        """room_join."""
        code = message.room_code.strip()
        return None if self._is_elsewhere(code) else RoomCall(RoomAction.JOIN, code, **_who(message))

    def leave(self, message: RoomLeave) -> RoomCall | None:
        """room_leave."""
        if message.room_code.strip() != self.code or not self.code:
            self._send_error(ErrorCode.NOT_IN_ROOM.name, "this session is not in that room")
            return None
        return RoomCall(RoomAction.LEAVE, self.code)

    def prefer(self, message: RoomRawVoicePreference) -> RoomCall:
        """room_raw_voice_preference."""
        target, wanted = message.target_session_id, message.receive_raw_voice
        return RoomCall(RoomAction.PREFER, message.room_code.strip(), target=target, wanted=wanted)

    def signal(self, message: Signal) -> None:
        """webrtc_*: pass it on; the receiver sees from whom it comes."""
        limits, body = self._limits, encode_utf8(_from(self._session.session_id, message))
        if len(body) > limits.signal_bytes_max:
            text = f"a signal may have {limits.signal_bytes_max} bytes, not {len(body)}"
            raise PeerError(ErrorCode.MESSAGE_TOO_LARGE, text)
        if self._signals >= limits.signals_max:
            raise PeerError(ErrorCode.SLOW_DOWN, f"{self._signals} signals wait for their receivers")
        self._signals += 1
        self._turn.do(SendSignal(message.room_code.strip(), message.to, body))

    def on_signal_reply(self, event: SignalReplied) -> None:
        """A signal was passed on, or not."""
        self._signals -= 1
        reply = event.reply
        if reply is None:
            self._send_error(ErrorCode.INTERNAL_ERROR.name, "the mesh did not answer in time")
        elif isinstance(reply, Failed):
            self._send_error(reply.code, reply.message)
        elif reply.verdict != PostVerdict.DELIVERED:
            self._send_error(ErrorCode.MEMBER_NOT_FOUND.name, "that member is not connected now")

    def _is_elsewhere(self, code: str) -> bool:
        if not self.code or self.code == code:
            return False
        self._send_error(ErrorCode.ALREADY_IN_ROOM.name, f"this session is in room {self.code}")
        return True

    # --- replies --------------------------------------------------------------------------------------

    def on_reply(self, call: RoomCall, reply: RoomState | Failed | None) -> None:
        """The reply to a call on behalf of the client."""
        if reply is None:
            self._send_error(ErrorCode.INTERNAL_ERROR.name, "the mesh did not answer in time")
        elif isinstance(reply, Failed):
            self._send_error(reply.code, reply.message)
        else:
            self._on_state(call, reply)

    def _on_state(self, call: RoomCall, state: RoomState) -> None:
        if call.action in ENTERS:
            self.code = state.room_code
            if call.action == RoomAction.CREATE:
                self._turn.send(RoomCreateAck(room_code=state.room_code, room_id=state.room_id))
            self.renew()
            self.announce(state)
            fields: dict[str, object] = {"room_code": state.room_code, "members": len(state.members)}
            self._turn.do(Log("room_entered", fields))
            return
        if call.action == RoomAction.LEAVE:
            self.code = ""
            self.renew()
        self.announce(state)

    def on_late_reply(self, call: RoomCall, reply: RoomState | Failed | None, *, is_moved: bool) -> None:
        """A reply after the session's end here: it leaves a room that it entered too late, unless it went on there."""
        if isinstance(reply, RoomState):
            if call.action == RoomAction.LEAVE:
                self.announce(reply)
            elif call.action in ENTERS and not is_moved:
                self.code = reply.room_code
                self.depart()
        elif call.action == RoomAction.LEAVE and not call.member:
            self._turn.do(Log("room_not_left", is_warning=True))  # the room forgets it when it expires

    def on_looked(self, call: RoomCall, reply: RoomState | Failed | None) -> None:
        """The current members, for a client that was detached or has a later list than the one that arrived."""
        if self.code != call.code:
            return
        if isinstance(reply, RoomState) and not self._list.is_older(reply.room_id, reply.version):
            self._list.take(reply.room_id, reply.version)
            self._turn.send(members_of(reply))
        elif isinstance(reply, Failed) and reply.code in GONE:
            self.code = ""
            self.renew()
            self._send_error(reply.code, reply.message)

    def members_for(self, reply: RoomState | Failed | None) -> Sequence[RoomMember] | None:
        """The listeners of an utterance; None: the mesh has no answer now. Empty if the room is gone."""
        if isinstance(reply, RoomState):
            return reply.members
        if reply is None or reply.code == PASSING:
            return None
        if reply.code in GONE:
            self.code = ""
        return ()

    # --- calls that suspend nothing -------------------------------------------------------------------

    def look(self) -> None:
        """Call for the current list of members."""
        if self.code:
            self._turn.do(CallRoom(RoomCall(RoomAction.LOOK, self.code)))

    def remove(self, member: str) -> None:
        """Remove a member whose session is over and whose edge died before it left the room."""
        if self.code:
            self._turn.do(CallRoom(RoomCall(RoomAction.LEAVE, self.code, member=member)))

    def depart(self) -> None:
        """The session is over: it leaves its room."""
        code, self.code = self.code, ""
        if code:
            self._turn.do(CallRoom(RoomCall(RoomAction.LEAVE, code)))

    def renew(self) -> None:
        """Renew the session's record, with its room: an earlier renewal may have been lost."""
        self._lifetime.renewed(self._turn.now_ms)
        self._turn.do(RenewRecord(not self._turn.is_attached, self.code))

    # --- listeners -----------------------------------------------------------------------------------

    def plan(self, members: Sequence[RoomMember]) -> list[Fan]:
        """The languages that an utterance is translated into, and the listeners of each."""
        return plan(self._session.session_id, language_of(self._session.init.tgt_lang, "tgt_lang"), members)

    def announce(self, state: RoomState) -> None:
        """Send the list of members to each of them. If the client itself has a later one, it gets the latest again."""
        own = self._session.session_id
        if any(member.session_id == own for member in state.members):
            if self._list.take(state.room_id, state.version):
                self._turn.send(members_of(state))
            else:
                self.look()
        body, key, code = encode_utf8(members_of(state)), numbered_key(state.room_id, state.version), state.room_code
        for member in state.members:
            if member.session_id != own:
                relay_message = RelayMessage(member.session_id, PostKind.ROOM_MEMBERS, key, body, code, park=False)
                self._turn.do(SendRelay(code, relay_message))

    def accepts(self, post: Post) -> bool:
        """True if the client is to get that message of another session."""
        if post.kind == PostKind.ROOM_MEMBERS:
            # It may be older than the list that the client has, or of a room that it left.
            return self.code in ("", post.room_code) and self._list.take(*read_key(post.key))
        if post.kind == PostKind.ROOM_EXPIRED and self.code == post.room_code:
            self.code = ""
            self.renew()
        return True

    def _send_error(self, code: str, message: str) -> None:
        self._turn.send(RoomErrorMessage(code=code, message=message))


def _who(message: RoomCreate | RoomJoin) -> dict[str, Any]:
    lang = message.preferred_lang
    return {
        "display_name": message.display_name or "",
        "preferred_lang": language_of(lang, "preferred_lang") if lang else "",
    }


def _from(sender: str, message: Signal) -> Message:
    if isinstance(message, WebrtcIce):
        return WebrtcIce(room_code=message.room_code, to=sender, candidate=message.candidate)
    return type(message)(room_code=message.room_code, to=sender, sdp=message.sdp)
