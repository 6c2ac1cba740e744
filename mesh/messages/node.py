"""What nodes and edges say to one another on /ws/node. One struct per message; docs/protocol.md has the tables.

The union of what the original's generations say, plus extensions that an original node neither sends nor sees: more
fields in node_register, the job list in node_heartbeat, the deadline in node_control, and job_result_ack for nodes that
asked for it. What a node's words mean for scheduling is worked out in edge/nodes/core/capabilities.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias, get_args

import msgspec
from msgspec import Meta, Raw

from mesh.messages.base import (
    Attempt,
    Codec,
    Id,
    Lang,
    Langs,
    Line,
    Message,
    Part,
    SampleRate,
    Signed,
    Text,
    Whole,
    Word,
    Words,
    always,
    check_audio,
)
from mesh.messages.base import ErrorMessage as ErrorMessage
from mesh.messages.base import ExtraResult as ExtraResult
from mesh.messages.base import FeatureFlags as FeatureFlags
from mesh.messages.base import PipelineConfig as PipelineConfig
from mesh.messages.base import SegmentsMeta as SegmentsMeta
from mesh.messages.base import ServiceTimings as ServiceTimings
from mesh.messages.base import encode as encode
from mesh.messages.base import encode_utf8 as encode_utf8
from mesh.messages.base import error_message as error_message
from mesh.messages.base import error_of as error_of
from mesh.messages.client import Mode
from mesh.states.job import RUNNING_JOBS_MAX

CAPABILITY_SCHEMA_VERSION: Final = "2.0"

#: Whole on output if it was whole: the original reads an unsigned integer.
Gigabytes = Annotated[int, Meta(ge=0, le=1_000_000)] | Annotated[float, Meta(ge=0, le=1_000_000)]
Percent = int | float

# --- parts ----------------------------------------------------------------------------------------


class GpuInfo(Part, frozen=True, kw_only=True):
    """One GPU."""

    name: Word
    memory_gb: Gigabytes


class Hardware(Part, frozen=True, kw_only=True):
    """The machine."""

    cpu_cores: Whole
    memory_gb: Gigabytes
    gpus: Annotated[list[GpuInfo], Meta(max_length=64)] | None = None


class InstalledModel(Part, frozen=True, kw_only=True):
    """A model on the node's disk."""

    model_id: Word
    kind: Word  # "asr" | "nmt" | "tts" | "vad" | "emotion" | "other"
    src_lang: Lang | None = None
    tgt_lang: Lang | None = None
    dialect: Word | None = None
    version: Word
    enabled: bool | None = None


class InstalledService(Part, frozen=True, kw_only=True):
    """A service on the node. The earliest nodes send only service_id, version and platform."""

    service_id: Word
    type: Word = always("")  # "asr" | "nmt" | "tts" | "tone" | "semantic" | ...; lower case
    device: Word = always("")  # "gpu" | "cpu"
    status: Word = always("")  # "running" | "stopped" | "error"
    version: Word | None = None
    model_id: Word | None = None
    engine: Word | None = None
    mem_mb: Whole | None = None
    warmup_ms: Whole | None = None
    last_error: Line | None = None

    def __post_init__(self) -> None:
        for name in ("type", "device", "status"):
            _lower(self, name)


class CapabilityByType(Part, frozen=True, kw_only=True):
    """Whether the node can do one kind of service now. Types that we do not know are kept as they are."""

    type: Word  # lower case
    ready: bool
    reason: Line | None = None
    ready_impl_ids: Words | None = None

    def __post_init__(self) -> None:
        _lower(self, "type")


def _lower(part: Part, name: str) -> None:
    word = getattr(part, name)
    if not word.islower():
        msgspec.structs.force_setattr(part, name, word.strip().lower())


class NmtCapability(Part, frozen=True, kw_only=True):
    """What one translation model can do."""

    model_id: Word
    languages: Langs
    rule: Word  # "any_to_any" | "any_to_en" | "en_to_any" | "specific_pairs"
    blocked_pairs: Any = None
    supported_pairs: Any = None


class LanguagePair(Part, frozen=True, kw_only=True):
    """A directed pair."""

    src: Lang
    tgt: Lang
    semantic_on_src: bool | None = None
    semantic_on_tgt: bool | None = None


class NodeLanguageCapabilities(Part, frozen=True, kw_only=True):
    """Languages by stage."""

    asr_languages: Langs | None = None
    tts_languages: Langs | None = None
    semantic_languages: Langs | None = None
    semantic_core_ready: bool | None = None
    nmt_capabilities: Annotated[list[NmtCapability], Meta(max_length=256)] | None = None
    supported_language_pairs: Annotated[list[LanguagePair], Meta(max_length=4_096)] | None = None


Models = Annotated[list[InstalledModel], Meta(max_length=512)]
Services = Annotated[list[InstalledService], Meta(max_length=512)]
Capabilities = Annotated[list[CapabilityByType], Meta(max_length=64)]


class ResourceUsage(Part, frozen=True, kw_only=True):
    """The node's load, as it says; edge.nodes.core.capabilities.load_from brings it into 0..100."""

    cpu_percent: Percent = always(0.0)
    gpu_percent: Percent | None = None
    gpu_mem_percent: Percent | None = None
    mem_percent: Percent = always(0.0)
    running_jobs: Signed = always(0)
    gpu_queue_length: Signed | None = None


class RerunMetrics(Part, frozen=True, kw_only=True, rename="camel"):
    """Recognition repeats, counted since the node started."""

    total_reruns: Whole = always(0)
    successful_reruns: Whole = always(0)
    failed_reruns: Whole = always(0)
    timeout_reruns: Whole = always(0)
    quality_improvements: Whole = always(0)


class AsrMetrics(Part, frozen=True, kw_only=True, rename="camel"):
    """Superseded by ProcessingMetrics."""

    processing_efficiency: float | None = None


class ProcessingMetrics(Part, frozen=True, kw_only=True, rename="camel"):
    """Audio seconds per processing second, by service id."""

    service_efficiencies: dict[Word, float] = always({})


class JobRef(Part, frozen=True, kw_only=True):
    """One attempt of one job."""

    job_id: Id
    attempt_id: Attempt


class JobError(Part, frozen=True, kw_only=True):
    """Why a job failed on the node."""

    code: Word
    message: Line
    details: Any = None


# --- node -> scheduler ----------------------------------------------------------------------------


class NodeRegisterMessage(Message, frozen=True, kw_only=True, tag="node_register"):
    """The first message of a node. Answer: node_register_ack or error."""

    node_id: Id | None = None
    version: Word
    capability_schema_version: Word | None = None
    platform: Word  # "windows" | "linux" | "macos"
    hardware: Hardware
    installed_models: Models = always([])
    installed_services: Services | None = None
    #: Required by the capability schema 2.0; its absence is judged there, not here, so the error can say so.
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
    #: The node works for this tenant only.
    tenant_id: Id | None = None


class NodeHeartbeatMessage(Message, frozen=True, kw_only=True, tag="node_heartbeat"):
    """Every 15 s, and soon after a capability changed. A list that is left out means: unchanged."""

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
    # extension: what the node is running
    jobs: Annotated[list[JobRef], Meta(max_length=RUNNING_JOBS_MAX)] | None = None


class JobAck(Message, frozen=True, kw_only=True):
    """The node took the job. The original node does not send it."""

    job_id: Id
    attempt_id: Attempt
    node_id: Id
    session_id: Id
    trace_id: Id


class JobStarted(Message, frozen=True, kw_only=True):
    """The node works on the job. The original node does not send it."""

    job_id: Id
    attempt_id: Attempt
    node_id: Id
    session_id: Id
    trace_id: Id


class NodeAsrPartial(Message, frozen=True, kw_only=True, tag="asr_partial"):
    """Recognised so far."""

    job_id: Id
    node_id: Id
    session_id: Id
    utterance_index: Whole
    text: Text
    is_final: bool
    trace_id: Id


#: `tts_audio` that was not sent; left out on output because it is the default itself.
_NOT_SENT: Final = Raw(b"null")


class JobResult(Message, frozen=True, kw_only=True):
    """The end of a job on the node. tts_audio is JSON text that nobody on the way decodes."""

    job_id: Id
    attempt_id: Attempt
    node_id: Id
    session_id: Id
    utterance_index: Whole
    success: bool
    text_asr: Text | None = None
    text_translated: Text | None = None
    tts_audio: Raw = _NOT_SENT
    tts_format: Word | None = None
    extra: ExtraResult | None = None
    processing_time_ms: Whole | None = None
    error: JobError | None = None
    trace_id: Id
    group_id: Id | None = None
    part_index: Whole | None = None
    node_completed_at_ms: Signed | None = None
    asr_quality_level: Word | None = None
    reason_codes: Words | None = None
    quality_score: float | None = None
    rerun_count: Attempt | None = None
    segments_meta: SegmentsMeta | None = None

    def __post_init__(self) -> None:
        check_audio(self.tts_audio, null=True)


class NodeError(Message, frozen=True, kw_only=True):
    """Something went wrong on the node.

    `details.job_id` (and `details.attempt_id`) name the job that it cannot finish; without it: every job it has.
    """

    node_id: Id
    code: Word
    message: Line
    details: Any = None


# --- scheduler -> node ----------------------------------------------------------------------------


class NodeRegisterAck(Message, frozen=True, kw_only=True):
    """The node is known; it shall keep this id."""

    node_id: Id
    message: Line = always("registered")
    status: Word = always("registering")


class NodeStatus(Message, frozen=True, kw_only=True):
    """The node's status changed. `reason` is written even when null, and `timestamp` is in seconds, as ever."""

    node_id: Id
    status: Word  # "registering" | "ready" | "degraded" | "draining" | "offline"
    reason: Line | None
    timestamp: Signed


class JobAssign(Message, frozen=True, kw_only=True):
    """Run this. Flags that are false are left out."""

    job_id: Id
    attempt_id: Attempt
    session_id: Id
    utterance_index: Whole
    src_lang: Lang
    tgt_lang: Lang
    dialect: Word | None = None
    features: FeatureFlags | None = None
    pipeline: PipelineConfig
    audio: str  # base64
    audio_format: Word
    sample_rate: SampleRate
    mode: Mode | None = None
    lang_a: Lang | None = None
    lang_b: Lang | None = None
    auto_langs: Langs | None = None
    enable_streaming_asr: bool | None = None
    partial_update_interval_ms: Whole | None = None
    trace_id: Id
    group_id: Id | None = None
    part_index: Whole | None = None
    context_text: Text | None = None
    padding_ms: Whole | None = None
    is_manual_cut: bool = False
    is_pause_triggered: bool = False
    is_timeout_triggered: bool = False
    is_max_duration_triggered: bool = False
    turn_id: Id | None = None


class JobCancel(Message, frozen=True, kw_only=True):
    """Nobody waits for this job any more."""

    job_id: Id
    trace_id: Id | None = None
    reason: Line | None = None  # "job_timeout"


class NodeControl(Message, frozen=True, kw_only=True):
    """An operator's command: "drain" (finish what you have, no more will come) or "resume"."""

    command: Word
    reason: Line | None = None
    # extension: time from now until what is unfinished is given to others
    deadline_ms: Whole | None = None


class JobResultAck(Message, frozen=True, kw_only=True):
    """The result arrived; the node may forget it. Only for nodes that registered with result_ack."""

    job_id: Id
    attempt_id: Attempt


class PairingCodeRequest(Message, frozen=True, kw_only=True):
    """Asks for a code by which a client can choose this node. Answer: pairing_code or error."""

    node_id: Id


class PairingCodeMessage(Message, frozen=True, kw_only=True, tag="pairing_code"):
    """A client that presents this code in session_init, once and within that time, prefers this node."""

    node_id: Id
    code: Word
    expires_in_ms: Whole


# --- directions -----------------------------------------------------------------------------------

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


def decode_from_node(text: str | bytes) -> NodeMessage:
    """The node's message in `text`; PeerError(INVALID_MESSAGE) if it is malformed."""
    return FROM_NODE.decode(text)


def decode_from_scheduler(text: str | bytes) -> SchedulerMessage:
    """The scheduler's message in `text`, for nodes; PeerError(INVALID_MESSAGE) if it is malformed."""
    return FROM_SCHEDULER.decode(text)


def decode_job_result(text: str | bytes) -> JobResult:
    """The job_result in `text`, as edges pass it on; PeerError(INVALID_MESSAGE) if it is malformed."""
    return _RESULT.decode(text)
