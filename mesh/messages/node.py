"""Messages between nodes and edges on /ws/node: registration, heartbeats and control, the unions and their codecs.

Messages about jobs are in jobs.py, parts of registration and heartbeat in capabilities.py; other packages import all of
them from here. docs/protocol.md has the tables. The messages are the union of the original system's generations, plus
extensions that an original node neither sends nor sees: more fields in node_register, the job list in node_heartbeat,
the deadline in node_control, and job_result_ack for nodes that register with result_ack. Their meaning for scheduling
is in edge/nodes/core/capabilities.py.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias, get_args

from msgspec import Meta

from mesh.messages.base import (
    Codec,
    ErrorMessage,
    ExtraResult,
    FeatureFlags,
    Id,
    Line,
    Message,
    Mode,
    PipelineConfig,
    SegmentsMeta,
    ServiceTimings,
    Signed,
    Whole,
    Word,
    Words,
    always,
    encode,
    encode_utf8,
    error_message,
    error_of,
)
from mesh.messages.capabilities import (
    AsrMetrics,
    Capabilities,
    CapabilityByType,
    GpuInfo,
    Hardware,
    InstalledModel,
    InstalledService,
    LanguagePair,
    Models,
    NmtCapability,
    NodeLanguageCapabilities,
    ProcessingMetrics,
    RerunMetrics,
    ResourceUsage,
    Services,
)
from mesh.messages.jobs import (
    JobAck,
    JobAssign,
    JobCancel,
    JobError,
    JobRef,
    JobResult,
    JobResultAck,
    JobStarted,
    NodeAsrPartial,
    NodeError,
)
from mesh.states.job import RUNNING_JOBS_MAX

__all__ = [
    "CAPABILITY_SCHEMA_VERSION",
    "FROM_NODE",
    "FROM_SCHEDULER",
    "AsrMetrics",
    "CapabilityByType",
    "ErrorMessage",
    "ExtraResult",
    "FeatureFlags",
    "GpuInfo",
    "Hardware",
    "InstalledModel",
    "InstalledService",
    "JobAck",
    "JobAssign",
    "JobCancel",
    "JobError",
    "JobRef",
    "JobResult",
    "JobResultAck",
    "JobStarted",
    "LanguagePair",
    "Mode",
    "NmtCapability",
    "NodeAsrPartial",
    "NodeControl",
    "NodeError",
    "NodeHeartbeatMessage",
    "NodeLanguageCapabilities",
    "NodeMessage",
    "NodeRegisterAck",
    "NodeRegisterMessage",
    "NodeStatus",
    "PairingCodeMessage",
    "PairingCodeRequest",
    "PipelineConfig",
    "ProcessingMetrics",
    "RerunMetrics",
    "ResourceUsage",
    "SchedulerMessage",
    "SegmentsMeta",
    "ServiceTimings",
    "decode_from_node",
    "decode_from_scheduler",
    "decode_job_result",
    "encode",
    "encode_utf8",
    "error_message",
    "error_of",
]

CAPABILITY_SCHEMA_VERSION: Final = "2.0"


class NodeRegisterMessage(Message, frozen=True, kw_only=True, tag="node_register"):
    """The first message of a node. Reply: node_register_ack or error."""

    node_id: Id | None = None
    version: Word
    capability_schema_version: Word | None = None
    platform: Word  # "windows" | "linux" | "macos"
    hardware: Hardware
    installed_models: Models = always([])
    installed_services: Services | None = None
    #: Required by capability schema 2.0. Checked by the edge, whose error names the schema.
    capability_by_type: Capabilities | None = None
    features_supported: FeatureFlags = always(FeatureFlags())
    advanced_features: Words | None = None
    accept_public_jobs: bool
    language_capabilities: NodeLanguageCapabilities | None = None
    # extensions
    max_concurrent_jobs: Whole | None = None
    region: Word | None = None
    gpu_tier: Word | None = None
    result_ack: bool | None = None
    #: job_assign and job_result may be binary messages.
    binary_messages: bool | None = None
    #: The node takes jobs of this tenant only.
    tenant_id: Id | None = None


class NodeHeartbeatMessage(Message, frozen=True, kw_only=True, tag="node_heartbeat"):
    """Every 15 s, and soon after a capability changed. An omitted list is unchanged."""

    node_id: Id
    timestamp: Signed
    resource_usage: ResourceUsage
    installed_models: Models | None = None
    installed_services: Services | None = None
    capability_by_type: Capabilities | None = None
    rerun_metrics: RerunMetrics | None = None
    asr_metrics: AsrMetrics | None = None
    processing_metrics: ProcessingMetrics | None = None
    language_capabilities: NodeLanguageCapabilities | None = None
    # extension: the jobs that run at the node
    jobs: Annotated[list[JobRef], Meta(max_length=RUNNING_JOBS_MAX)] | None = None


class NodeRegisterAck(Message, frozen=True, kw_only=True):
    """The node is registered. It must keep this id."""

    node_id: Id
    message: Line = always("registered")
    status: Word = always("registering")
    # extension: binary messages were agreed
    binary_messages: bool | None = None


class NodeStatus(Message, frozen=True, kw_only=True):
    """The node's status changed. As in the original, `reason` is written even when null, `timestamp` is in seconds."""

    node_id: Id
    status: Word  # "registering" | "ready" | "degraded" | "draining" | "offline"
    reason: Line | None
    timestamp: Signed


class NodeControl(Message, frozen=True, kw_only=True):
    """An operator's command: "drain" (finish the running jobs; no more are assigned) or "resume"."""

    command: Word
    reason: Line | None = None
    # extension: time from now until unfinished jobs are dispatched to other nodes
    deadline_ms: Whole | None = None


class PairingCodeRequest(Message, frozen=True, kw_only=True):
    """Requests a code by which a client can choose this node. Reply: pairing_code or error."""

    node_id: Id


class PairingCodeMessage(Message, frozen=True, kw_only=True, tag="pairing_code"):
    """A code for session_init, valid once and for that time: the client's session prefers this node."""

    node_id: Id
    code: Word
    expires_in_ms: Whole


NodeMessage: TypeAlias = (
    NodeRegisterMessage
    | NodeHeartbeatMessage
    | JobAck
    | JobStarted
    | NodeAsrPartial
    | JobResult
    | NodeError
    | PairingCodeRequest
)
SchedulerMessage: TypeAlias = (
    NodeRegisterAck
    | ErrorMessage
    | NodeStatus
    | JobAssign
    | JobCancel
    | NodeControl
    | JobResultAck
    | PairingCodeMessage
)

FROM_NODE: Final[Codec[NodeMessage]] = Codec(NodeMessage, get_args(NodeMessage))
FROM_SCHEDULER: Final[Codec[SchedulerMessage]] = Codec(SchedulerMessage, get_args(SchedulerMessage))
_RESULT: Final[Codec[JobResult]] = Codec(JobResult, (JobResult,))

#: A node's message, for edges; PeerError(INVALID_MESSAGE) if it is malformed.
decode_from_node: Final = FROM_NODE.decode
#: An edge's message, for nodes; PeerError(INVALID_MESSAGE) if it is malformed.
decode_from_scheduler: Final = FROM_SCHEDULER.decode
#: A job_result as edges forward it; PeerError(INVALID_MESSAGE) if it is malformed.
decode_job_result: Final = _RESULT.decode
