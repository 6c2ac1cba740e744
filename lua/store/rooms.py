"""Changes of rooms: members, voice settings, idle timeout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lua.engine.runner import Call, Runner
from lua.store.types.rooms import Room
from mesh.cells import cell_of
from mesh.config import Config
from mesh.errors import StoreError
from mesh.frames import RoomMember
from mesh.keys import Keys

#: Maximum number of rooms per call of `expire`.
EXPIRE_MAX: Final = 64


class _PackedMember(msgspec.Struct, array_like=True):
    """A member, as lua/scripts/shared/room_members.lua packs it."""

    number: int
    joined_ms: int
    display_name: str
    preferred_lang: str
    #: Lua packs an empty table as a list.
    voices: dict[str, bool] | list[bool]


_decoder = msgspec.msgpack.Decoder(_PackedMember)


class RoomStore:
    """The records of rooms."""

    def __init__(self, runner: Runner, keys: Keys, config: Config) -> None:
        self._runner = runner
        self._keys = keys
        self._cells = config.mesh.cells
        self._members_max = config.rooms.members_max
        self._rooms_max = max(1, config.rooms.rooms_max // self._cells)
        self._silent_ms = config.rooms.silent_ms
        # An edge retries a request until its timeout, and then its client may retry.
        self._reservation_ms = 2 * config.edge.answer_timeout_ms

    async def reserve_code(self, session_id: str, code: str, instead_of: str = "") -> str:
        """The code of the session's next room: `code`, unless another is reserved and not `instead_of` (taken)."""
        keys = [self._keys.room_plan(cell_of(session_id, self._cells), session_id)]
        args = {"code": code, "instead_of": instead_of, "life_ms": self._reservation_ms}
        [reserved] = await self._runner.call("room_reserve_code", keys, args)
        return str(reserved)

    async def create(self, code: str, room_id: str, session_id: str, display_name: str, preferred_lang: str) -> Room:
        """Create a room with its first member: "ok", "taken" or "crowded"."""
        return await self._call(
            "room_create",
            code,
            code=code,
            room_id=room_id,
            session_id=session_id,
            display_name=display_name,
            preferred_lang=preferred_lang,
            rooms_max=self._rooms_max,
        )

    async def join(self, code: str, session_id: str, display_name: str, preferred_lang: str) -> Room:
        """Add a session, or change its name and language: "ok", "gone" or "full"."""
        return await self._call(
            "room_join",
            code,
            code=code,
            session_id=session_id,
            display_name=display_name,
            preferred_lang=preferred_lang,
            members_max=self._members_max,
        )

    async def leave(self, code: str, session_id: str) -> Room:
        """Remove a session; the last one deletes the room: "ok" or "gone"."""
        return await self._call("room_leave", code, code=code, session_id=session_id)

    async def set_voice(self, code: str, session_id: str, target: str, *, wanted: bool) -> Room:
        """Set whether a session wants the voice of another: "ok", "gone", "outsider" or "stranger"."""
        return await self._call("room_set_voice", code, session_id=session_id, target=target, wanted=int(wanted))

    async def speak(self, code: str, session_id: str) -> Room:
        """A member speaks: reset the idle timeout: "ok", "gone" or "outsider"."""
        return await self._call("room_speak", code, code=code, session_id=session_id)

    async def get(self, code: str) -> Room:
        """The members: "ok" or "gone"."""
        return await self._call("room_get", code)

    async def expire(self, cell: int) -> list[tuple[str, Room]]:
        """Delete idle rooms of a cell, at most EXPIRE_MAX; code and room of each that this call deleted.

        Two calls, because a script may use only declared keys: list the idle rooms, then delete them.
        """
        args: dict[str, Any] = {"silent_ms": self._silent_ms}
        [due] = await self._runner.call("room_list_idle", [self._keys.rooms(cell)], {**args, "limit": EXPIRE_MAX})
        codes = [code.decode() for code in due]
        calls = [Call(self._both(code), {**args, "code": code}) for code in codes]
        answers = await self._runner.call_many("room_expire", calls)
        failed = [answer for answer in answers if isinstance(answer, StoreError)]
        rooms = [
            (code, _room(answer))
            for code, answer in zip(codes, answers, strict=True)
            if not isinstance(answer, StoreError)
        ]
        ended = [(code, room) for code, room in rooms if room.verdict == "ended"]
        if failed and not ended:  # no other caller gets the deleted rooms
            raise failed[0]
        return ended

    async def _call(self, script: str, room_code: str, **args: Any) -> Room:
        # Scripts with a `code` argument also use the list of rooms.
        keys = self._both(room_code) if "code" in args else self._both(room_code)[:1]
        return _room(await self._runner.call(script, keys, args))

    def _both(self, code: str) -> list[str]:
        cell = cell_of(code, self._cells)
        return [self._keys.room(cell, code), self._keys.rooms(cell)]


def _room(answer: Sequence[Any]) -> Room:
    verdict, room_id, version, flat = answer
    packed = [(raw.decode(), _decoder.decode(one)) for raw, one in zip(flat[::2], flat[1::2], strict=True)]
    packed.sort(key=lambda pair: pair[1].number)
    return Room(verdict, room_id, tuple(_member(session_id, one) for session_id, one in packed), version)


def _member(session_id: str, one: _PackedMember) -> RoomMember:
    voices = one.voices if isinstance(one.voices, dict) else {}
    return RoomMember(session_id, one.display_name, one.preferred_lang, one.joined_ms, voices)
