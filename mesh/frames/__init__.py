"""Frames: what edges, brokers and selectors say to one another over ZeroMQ.

Every message is a multipart: `head, frame, *payload`. A broker decodes the head and nothing else, so
the frame and its payload (audio, results) cross it untouched. The grammar is in docs/protocol.md.

Rules: structs are arrays on the wire, so new fields go last, with a default, and fields are never
reordered. A frame that is not listed in `AnyFrame` cannot be decoded. Its class
arguments name its receivers (`to`) and its lane; control overtakes work: such frames are small, and late ones do harm.
"""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from mesh.frames.base import BROKER as BROKER
from mesh.frames.base import FRAME_VERSION as FRAME_VERSION
from mesh.frames.base import PAYLOAD_PARTS_MAX as PAYLOAD_PARTS_MAX
from mesh.frames.base import Frame as Frame
from mesh.frames.base import Head as Head
from mesh.frames.base import Lane as Lane
from mesh.frames.base import Role as Role
from mesh.frames.sessions import Mail as Mail
from mesh.frames.sessions import MailAsk as MailAsk
from mesh.frames.sessions import MailTrim as MailTrim
from mesh.frames.sessions import Paired as Paired
from mesh.frames.sessions import PairingAsk as PairingAsk
from mesh.frames.sessions import PairingCode as PairingCode
from mesh.frames.sessions import PairingUse as PairingUse
from mesh.frames.sessions import Post as Post
from mesh.frames.sessions import Posted as Posted
from mesh.frames.sessions import RoomMember as RoomMember
from mesh.frames.sessions import RoomRequest as RoomRequest
from mesh.frames.sessions import RoomSignal as RoomSignal
from mesh.frames.sessions import RoomState as RoomState
from mesh.frames.sessions import SessionClaim as SessionClaim
from mesh.frames.sessions import SessionClaimed as SessionClaimed
from mesh.frames.sessions import SessionNote as SessionNote
from mesh.frames.sessions import SessionRelease as SessionRelease
from mesh.frames.sessions import SessionReleased as SessionReleased
from mesh.frames.sessions import SessionTaken as SessionTaken

# --- links: between a broker and its peers --------------------------------------------------------


class Beat(Frame, frozen=True, to=Role.BROKER, lane=Lane.CONTROL):
    """Peer -> broker, every beat_ms: I am here. The first one introduces the peer."""

    kind: str  # mesh.words.ProcessKind: EDGE or SELECTOR
    #: How many work messages the broker may have outstanding here (selectors; 0 for edges).
    window: int
    #: Work messages taken from this broker since the link began; counters heal lost credit.
    consumed: int
    draining: bool = False


class BrokerBeat(Frame, frozen=True, to=Role.LINK, lane=Lane.CONTROL):
    """Broker -> peer, every beat_ms. A new boot id means a new broker: counters start again."""

    broker_id: str
    boot_id: str
    selectors_live: int
    #: Work messages handed to this peer's pipe so far, from a base of the broker's choice (mesh/link/credit.py).
    sent: int = 0


class Credit(Frame, frozen=True, to=Role.BROKER, lane=Lane.CONTROL):
    """Selector -> broker: total work messages consumed so far."""

    consumed: int


class Busy(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Broker -> sender: no selector has credit. Parts that follow: the original head and frame."""

    retry_after_ms: int


class Bounce(Frame, frozen=True, to=Role.EDGE | Role.SELECTOR, lane=Lane.CONTROL):
    """Broker -> sender: could not be delivered. Parts that follow: the original head and frame."""

    reason: str  # mesh.words.BounceReason


class Goodbye(Frame, frozen=True, to=Role.BROKER, lane=Lane.CONTROL):
    """Peer -> broker: I am leaving; send nothing more."""


# --- nodes: edge <-> selector ---------------------------------------------------------------------


class NodeCaps(msgspec.Struct, frozen=True, array_like=True):
    """What a node can do, flattened by its edge from node_register and node_heartbeat."""

    version: str
    platform: str
    cpu_cores: int
    memory_gb: float
    gpu_count: int
    gpu_memory_gb: float
    services_installed: list[str]  # service types, lower case
    services_ready: list[str]
    asr_langs: list[str]
    semantic_langs: list[str]
    tts_langs: list[str]  # empty = not said: any target the semantic stage can do
    accept_public: bool
    max_jobs: int
    region: str = ""
    gpu_tier: str = ""
    tenant_id: str = ""
    models: list[str] = []  # ids of enabled models
    pairs: list[str] = []  # directed, as pair_of spells them; empty = any of asr_langs to any of semantic_langs


class NodeLoad(msgspec.Struct, frozen=True, array_like=True):
    """What a node says of its load in a heartbeat."""

    cpu_percent: float = 0.0
    gpu_percent: float = 0.0
    mem_percent: float = 0.0
    running_jobs: int = 0


class NodeRegister(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector: a node registered on a socket of mine. Answer: NodeRegistered | Failed."""

    ref: str
    node_id: str
    edge: str
    caps: NodeCaps


class NodeRegistered(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge. The epoch names this connection; a later registration gets a higher one."""

    ref: str
    node_id: str
    epoch: int
    status: str


class NodeHeartbeat(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector. `caps` is None while unchanged since the last one sent. Answer: NodeStale or none."""

    node_id: str
    edge: str
    epoch: int
    load: NodeLoad
    caps: NodeCaps | None = None
    #: What node and edge know to be running there, as lease members (mesh.keys.lease_member); None = not said.
    jobs: list[str] | None = None


class NodeStale(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge: the epoch is not the current one.

    "superseded": another connection owns the node, close yours. "unknown": the record is gone, register again.
    """

    node_id: str
    epoch: int
    reason: str


class NodeOffline(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge -> selector: the node's socket closed. Ignored unless the epoch is the current one.

    The node is detached from then on: it costs more to choose it, and after edge.reconnect_grace_ms it is offline.
    """

    node_id: str
    edge: str
    epoch: int
    reason: str


class StatusChanged(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge: the node's status is another one now, and why."""

    node_id: str
    epoch: int
    status: str
    reason: str


class ControlNode(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge: an operator's command for a node of yours.

    "drain": tell the node, give it no more, and hand over what it has not finished by `deadline_ms` (wall clock).
    "resume": the drain is off.
    """

    node_id: str
    epoch: int
    command: str
    reason: str
    deadline_ms: int = 0


class ModelMissing(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge -> selector, by the node's cell: the node said MODEL_NOT_AVAILABLE, `count` times since the last word."""

    node_id: str
    epoch: int
    service_id: str
    #: The service type that the id belongs to, "" if its edge cannot tell.
    service: str
    version: str
    reason: str
    count: int = 1


class Failed(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge: the request `ref` was refused; `code` is from mesh.errors."""

    ref: str
    code: str
    message: str


# --- jobs -----------------------------------------------------------------------------------------


class Dispatch(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge A -> selector: find a node for this utterance. Payload: work (a Work struct), audio.

    Repeated with the same request_id and attempt until `Placed`, `Refused` or `Undone` answers.
    """

    request_id: str
    attempt: int  # 1 at first; a higher attempt replaces the binding of a lower one
    session_id: str
    utterance_index: int
    edge: str
    tenant_id: str
    src_lang: str
    tgt_lang: str
    lang_a: str
    lang_b: str
    services: list[str]
    public: bool
    audio_ms: int
    deadline_ms: int  # wall clock
    trace_id: str
    excluded: list[str] = []  # node ids
    preferred_node: str = ""  # paired with the session
    warm_node: str = ""  # had the session's last utterance
    auto_langs: list[str] = []  # src "auto": the speech is in one of these
    models: list[str] = []  # ids of models that the node must have
    region: str = ""
    gpu_tier: str = ""
    #: A hedge: the attempt before this one goes on beside it.
    beside: bool = False


class Work(msgspec.Struct, frozen=True, array_like=True):
    """What the node's edge needs to write job_assign; opaque to brokers and selectors."""

    src_lang: str
    tgt_lang: str
    audio_format: str
    sample_rate: int
    pipeline: dict[str, bool]
    trace_id: str
    dialect: str | None = None
    features: dict[str, bool] | None = None
    mode: str | None = None
    lang_a: str | None = None
    lang_b: str | None = None
    auto_langs: list[str] | None = None
    enable_streaming_asr: bool | None = None
    partial_update_interval_ms: int | None = None
    group_id: str | None = None
    part_index: int | None = None
    context_text: str | None = None
    padding_ms: int | None = None
    is_manual_cut: bool = False
    is_pause_triggered: bool = False
    is_timeout_triggered: bool = False
    is_max_duration_triggered: bool = False
    turn_id: str | None = None


class Assign(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge B, which owns the node: run this. Payload: work, audio. Answer: Placed to A, or AssignFailed."""

    job_id: str
    attempt: int
    node_id: str
    node_epoch: int
    request_id: str
    session_id: str
    utterance_index: int
    session_edge: str
    deadline_ms: int
    trace_id: str
    pair: str = ""  # as pair_of spells it; JobDone repeats it, and what follows, for the speed model
    audio_ms: int = 0
    #: A result that takes longer than this from now on is late for that node.
    late_after_ms: int = 0


class Placed(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Edge B -> edge A: the node has the job. Ends A's resending of Dispatch."""

    request_id: str
    attempt: int
    job_id: str
    node_id: str
    session_id: str
    utterance_index: int
    late_after_ms: int = 0


class AssignFailed(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge B -> selector: that node is not here, its socket is stuck, it came back without the job, or it went away.

    "node_gone" is said long after the node went: if it lives by then with a newer epoch elsewhere, it keeps the job.
    """

    job_id: str
    attempt: int
    node_id: str
    node_epoch: int
    request_id: str
    session_edge: str
    reason: str  # mesh.words.AssignFailure


class Refused(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge A: no node can take it now. retry_after_ms 0 = do not try again."""

    request_id: str
    attempt: int
    code: str
    reason: str
    #: Filter name -> nodes it removed.
    removed: dict[str, int]
    retry_after_ms: int
    #: The node that came closest, and what stopped it, in words.
    nearest_node: str = ""
    nearest: str = ""
    waited_ms: int = 0


class Waiting(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge A: no node is free, the request stands in line here. Ask again after that time, not sooner."""

    request_id: str
    attempt: int
    reason: str
    ask_again_ms: int


class Undone(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge A: the attempt came to nothing; dispatch again with attempt + 1."""

    request_id: str
    attempt: int
    job_id: str
    node_id: str
    reason: str
    exclude_node: bool


class JobEvent(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge B -> selector: the job moved. `event`: events of mesh.states.job, separated by blanks, in order."""

    job_id: str
    attempt: int
    node_id: str
    event: str


class Notice(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Edge B -> edge A, best effort: progress worth showing. Payload for asr_partial: the node's JSON text."""

    session_id: str
    utterance_index: int
    job_id: str
    attempt: int
    event: str  # mesh.words.NoticeEvent
    request_id: str


class JobDone(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge B -> selector: the node's job_result. Payload: its JSON text. Repeated until `ResultAck`."""

    job_id: str
    attempt: int
    node_id: str
    node_edge: str
    request_id: str
    session_id: str
    utterance_index: int
    session_edge: str
    success: bool
    #: How often this has been sent before; > 0 makes the selector look up the session's owner.
    resend: int = 0
    #: From the job's way into the node's socket to its result; -1 = not known.
    took_ms: int = -1
    pair: str = ""
    audio_ms: int = 0


class Push(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge A: a result for a session of yours. Payload: the node's job_result JSON text."""

    job_id: str
    attempt: int
    node_id: str
    node_edge: str
    request_id: str
    session_id: str
    utterance_index: int


class ResultAck(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Edge A or selector -> edge B: stop repeating JobDone.

    verdict: "delivered" | "duplicate" | "fenced" | "no_session" | "parked" (it waits in the session's mail).
    """

    job_id: str
    attempt: int
    node_id: str
    verdict: str


class Cancel(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge A -> selector: nobody waits for this job any more."""

    request_id: str
    job_id: str
    attempt: int
    node_id: str
    session_id: str
    reason: str


class CancelJob(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge B: tell the node to stop (best effort)."""

    job_id: str
    attempt: int
    node_id: str
    trace_id: str
    reason: str


# --- operators ------------------------------------------------------------------------------------


class Query(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector: a question or command of an operator. Answer: QueryAnswer. Kinds: docs/protocol.md."""

    ref: str
    edge: str
    kind: str
    params: dict[str, list[str]]


class QueryAnswer(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge. Payload: JSON, or bytes where the kind says so. `status` as in HTTP."""

    ref: str
    status: int


class EdgeReport(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge -> selector, every presence_ms: I live, and this is what became of my utterances."""

    edge: str
    host: str
    pid: int
    version: str
    started_at_ms: int
    #: accepted, delivered, failed, refused, cancelled, in_flight, sessions, nodes.
    counts: dict[str, int]


AnyFrame = (
    Beat | BrokerBeat | Credit | Busy | Bounce | Goodbye
    | NodeRegister | NodeRegistered | NodeHeartbeat | NodeStale | NodeOffline | Failed
    | StatusChanged | ControlNode | ModelMissing
    | SessionClaim | SessionClaimed | SessionRelease | SessionReleased | SessionNote | SessionTaken
    | MailAsk | Mail | MailTrim | Post | Posted
    | RoomRequest | RoomState | RoomSignal | PairingAsk | PairingCode | PairingUse | Paired
    | Dispatch | Assign | Placed | AssignFailed | Refused | Waiting | Undone
    | JobEvent | Notice | JobDone | Push | ResultAck | Cancel | CancelJob
    | Query | QueryAnswer | EdgeReport
)  # fmt: skip

#: Every frame, in the order of the union.
FRAMES: Final[tuple[type[Frame], ...]] = get_args(AnyFrame)

_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(Head)
_frame_decoder = msgspec.msgpack.Decoder(AnyFrame)
_work_decoder = msgspec.msgpack.Decoder(Work)

encode = _encoder.encode
decode_head = _head_decoder.decode
decode_frame = _frame_decoder.decode
decode_work = _work_decoder.decode


def pair_of(src_lang: str, tgt_lang: str) -> str:
    """A directed language pair as one word, as in `zh>en`."""
    return f"{src_lang}>{tgt_lang}"


def frames_to(role: Role) -> frozenset[type[Frame]]:
    """The frames that a role receives."""
    return frozenset(frame for frame in FRAMES if role in frame.to)


def lane_of(frame: Frame) -> Lane:
    """The lane a frame travels in."""
    return frame.lane
