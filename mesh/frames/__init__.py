"""Frames: the messages between edges, brokers and selectors over ZeroMQ. This module has the union and the codec.

What a process has for another at one moment travels as one ZeroMQ message, a packet (mesh/frames/packets.py). A broker
reads the head of each frame only; frame and payload (audio, results) cross it unopened. The grammar is in
docs/protocol.md.

Rules: structs are arrays on the wire, so new fields go last, with a default, and fields are never reordered. A frame
that is not in `AnyFrame` cannot be decoded. The class arguments of a frame name its receivers (`to`) and its lane.
Control overtakes work: control frames are small, and late ones do harm.

Other packages import from here, whichever module defines a frame.
"""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from mesh.frames.base import (
    BROKER,
    FRAME_VERSION,
    PACKET_FRAMES_MAX,
    PAYLOAD_PARTS_MAX,
    Frame,
    Head,
    Lane,
    Role,
)
from mesh.frames.jobs import (
    Assign,
    AssignFailed,
    Cancel,
    CancelJob,
    Dispatch,
    Finished,
    FinishedAck,
    FinishedJob,
    JobDone,
    JobEvent,
    Notice,
    Placed,
    Push,
    Refused,
    ResultAck,
    ResultAcks,
    Undone,
    Waiting,
    Work,
    pair_of,
)
from mesh.frames.link import (
    Beat,
    Bounce,
    BrokerBeat,
    Busy,
    Credit,
    Failed,
    Goodbye,
)
from mesh.frames.nodes import (
    ControlNode,
    ModelMissing,
    NodeCaps,
    NodeHeartbeat,
    NodeLoad,
    NodeOffline,
    NodeRegister,
    NodeRegistered,
    NodeStale,
    StatusChanged,
)
from mesh.frames.operators import (
    EdgeReport,
    Query,
    QueryAnswer,
)
from mesh.frames.sessions import (
    Mail,
    MailAsk,
    MailTrim,
    Paired,
    PairingAsk,
    PairingCode,
    PairingUse,
    Post,
    Posted,
    RoomMember,
    RoomRequest,
    RoomSignal,
    RoomState,
    SessionClaim,
    SessionClaimed,
    SessionNote,
    SessionRelease,
    SessionReleased,
    SessionTaken,
)

__all__ = [
    "BROKER",
    "FRAMES",
    "FRAME_VERSION",
    "LANES",
    "PACKET_FRAMES_MAX",
    "PAYLOAD_PARTS_MAX",
    "AnyFrame",
    "Assign",
    "AssignFailed",
    "Beat",
    "Bounce",
    "BrokerBeat",
    "Busy",
    "Cancel",
    "CancelJob",
    "ControlNode",
    "Credit",
    "Dispatch",
    "EdgeReport",
    "Failed",
    "Finished",
    "FinishedAck",
    "FinishedJob",
    "Frame",
    "Goodbye",
    "Head",
    "JobDone",
    "JobEvent",
    "Lane",
    "Mail",
    "MailAsk",
    "MailTrim",
    "ModelMissing",
    "NodeCaps",
    "NodeHeartbeat",
    "NodeLoad",
    "NodeOffline",
    "NodeRegister",
    "NodeRegistered",
    "NodeStale",
    "Notice",
    "Paired",
    "PairingAsk",
    "PairingCode",
    "PairingUse",
    "Placed",
    "Post",
    "Posted",
    "Push",
    "Query",
    "QueryAnswer",
    "Refused",
    "ResultAck",
    "ResultAcks",
    "Role",
    "RoomMember",
    "RoomRequest",
    "RoomSignal",
    "RoomState",
    "SessionClaim",
    "SessionClaimed",
    "SessionNote",
    "SessionRelease",
    "SessionReleased",
    "SessionTaken",
    "StatusChanged",
    "Undone",
    "Waiting",
    "Work",
    "decode_frame",
    "decode_head",
    "decode_work",
    "encode",
    "frames_to",
    "lane_of",
    "pair_of",
]

AnyFrame = (
    Beat
    | BrokerBeat
    | Credit
    | Busy
    | Bounce
    | Goodbye
    | NodeRegister
    | NodeRegistered
    | NodeHeartbeat
    | NodeStale
    | NodeOffline
    | Failed
    | StatusChanged
    | ControlNode
    | ModelMissing
    | SessionClaim
    | SessionClaimed
    | SessionRelease
    | SessionReleased
    | SessionNote
    | SessionTaken
    | MailAsk
    | Mail
    | MailTrim
    | Post
    | Posted
    | RoomRequest
    | RoomState
    | RoomSignal
    | PairingAsk
    | PairingCode
    | PairingUse
    | Paired
    | Dispatch
    | Assign
    | Placed
    | AssignFailed
    | Refused
    | Waiting
    | Undone
    | JobEvent
    | Notice
    | JobDone
    | Push
    | ResultAcks
    | Finished
    | FinishedAck
    | Cancel
    | CancelJob
    | Query
    | QueryAnswer
    | EdgeReport
)

#: Every frame, in the order of the union.
FRAMES: Final[tuple[type[Frame], ...]] = get_args(AnyFrame)
#: The lane of every frame as a plain integer, which is encoded faster than a member of an enum.
LANES: Final[dict[type[Frame], int]] = {frame: int(frame.lane) for frame in FRAMES}

encode = msgspec.msgpack.Encoder().encode
decode_head = msgspec.msgpack.Decoder(Head).decode
decode_frame = msgspec.msgpack.Decoder(AnyFrame).decode
decode_work = msgspec.msgpack.Decoder(Work).decode


def frames_to(role: Role) -> frozenset[type[Frame]]:
    """The frames that a role receives."""
    return frozenset(frame for frame in FRAMES if role in frame.to)


def lane_of(frame: Frame) -> Lane:
    """The lane of a frame."""
    return frame.lane
