"""The part of a fake selector that keeps rooms and pairing codes, in dicts."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mesh.clock import wall_ms
from mesh.errors import ErrorCode
from mesh.frames import (
    Failed,
    Paired,
    PairingAsk,
    PairingCode,
    PairingUse,
    Post,
    RoomMember,
    RoomRequest,
    RoomSignal,
    RoomState,
)
from mesh.link.link import Link, Received


class FakeRooms:
    """Handlers of FakeSelector."""

    link: Link
    nodes: dict[str, tuple[str, int]]
    sessions: dict[str, str]

    def __init__(self) -> None:
        #: Pairing code -> node, and use -> node.
        self.codes: dict[str, str] = {}
        self.uses: dict[str, str] = {}
        #: Room code -> its members by session.
        self.rooms: dict[str, dict[str, RoomMember]] = {}
        #: Requests about rooms until now: a version that grows with every change of any of them.
        self.room_requests = 0
        #: Set: what every question about rooms or pairing is answered with.
        self.fault: ErrorCode | None = None

    def _on_pairingask(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, PairingAsk)
        if self._failed(frame, None if frame.node_id in self.nodes else ErrorCode.NOT_REGISTERED):
            return
        code = f"{100_001 + len(self.codes)}"
        self.codes[code] = frame.node_id
        self.link.send(frame.edge, 0, PairingCode(frame.ref, frame.node_id, code, 300_000))

    def _on_pairinguse(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, PairingUse)
        node_id = self.uses.get(frame.use) or self.codes.pop(frame.code, "")
        if self._failed(frame, None if node_id else ErrorCode.INVALID_PAIRING_CODE):
            return
        self.uses[frame.use] = node_id
        self.link.send(frame.edge, 0, Paired(frame.ref, node_id))

    def _on_roomrequest(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, RoomRequest)
        code = frame.room_code or f"{200_001 + len(self.rooms)}"
        if frame.action == "create":
            self.rooms[code] = {}
        members = self.rooms.get(code)
        fault = None if members is not None or frame.action == "leave" else ErrorCode.ROOM_NOT_FOUND
        if members is not None and frame.action in ("prefer", "speak", "look") and frame.session_id not in members:
            fault = ErrorCode.NOT_IN_ROOM
        if self._failed(frame, fault):
            return
        self._change(frame, {} if members is None else members)
        listed = [] if members is None else list(members.values())
        self.room_requests += 1
        self.link.send(frame.edge, 0, RoomState(frame.ref, code, f"room-{code}", listed, self.room_requests))

    def _change(self, frame: RoomRequest, members: dict[str, RoomMember]) -> None:
        who = frame.session_id
        if frame.action in ("create", "join"):
            members[who] = RoomMember(who, frame.display_name, frame.preferred_lang, wall_ms())
        elif frame.action == "leave":
            members.pop(who, None)
        elif frame.action == "prefer":
            voices = {**members[who].voices, frame.target: frame.wanted}
            members[who] = replace(members[who], voices=voices)

    def _on_roomsignal(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, RoomSignal)
        members = self.rooms.get(frame.room_code, {})
        fault = None if frame.session_id in members else ErrorCode.NOT_IN_ROOM
        if fault is None and frame.target not in members:
            fault = ErrorCode.MEMBER_NOT_FOUND
        if fault is None and not members[frame.target].voices.get(frame.session_id, True):
            fault = ErrorCode.RAW_VOICE_DECLINED
        if self._failed(frame, fault):
            return
        key = f"signal:{frame.edge}:{frame.ref}"
        post = Post(frame.ref, frame.edge, frame.target, "signal", key, room_code=frame.room_code)
        self.link.send(self.sessions[frame.target], 0, post, *message.payload)

    def _failed(self, frame: Any, fault: ErrorCode | None) -> bool:
        code = self.fault or fault
        if code is not None:
            self.link.send(frame.edge, 0, Failed(frame.ref, code.name, f"refused: {code.name}"))
        return code is not None
