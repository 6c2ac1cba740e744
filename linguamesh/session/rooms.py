"""The room of a session: asks for one, knows who is in it, and keeps the session in it over lost connections.

The mesh answers a request for a room by what changed, not by name. So there is one request at a time, and it is said
again on a new connection unless the mesh shows that it was carried out.
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

ANSWER_TIMEOUT_S: Final = 10.0
#: Preferences that are remembered, to be said again in a new session; rooms are smaller than this.
VOICES_MAX: Final = 1_000

#: Refusals of signals, which nobody waits for: they are no answer to create, join or leave.
_ABOUT_MEMBERS: Final = frozenset({ErrorCode.MEMBER_NOT_FOUND.name, ErrorCode.RAW_VOICE_DECLINED.name})
SIGNALS: Final[dict[str, Callable[[str, str, Any], wire.ClientMessage]]] = {
    "offer": lambda code, to, payload: wire.WebrtcOffer(room_code=code, to=to, sdp=payload),
    "answer": lambda code, to, payload: wire.WebrtcAnswer(room_code=code, to=to, sdp=payload),
    "ice": lambda code, to, payload: wire.WebrtcIce(room_code=code, to=to, candidate=payload),
}


@dataclass(slots=True, eq=False)
class _Request:
    """What was asked for. `answer` becomes True when it was done, False when it must be asked again."""

    message: wire.RoomCreate | wire.RoomJoin | wire.RoomRawVoicePreference
    answer: asyncio.Future[bool]
    #: The room that it is about; None = one that the mesh has yet to name.
    code: str | None


@dataclass(slots=True)
class _Self:
    """How the session wants to appear in its room."""

    display_name: str | None = None
    preferred_lang: str | None = None
    #: Whose own voice it wants, or does not.
    voices: dict[str, bool] = field(default_factory=dict)


class Rooms:
    """`say` sends a message as soon as there is a connection; SessionError if there will be none."""

    def __init__(self, say: Callable[[wire.ClientMessage], Awaitable[None]]) -> None:
        #: The code of the room that the session is in; None = none.
        self.code: str | None = None
        self.members: list[wire.Participant] = []
        self._say = say
        self._session_id = ""
        self._self = _Self()
        self._turn = asyncio.Lock()
        self._request: _Request | None = None
        self._coming_back = False  # joining again, in a new session
        self._over: SessionError | None = None

    # --- asking -----------------------------------------------------------------------------------

    async def create(self, display_name: str | None, preferred_lang: str | None) -> str:
        """Open a room and be in it; its code."""
        me = _Self(display_name, preferred_lang)
        message = wire.RoomCreate(client_ts=wall_ms(), display_name=display_name, preferred_lang=preferred_lang)
        await self._ask(message, me)
        assert self.code is not None
        return self.code

    async def join(self, code: str, display_name: str | None, preferred_lang: str | None) -> list[wire.Participant]:
        """Enter a room; who is in it."""
        me = _Self(display_name, preferred_lang)
        await self._ask(wire.RoomJoin(room_code=code, display_name=display_name, preferred_lang=preferred_lang), me)
        return self.members

    async def leave(self) -> None:
        """Leave the room. The mesh tells only those who stay."""
        async with self._turn:
            code = self._own_code()
            self._leave()
            await self._say(wire.RoomLeave(room_code=code))

    async def set_voice(self, target: str, wanted: bool) -> None:
        """Whether to get another member's own voice."""
        message = wire.RoomRawVoicePreference(
            room_code=self._own_code(), target_session_id=target, receive_raw_voice=wanted
        )
        await self._ask(message, self._self)
        if len(self._self.voices) < VOICES_MAX:
            self._self.voices[target] = wanted

    async def signal(self, kind: str, to: str, payload: Any) -> None:
        """Pass something on to another member. A refusal is an event: nobody waits for an answer."""
        if kind not in SIGNALS:
            raise ValueError(f"kind is {kind!r}; it is one of {', '.join(SIGNALS)}")
        await self._say(SIGNALS[kind](self._own_code(), to, payload))

    def _own_code(self) -> str:
        if self.code is None:
            raise RoomError(ErrorCode.NOT_IN_ROOM.name, "this session is in no room")
        return self.code

    async def _ask(self, message: wire.RoomCreate | wire.RoomJoin | wire.RoomRawVoicePreference, me: _Self) -> None:
        async with self._turn:
            if self._over:
                raise SessionError(self._over.code, self._over.message)
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    answered = False
                    while not answered:
                        code = None if isinstance(message, wire.RoomCreate) else message.room_code
                        self._request = _Request(message, asyncio.get_running_loop().create_future(), code)
                        await self._say(message)
                        answered = await self._request.answer
            except TimeoutError:
                code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN.name
                raise RoomError(code, f"no answer within {ANSWER_TIMEOUT_S:g} s") from None
            finally:
                self._request = None
            self._self = me

    # --- what the mesh says -----------------------------------------------------------------------

    def on_created(self, message: wire.RoomCreateAck) -> None:
        """The room exists. Its members are told next, and with them the request is done."""
        if self._request and self._request.code is None:
            self._request.code = self.code = message.room_code
            self.members = []

    def on_members(self, message: wire.RoomMembers) -> None:
        """Who is in a room now; the answer to most requests."""
        mine = next((one for one in message.members if one.session_id == self._session_id), None)
        asked = self._asked if self._request and self._request.code == message.room_code else None
        if isinstance(asked, wire.RoomJoin) and mine is not None:
            self.code = message.room_code
        if message.room_code != self.code:
            return  # one that was left meanwhile
        self.members = message.members
        if mine is not None:
            self._coming_back = False
            if asked is not None and not (isinstance(asked, wire.RoomRawVoicePreference) and not _has(mine, asked)):
                self._answer(True)

    def on_error(self, message: wire.RoomErrorMessage) -> None:
        """Something about rooms was refused."""
        about_members = message.code in _ABOUT_MEMBERS
        if self._coming_back and not about_members:
            self._leave()
        elif not about_members or isinstance(self._asked, wire.RoomRawVoicePreference):
            self._refuse(RoomError(message.code, message.message or ""))

    def on_expired(self, message: wire.RoomExpired) -> None:
        """Nobody spoke for too long."""
        if message.room_code == self.code:
            self._leave()

    # --- the connection ---------------------------------------------------------------------------

    def on_open(self, session_id: str, code: str | None, is_first: bool, resumed: bool) -> list[wire.ClientMessage]:
        """A connection is there, with a session that is in that room; what is to be said before anything else."""
        self._session_id = session_id
        if is_first:
            return []
        if resumed:
            self._go_on(code)
            return []
        self._answer(False)
        self.members = []
        self._coming_back = self.code is not None
        return self._return() if self.code is not None else []

    def _go_on(self, code: str | None) -> None:
        """The same session: the mesh says which room it is in."""
        asked = self._asked
        done = isinstance(asked, wire.RoomCreate) and code is not None
        done = done or (isinstance(asked, wire.RoomJoin) and code == asked.room_code)
        if code != self.code:
            self._leave()
            self.code = code
        self._answer(done)

    def _return(self) -> list[wire.ClientMessage]:
        """Another session: join the room again, as before."""
        assert self.code is not None
        join = wire.RoomJoin(
            room_code=self.code,
            display_name=self._self.display_name,
            preferred_lang=self._self.preferred_lang,
        )
        return [
            join,
            *(
                wire.RoomRawVoicePreference(room_code=self.code, target_session_id=target, receive_raw_voice=wanted)
                for target, wanted in self._self.voices.items()
            ),
        ]

    def close(self, over: SessionError) -> None:
        """The session is over."""
        self._over = over
        self._refuse(SessionError(over.code, over.message))
        self._leave()

    # --- inside -----------------------------------------------------------------------------------

    @property
    def _asked(self) -> wire.ClientMessage | None:
        return self._request.message if self._request else None

    def _answer(self, done: bool) -> None:
        if self._request and not self._request.answer.done():
            self._request.answer.set_result(done)

    def _refuse(self, error: SessionError) -> None:
        if self._request and not self._request.answer.done():
            self._request.answer.set_exception(error)
            self._request.answer.exception()  # whoever asked may have been cancelled

    def _leave(self) -> None:
        self.code, self.members, self._coming_back = None, [], False


def _has(member: wire.Participant, asked: wire.RoomRawVoicePreference) -> bool:
    """True if the member's preferences are as asked for; a missing one means: receive."""
    voices = member.raw_voice_preferences or {}
    return voices.get(asked.target_session_id, True) == asked.receive_raw_voice
