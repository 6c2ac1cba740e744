"""Parts of node_register and node_heartbeat: hardware, models, services, languages and load of a node."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mesh.messages.base import Lang, Langs, Line, Part, Signed, Whole, Word, Words, always

#: An integer stays one on output: the original reads an unsigned integer.
Gigabytes = Annotated[int, Meta(ge=0, le=1_000_000)] | Annotated[float, Meta(ge=0, le=1_000_000)]
Percent = int | float


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
    """Whether a type of service is ready on the node. Unknown types are kept."""

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
    """Languages of one translation model."""

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
    """The node's load, unchecked; edge.nodes.core.capabilities.load_from clamps it to 0..100."""

    cpu_percent: Percent = always(0.0)
    gpu_percent: Percent | None = None
    gpu_mem_percent: Percent | None = None
    mem_percent: Percent = always(0.0)
    running_jobs: Signed = always(0)
    gpu_queue_length: Signed | None = None


class RerunMetrics(Part, frozen=True, kw_only=True, rename="camel"):
    """Repeated recognitions since the node started."""

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
