"""Rooms: calls to the cells of rooms on behalf of sessions. Replies come back to the session as events."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from edge.link.core.rpc import Reply
from edge.link.link import EdgeLink
from edge.rooms.core.events import RoomCall, RoomReplied, SignalReplied
from mesh.frames import Failed, Posted, RoomRequest, RoomSignal, RoomState


class Caller(Protocol):
    """A session that calls, also one that has ended meanwhile."""

    @property
    def session_id(self) -> str:
        """Its id."""

    def handle(self, event: RoomReplied | SignalReplied) -> None:
        """Handle an event."""


class RoomCalls:
    """All calls of this edge about rooms."""

    def __init__(self, link: EdgeLink) -> None:
        self._link = link

    def call(self, caller: Caller, call: RoomCall) -> None:
        """Call the room's cell (create: the session's)."""

        def on_reply(reply: Reply | None) -> None:
            caller.handle(RoomReplied(call, reply if isinstance(reply, RoomState | Failed) else None))

        member = call.member or caller.session_id
        self._link.ask(_request(self._link.identity, member, call), call.code or caller.session_id, on_reply)

    def signal(self, caller: Caller, code: str, target: str, body: bytes) -> None:
        """Pass a webrtc_* message to another member."""

        def on_reply(reply: Reply | None) -> None:
            caller.handle(SignalReplied(reply if isinstance(reply, Posted | Failed) else None))

        frame = partial(
            RoomSignal, edge=self._link.identity, session_id=caller.session_id, room_code=code, target=target
        )
        self._link.ask(frame, code, on_reply, payload=(body,))


def _request(edge: str, member: str, call: RoomCall) -> Callable[[str], RoomRequest]:
    return lambda ref: RoomRequest(
        ref,
        edge,
        member,
        call.action,
        call.code,
        display_name=call.display_name,
        preferred_lang=call.preferred_lang,
        target=call.target,
        wanted=call.wanted,
    )
