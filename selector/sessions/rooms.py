"""Handlers for rooms: requests of members, signals between them, and expiry of idle rooms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from lua.store.types.rooms import Room
from mesh.errors import ErrorCode, StoreError
from mesh.frames import Failed, Post, RoomRequest, RoomSignal
from mesh.ids import is_code, is_id
from mesh.jitter import sleep_jittered
from mesh.link.link import Received, bytes_of
from mesh.log import get_logger
from mesh.random_ids import new_code, new_room_id
from mesh.words import RoomAction
from selector.context import SelectorContext
from selector.core.reply import Reply, store_down
from selector.metrics import SIGNAL_ACTION, UNKNOWN_ACTION
from selector.sessions.core import room_replies

#: Delivers messages to sessions, wherever they are.
Poster = Callable[[Sequence[tuple[Post, bytes]]], Awaitable[None]]

#: The store expires a few rooms of a cell per call; at most this many calls per scan.
SCAN_PAGES_MAX: Final = 16

log = get_logger()


class RoomHandler:
    """Handlers for the frames of rooms. `post` delivers messages to sessions."""

    def __init__(self, context: SelectorContext, post: Poster) -> None:
        self._store = context.store.rooms
        self._config = context.config
        self._metrics = context.metrics
        self._send = context.send
        self._post = post
        self._actions: dict[str, Callable[[RoomRequest], Awaitable[tuple[str, Room]]]] = {
            RoomAction.CREATE: self._create,
            RoomAction.JOIN: self._join,
            RoomAction.LEAVE: self._leave,
            RoomAction.PREFER: self._prefer,
            RoomAction.SPEAK: self._speak,
            RoomAction.LOOK: self._look,
        }
        assert set(self._actions) == set(RoomAction), "every action has a handler"

    # --- requests -------------------------------------------------------------------------------------------

    async def on_room_request(self, frame: RoomRequest, message: Received) -> None:
        """A member's request: create, join, leave, set a preference, speak, list members."""
        answer = _refused(frame)
        if answer is None:
            try:
                answer = room_replies.on_room(frame, *await self._actions[frame.action](frame))
            except StoreError:
                self._reply(message, store_down(frame.ref, frame.edge))
                raise
        self._count(frame.action if frame.action in self._actions else UNKNOWN_ACTION, answer)
        self._reply(message, answer)

    async def _create(self, frame: RoomRequest) -> tuple[str, Room]:
        """Try random codes until one is free. The reserved code makes retries, also by other selectors, idempotent."""
        code, room = "", Room("taken")
        for _ in range(self._config.rooms.code_tries_max):
            code = await self._store.reserve_code(frame.session_id, new_code(), instead_of=code)
            name, lang = frame.display_name, frame.preferred_lang
            room = await self._store.create(code, new_room_id(), frame.session_id, name, lang)
            if room.verdict == "ok":
                break
        return code, room

    async def _join(self, frame: RoomRequest) -> tuple[str, Room]:
        code = frame.room_code
        return code, await self._store.join(code, frame.session_id, frame.display_name, frame.preferred_lang)

    async def _leave(self, frame: RoomRequest) -> tuple[str, Room]:
        return frame.room_code, await self._store.leave(frame.room_code, frame.session_id)

    async def _prefer(self, frame: RoomRequest) -> tuple[str, Room]:
        code = frame.room_code
        return code, await self._store.set_voice(code, frame.session_id, frame.target, wanted=frame.wanted)

    async def _speak(self, frame: RoomRequest) -> tuple[str, Room]:
        return frame.room_code, await self._store.speak(frame.room_code, frame.session_id)

    async def _look(self, frame: RoomRequest) -> tuple[str, Room]:
        return frame.room_code, await self._store.get(frame.room_code)

    # --- signals --------------------------------------------------------------------------------------------

    async def on_room_signal(self, frame: RoomSignal, message: Received) -> None:
        """Relay a signal to another member who accepts it. The receiver's edge replies."""
        [body] = message.payload
        answer = _refused(frame)
        if answer is None:
            try:
                answer = room_replies.on_signal(frame, await self._store.get(frame.room_code))
            except StoreError:
                self._reply(message, store_down(frame.ref, frame.edge))
                raise
        self._count(SIGNAL_ACTION, answer)
        if isinstance(answer.frame, Post):
            await self._post([(answer.frame, bytes_of(body))])
        else:
            self._reply(message, answer)

    # --- expiry --------------------------------------------------------------------------------------------

    async def scan(self) -> None:
        """Expire idle rooms until cancelled. Every selector scans; each room is expired by one."""
        while True:
            await sleep_jittered(self._config.rooms.scan_ms)
            await asyncio.gather(*(self._scan_cell(cell) for cell in range(self._config.mesh.cells)))

    async def _scan_cell(self, cell: int) -> None:
        for _ in range(SCAN_PAGES_MAX):
            try:
                ended = await self._store.expire(cell)
            except StoreError as error:
                self._metrics.store_errors_total.labels("room_scan").inc()
                log.warning("room_scan_failed", cell=cell, error=str(error))
                return
            if not ended:
                return
            for code, room in ended:
                self._metrics.rooms_expired_total.inc()
                log.info("room_expired", room_code=code, room_id=room.room_id, members=len(room.members))
                silent_ms = self._config.rooms.silent_ms
                await self._post(
                    [room_replies.on_expired(code, member.session_id, silent_ms) for member in room.members]
                )

    # --- inside -----------------------------------------------------------------------------------------------

    def _count(self, action: str, answer: Reply) -> None:
        outcome = answer.frame.code if isinstance(answer.frame, Failed) else "ok"
        self._metrics.room_requests_total.labels(action, outcome).inc()

    def _reply(self, message: Received, answer: Reply) -> None:
        self._send(answer.to, message.head.cell, answer.frame, prefer=message.broker)


def _refused(frame: RoomRequest | RoomSignal) -> Reply | None:
    """Failed for a malformed request; None if it is valid."""
    if not is_id(frame.session_id):
        return room_replies.refusal(frame, ErrorCode.INVALID_ID, "`session_id` is not an id")
    action = frame.action if isinstance(frame, RoomRequest) else ""
    if action and action not in frozenset(RoomAction):
        return room_replies.refusal(frame, ErrorCode.INVALID_MESSAGE, f"nothing in a room is called {action[:64]!r}")
    if action != RoomAction.CREATE and not is_code(frame.room_code):
        return room_replies.refusal(frame, ErrorCode.INVALID_ROOM_CODE, "a room code is six digits")
    return None
