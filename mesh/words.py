"""Words: every closed list of strings that more than one module or process uses, as an enum.

Sections: processes and connections; failures of delivery, attempts and jobs; results and posts; outcomes that are
counted; sessions, rooms and pairing; nodes and placement; operators.

Fields of frames stay `str`, so that a word of a newer peer does not make its frame undecodable: build and compare with
the enum, and handle an unknown word as the default case. Labels of metrics are derived from these enums.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final

# --- processes and connections ------------------------------------------------------------------------


class ProcessKind(StrEnum):
    """The processes of a mesh, as `Beat.kind`, presence records and identities name them."""

    BROKER = "broker"
    EDGE = "edge"
    SELECTOR = "selector"


class SocketKind(StrEnum):
    """The peers of an edge's WebSockets."""

    SESSION = "session"
    NODE = "node"
    CONTROL = "control"


class CloseCode(IntEnum):
    """WebSocket close codes of our own."""

    #: A newer connection took over; the peer must not reconnect.
    SUPERSEDED = 4009


class ConnectionRefusal(StrEnum):
    """Why an edge refused or closed a connection."""

    FULL = "full"
    PATH = "path"
    IDLE = "idle"
    SUPERSEDED = "superseded"
    DRAINING = "draining"
    FORBIDDEN = "forbidden"


class BackpressureAction(StrEnum):
    """`Backpressure.action`, from mild to severe."""

    SLOW_DOWN = "SLOW_DOWN"
    PAUSE = "PAUSE"
    BUSY = "BUSY"


# --- failures of delivery, attempts and jobs ------------------------------------------------------------


class BounceReason(StrEnum):
    """`Bounce.reason`: why a broker returned a message to its sender."""

    UNROUTABLE = "unroutable"
    QUEUE_FULL = "queue_full"
    EXPIRED = "expired"
    NO_SELECTOR = "no_selector"


class DropReason(StrEnum):
    """Why a broker dropped a message without a Bounce."""

    MALFORMED = "malformed"
    VERSION = "version"
    SOURCE = "source"
    TOO_MANY_PEERS = "too_many_peers"


class AssignFailure(StrEnum):
    """`AssignFailed.reason`: why a node does not run an assigned job."""

    #: The edge has no such node.
    NODE_ABSENT = "node_absent"
    #: The node's socket accepts no more data.
    NODE_STUCK = "node_stuck"
    #: The node reconnected without the job; it stays usable.
    JOB_LOST = "job_lost"
    #: The reconnect grace ended. The node may have reconnected elsewhere, with the job.
    NODE_GONE = "node_gone"
    #: The node reported that it cannot finish.
    NODE_ERROR = "node_error"
    #: The node's drain deadline passed.
    DRAINED = "drained"


class UndoneReason(StrEnum):
    """Reasons of `Undone` that are a selector's own; it also forwards those of AssignFailed and Bounce."""

    RELEASED = "released"
    #: The job finished, but its result is lost.
    RESULT_LOST = "result_lost"
    #: The session's previous owner dispatched a higher attempt.
    OVERTAKEN = "overtaken"


#: Every reason of `Undone`.
UNDONE_REASONS: Final[tuple[str, ...]] = (*AssignFailure, *BounceReason, *UndoneReason)
#: Reasons that exclude that the node still runs the job: the next attempt need not wait for a fresh snapshot.
CERTAIN_REASONS: Final[frozenset[str]] = frozenset({AssignFailure.NODE_ERROR, AssignFailure.DRAINED})
#: Reasons caused by neither node nor utterance: an edge died, or the session moved. Such an attempt does not count
#: against job.attempts_max.
BLAMELESS_REASONS: Final[frozenset[str]] = frozenset(
    {
        BounceReason.UNROUTABLE,
        BounceReason.QUEUE_FULL,
        BounceReason.NO_SELECTOR,
        AssignFailure.NODE_ABSENT,
        *UndoneReason,
    }
)


class CancelReason(StrEnum):
    """`Cancel.reason`: why the session's edge cancels a job."""

    SESSION_CLOSED = "session_closed"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    GAP_TIMEOUT = "gap_timeout"
    #: Names of mesh.errors in lower case.
    JOB_TIMEOUT = "job_timeout"
    NO_AVAILABLE_NODE = "no_available_node"
    NODE_UNAVAILABLE = "node_unavailable"


class StopReason(StrEnum):
    """`CancelJob.reason` if the node's own edge stops a job; otherwise it is the reason of the Cancel."""

    EXPIRED = "expired"
    DRAINED = "drained"


class StaleReason(StrEnum):
    """`NodeStale.reason`."""

    #: Another connection owns the node: close this one.
    SUPERSEDED = "superseded"
    #: There is no record: register again.
    UNKNOWN = "unknown"


# --- results and posts ----------------------------------------------------------------------------------


class ResultVerdict(StrEnum):
    """`ResultAck.verdict`, in ResultAcks."""

    #: The client has it.
    DELIVERED = "delivered"
    DUPLICATE = "duplicate"
    #: The attempt was superseded; its result is dropped.
    FENCED = "fenced"
    NO_SESSION = "no_session"
    #: It is in the session's mail.
    PARKED = "parked"


class LatencyStage(StrEnum):
    """Stages of one utterance, in the order in which frames carry their microseconds (`stages`)."""

    #: Edge A: from the utterance's arrival to its Dispatch.
    EDGE_IN = "edge_in"
    #: From edge A to the selector.
    BROKER = "broker"
    #: At the selector: from arrival to selection, the wait queue included.
    QUEUE = "queue"
    SELECT = "select"
    COMMIT = "commit"
    #: From the selector to the node's socket.
    DELIVER = "deliver"
    #: From writing the job to the node's socket until its result arrived.
    NODE = "node"
    #: From edge B to edge A.
    BACK = "back"
    #: At edge A: from the result's arrival until its turn.
    ORDER = "order"


class ResultDrop(StrEnum):
    """Why the node's edge dropped a result."""

    FENCED = "fenced"
    NO_SESSION = "no_session"
    OVERFLOW = "overflow"


class NoticeEvent(StrEnum):
    """`Notice.event`."""

    ACCEPTED = "accepted"
    ASR_PARTIAL = "asr_partial"


class PostKind(StrEnum):
    """`Post.kind`."""

    ROOM_MEMBERS = "room_members"
    ROOM_EXPIRED = "room_expired"
    RESULT = "result"
    SIGNAL = "signal"


class PostVerdict(StrEnum):
    """`Posted.verdict`."""

    #: Delivered: acknowledged by a resumable client, written to the socket of another.
    DELIVERED = "told"
    #: It is in the session's mail.
    PARKED = "parked"
    #: Dropped: the session is detached.
    DETACHED = "away"
    NO_SESSION = "no_session"


class PostFailure(StrEnum):
    """Outcome of a post at its sender without a `Posted`."""

    NO_ANSWER = "no_answer"
    DROPPED = "dropped"


class MissingReason(StrEnum):
    """`MissingResult.reason`."""

    SILENCE_DETECTED = "silence_detected"
    GAP_TIMEOUT = "gap_timeout"
    PENDING_OVERFLOW_EVICT = "pending_overflow_evict"
    JOB_FAILED = "job_failed"


# --- outcomes that are counted --------------------------------------------------------------------------


class ResultOutcome(StrEnum):
    """Outcome of an utterance, as an edge counts it."""

    RESULT = "result"
    SILENCE = "silence"
    FAILED = "failed"
    TIMEOUT = "timeout"
    NO_NODE = "no_node"
    CANCELLED = "cancelled"
    DUPLICATE = "duplicate"
    LATE = "late"


class ResumeOutcome(StrEnum):
    """Outcome of a resume: at the same edge, from another edge, or with messages lost."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    LOST = "lost"


class HedgeOutcome(StrEnum):
    """Outcome of a hedge. OVER_BUDGET: it was not dispatched."""

    WON = "won"
    LOST = "lost"
    REFUSED = "refused"
    FAILED = "failed"
    PROMOTED = "promoted"
    CANCELLED = "cancelled"
    OVER_BUDGET = "over_budget"


class EdgeCount(StrEnum):
    """Keys of `EdgeReport.counts`."""

    ACCEPTED = "accepted"
    DELIVERED = "delivered"
    FAILED = "failed"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    IN_FLIGHT = "in_flight"
    SESSIONS = "sessions"
    NODES = "nodes"


#: Final counts of an utterance: a result, an error, no node, or no waiting client. Each utterance has exactly one.
UTTERANCE_ENDS: Final = (EdgeCount.DELIVERED, EdgeCount.FAILED, EdgeCount.REFUSED, EdgeCount.CANCELLED)


# --- sessions, rooms and pairing ------------------------------------------------------------------------


class RoomAction(StrEnum):
    """`RoomRequest.action`."""

    CREATE = "create"
    JOIN = "join"
    LEAVE = "leave"
    PREFER = "prefer"
    #: A member speaks, which renews the room.
    SPEAK = "speak"
    LOOK = "look"


class PairingOutcome(StrEnum):
    """Outcome of issuing or redeeming a pairing code."""

    ISSUED = "issued"
    UNKNOWN = "unknown"
    SLOW_NODE = "slow_node"
    PAIRED = "paired"
    WRONG = "wrong"
    SLOW_CLIENT = "slow_client"


class TakenCause(StrEnum):
    """Why a selector sent SessionTaken: another edge claimed it, a wrong edge renewed it, or there is no record."""

    CLAIMED = "claimed"
    NOTED = "noted"
    GONE = "gone"


class ParkedKind(StrEnum):
    """Entries of a session's mail."""

    RESULT = "result"
    POST = "post"


# --- nodes and placement --------------------------------------------------------------------------------


class NodeCommand(StrEnum):
    """`ControlNode.command`."""

    DRAIN = "drain"
    RESUME = "resume"


class NodeChange(StrEnum):
    """Registrations and departures, as a selector counts them."""

    REGISTERED = "registered"
    DETACHED = "detached"
    OFFLINE = "offline"
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"


class LedgerRepair(StrEnum):
    """Slots that an audit repaired."""

    #: A slot in use without a job.
    LEAKED = "leaked"
    #: A running job without a slot.
    MISSING = "missing"


class DispatchOutcome(StrEnum):
    """Outcome of a Dispatch at a selector. The first five are verdicts of the commit."""

    NEW = "new"
    BOUND = "bound"
    FULL = "full"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"
    WAITING = "waiting"
    REFUSED = "refused"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class FilterName(StrEnum):
    """Hard filters, as `Refused.removed` names them. Names are the original system's where it had one."""

    POOL = "pool_not_eligible"
    EXCLUDED = "excluded"
    OFFLINE = "offline"
    STATUS = "status_not_ready"
    DRAINING = "draining"
    UNREACHABLE = "edge_unreachable"
    GPU = "gpu_unavailable"
    RESOURCES = "resource_threshold_exceeded"
    PUBLIC = "not_in_public_pool"
    TENANT = "tenant_mismatch"
    INSTALLED = "service_not_installed"
    READY = "service_not_ready"
    MODEL = "model_not_available"
    ASR = "asr_lang_unsupported"
    AUTO = "src_auto_no_candidate"
    PAIR = "lang_pair_unsupported"
    TTS = "tts_lang_unsupported"
    SLOT = "capacity_exceeded"


class RefusalReason(StrEnum):
    """Reasons of `Refused` beside the filters."""

    NO_NODES = "no_nodes"
    #: No node could finish before the deadline.
    TOO_LATE = "deadline_unreachable"
    WAIT_QUEUE_FULL = "waiting_line_full"


class SelectorStage(StrEnum):
    """The step of selection that removed the last node; label `selector` of a metric of the original system."""

    TYPES = "types"
    PHASE3_TYPE = "phase3_type"
    RESERVE = "reserve"


class RowWord(StrEnum):
    """Kinds of strings that are interned for the kernel."""

    LANGUAGE = "language"
    SERVICE = "service"
    TENANT = "tenant"


# --- operators ------------------------------------------------------------------------------------------


class QueryKind(StrEnum):
    """`Query.kind`: reads of the HTTP API, and commands of /ws/control."""

    SELECTORS = "selectors"
    EXPLAIN = "explain"
    INVARIANTS = "invariants"
    POOLS = "pools"
    SIMULATE = "simulate"
    METRICS = "metrics"
    RECORDING = "recording"
    NODE = "node"
    WEIGHTS = "weights"
    DRAIN = "drain"
    PAIR = "pair"
    WEIGHTS_SET = "weights_set"


#: Kinds that change something: no page of the HTTP API has them.
COMMAND_KINDS: Final = frozenset({QueryKind.DRAIN, QueryKind.PAIR, QueryKind.WEIGHTS_SET})


# --- jobs at their node's edge ----------------------------------------------------------------------------


class JobOutcome(StrEnum):
    """Ends of jobs and results at the node's edge, and messages without effect, beside the verdicts of ResultAck."""

    #: The job waits for its node to reconnect.
    JOB_BUFFERED = "job_buffered"
    #: The node has more unfinished jobs than the bound: the oldest was evicted.
    JOB_EVICTED = "job_evicted"
    #: Duplicate of a result that is unacked or acknowledged.
    RESULT_REPEATED = "result_repeated"
    #: The job was cancelled before its result arrived.
    RESULT_LATE = "result_late"
    #: Result of a job that this edge did not assign.
    RESULT_UNKNOWN = "result_unknown"
    #: The same, beyond the bound per node.
    RESULT_REFUSED = "result_refused"
    #: Unacked results exceeded their bounds.
    RESULT_EVICTED = "result_evicted"
    #: No acknowledgement arrived while the job's record existed.
    RESULT_EXPIRED = "result_expired"
    #: job_ack, job_started or asr_partial of a job that does not run here.
    PROGRESS_UNKNOWN = "progress_unknown"
    #: ControlNode for a node that is not connected here.
    CONTROL_STALE = "control_stale"


# --- streamed audio at an edge ----------------------------------------------------------------------------


class ChunkAnomaly(StrEnum):
    """Irregularities in a session's stream of chunks."""

    #: A chunk that arrived before.
    DUPLICATE = "duplicate"
    #: A chunk that never arrived, or too late.
    GAP = "gap"
    #: The client began a new numbering.
    RESTART = "restart"
    #: is_final without audio: there is no utterance.
    EMPTY_FINALIZE = "empty_finalize"
