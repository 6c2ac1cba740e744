"""The room of a session: create, join, leave, its members, and the membership across reconnects.

The mesh replies to a room request with the new state, not with the request's name. So there is one request at a time,
and it is retried on a new connection unless the mesh's state shows that it was executed. Knows no connection, only a
function that sends a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from linguamesh.errors import RoomError, SessionError
from mesh.clock import wall_ms
from mesh.errors import ErrorCode
from mesh.messages import client as wire

REPLY_TIMEOUT_S: Final = 10.0
#: Bound on voice preferences, which are retained to be sent again in a new session; rooms are smaller than this.
VOICES_MAX: Final = 1_000

#: Refusals of signals, which have no waiting caller: they are no reply to create, join or leave.
_SIGNAL_REFUSALS: Final = frozenset({ErrorCode.MEMBER_NOT_FOUND.name, ErrorCode.RAW_VOICE_DECLINED.name})
SIGNALS: Final[dict[str, Callable[[str, str, Any], wire.ClientMessage]]] = {
    "offer": lambda code, to, payload: wire.WebrtcOffer(room_code=code, to=to, sdp=payload),
    "answer": lambda code, to, payload: wire.WebrtcAnswer(room_code=code, to=to, sdp=payload),
    "ice": lambda code, to, payload: wire.WebrtcIce(room_code=code, to=to, candidate=payload),
}


@dataclass(slots=True, eq=False)
class _Request:
    """A request in flight. `reply` becomes True when it was executed, False when it must be retried."""

    message: wire.RoomCreate | wire.RoomJoin | wire.RoomRawVoicePreference
    reply: asyncio.Future[bool]
    #: The code of its room; None until the mesh has assigned one.
    code: str | None


@dataclass(slots=True)
class _Membership:
    """The session's settings in its room, for a join in a new session."""

    display_name: str | None = None
    preferred_lang: str | None = None
    #: Member -> whether the session receives that member's own voice.
    voices: dict[str, bool] = field(default_factory=dict)


class Rooms:
    """`send` sends a message, on this connection or the next; SessionError if the session is closed."""

    def __init__(self, send: Callable[[wire.ClientMessage], Awaitable[None]]) -> None:
        #: The code of the room that the session is in; None = none.
        self.code: str | None = None
        self.members: list[wire.Participant] = []
        self._send = send
        self._session_id = ""
        self._membership = _Membership()
        self._lock = asyncio.Lock()  # one request at a time
        self._request: _Request | None = None
        self._rejoining = False  # in a new session that replaces a lost one
        self._error: SessionError | None = None

    # --- requests ---------------------------------------------------------------------------------

    async def create(self, display_name: str | None, preferred_lang: str | None) -> str:
        """Create a room and join it; its code."""
        membership = _Membership(display_name, preferred_lang)
        message = wire.RoomCreate(client_ts=wall_ms(), display_name=display_name, preferred_lang=preferred_lang)
        await self._call(message, membership)
        assert self.code is not None
        return self.code

    async def join(self, code: str, display_name: str | None, preferred_lang: str | None) -> list[wire.Participant]:
        """Join a room; its members."""
        membership = _Membership(display_name, preferred_lang)
        message = wire.RoomJoin(room_code=code, display_name=display_name, preferred_lang=preferred_lang)
        await self._call(message, membership)
        return self.members

    async def leave(self) -> None:
        """Leave the room. Only the remaining members get a reply."""
        async with self._lock:
            code = self._own_code()
            self._leave()
            await self._send(wire.RoomLeave(room_code=code))

    async def set_voice(self, target: str, wanted: bool) -> None:
        """Whether to receive another member's own voice."""
        message = wire.RoomRawVoicePreference(
            room_code=self._own_code(), target_session_id=target, receive_raw_voice=wanted
        )
        await self._call(message, self._membership)
        if len(self._membership.voices) < VOICES_MAX:
            self._membership.voices[target] = wanted

    async def signal(self, kind: str, to: str, payload: Any) -> None:
        """Relay a WebRTC signal to another member. There is no reply; a refusal is an event."""
        if kind not in SIGNALS:
            raise ValueError(f"kind is {kind!r}; it must be one of {', '.join(SIGNALS)}")
        await self._send(SIGNALS[kind](self._own_code(), to, payload))

    def _own_code(self) -> str:
        if self.code is None:
            raise RoomError(ErrorCode.NOT_IN_ROOM.name, "this session is in no room")
        return self.code

    async def _call(
        self, message: wire.RoomCreate | wire.RoomJoin | wire.RoomRawVoicePreference, membership: _Membership
    ) -> None:
        """Send a request until it is executed; RoomError if it is refused or times out."""
        async with self._lock:
            if self._error:
                raise SessionError(self._error.code, self._error.message)
            try:
                async with asyncio.timeout(REPLY_TIMEOUT_S):
                    is_done = False
                    while not is_done:
                        code = None if isinstance(message, wire.RoomCreate) else message.room_code
                        self._request = _Request(message, asyncio.get_running_loop().create_future(), code)
                        await self._send(message)
                        is_done = await self._request.reply
            except TimeoutError:
                code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN.name
                raise RoomError(code, f"no answer within {REPLY_TIMEOUT_S:g} s") from None
            finally:
                self._request = None
            self._membership = membership

    # --- messages of the mesh ---------------------------------------------------------------------

    def on_created(self, message: wire.RoomCreateAck) -> None:
        """room_create_ack: the room exists. room_members follows and completes the request."""
        if self._request and self._request.code is None:
            self._request.code = self.code = message.room_code
            self.members = []

    def on_members(self, message: wire.RoomMembers) -> None:
        """room_members: the current members; the reply to most requests."""
        own = next((one for one in message.members if one.session_id == self._session_id), None)
        pending = self._pending if self._request and self._request.code == message.room_code else None
        if isinstance(pending, wire.RoomJoin) and own is not None:
            self.code = message.room_code
        if message.room_code != self.code:
            return  # the session has left that room meanwhile
        self.members = message.members
        if own is not None:
            self._rejoining = False
            if pending is not None and _is_executed(pending, own):
                self._reply(True)

    def on_error(self, message: wire.RoomErrorMessage) -> None:
        """room_error: a request or a signal was refused."""
        is_signal = message.code in _SIGNAL_REFUSALS
        if self._rejoining and not is_signal:
            self._leave()
        elif not is_signal or isinstance(self._pending, wire.RoomRawVoicePreference):
            self._refuse(RoomError(message.code, message.message or ""))

    def on_expired(self, message: wire.RoomExpired) -> None:
        """room_expired: the room was idle for too long."""
        if message.room_code == self.code:
            self._leave()

    # --- the connection ---------------------------------------------------------------------------

    def on_session_init_ack(self, ack: wire.SessionInitAck, *, is_first: bool) -> list[wire.ClientMessage]:
        """A connection is open; the messages that it must begin with."""
        self._session_id = ack.session_id
        if is_first:
            return []
        if ack.resumed:
            self._resume(ack.room_code)
            return []
        self._reply(False)
        self.members = []
        self._rejoining = self.code is not None
        return self._rejoin() if self.code is not None else []

    def _resume(self, code: str | None) -> None:
        """The session was resumed: the mesh reports its room."""
        pending = self._pending
        done = isinstance(pending, wire.RoomCreate) and code is not None
        done = done or (isinstance(pending, wire.RoomJoin) and code == pending.room_code)
        if code != self.code:
            self._leave()
            self.code = code
        self._reply(done)

    def _rejoin(self) -> list[wire.ClientMessage]:
        """A new session: join the room again, with the same settings."""
        assert self.code is not None
        join = wire.RoomJoin(
            room_code=self.code,
            display_name=self._membership.display_name,
            preferred_lang=self._membership.preferred_lang,
        )
        return [
            join,
            *(
                wire.RoomRawVoicePreference(room_code=self.code, target_session_id=target, receive_raw_voice=wanted)
                for target, wanted in self._membership.voices.items()
            ),
        ]

    def close(self, error: SessionError) -> None:
        """The session is closed."""
        self._error = error
        self._refuse(SessionError(error.code, error.message))
        self._leave()

    # --- the pending request ----------------------------------------------------------------------

    @property
    def _pending(self) -> wire.ClientMessage | None:
        return self._request.message if self._request else None

    def _reply(self, done: bool) -> None:
        if self._request and not self._request.reply.done():
            self._request.reply.set_result(done)

    def _refuse(self, error: SessionError) -> None:
        if self._request and not self._request.reply.done():
            self._request.reply.set_exception(error)
            self._request.reply.exception()  # the caller may have been cancelled

    def _leave(self) -> None:
        self.code, self.members, self._rejoining = None, [], False


def _is_executed(request: wire.ClientMessage, own: wire.Participant) -> bool:
    """True if the session's own entry shows the request's effect. A missing voice preference means: receive."""
    if not isinstance(request, wire.RoomRawVoicePreference):
        return True
    voices = own.raw_voice_preferences or {}
    return voices.get(request.target_session_id, True) == request.receive_raw_voice
