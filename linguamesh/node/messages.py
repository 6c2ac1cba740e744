"""Builds the messages of a node from its profile and its jobs, and decodes a job. Pure but for the clock and the
machine's size."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from linguamesh.errors import JobFailed
from linguamesh.node.job import Gpu, Result, Usage
from mesh.clock import wall_ms
from mesh.errors import ErrorCode, PeerError
from mesh.messages import binary
from mesh.messages import node as wire
from mesh.websocket import Payload

SDK_VERSION: Final = "0.1.0"
#: Longest text of an error that is sent; the full text is in the node's log.
ERROR_TEXT_MAX: Final = 500

JobEvent = TypeVar("JobEvent", wire.JobAck, wire.JobStarted)

_PLATFORMS: Final = {"Windows": "windows", "Darwin": "macos"}


@dataclass(frozen=True, slots=True)
class Profile:
    """The capabilities of a node."""

    asr: list[str]
    semantic: list[str]
    tts: list[str]
    services: list[str]
    gpus: list[Gpu]
    max_jobs: int
    accept_public_jobs: bool
    models: list[str]
    #: (from, to); none = from each of `asr` to each of `semantic`.
    pairs: list[tuple[str, str]]
    region: str | None
    gpu_tier: str | None
    tenant_id: str | None
    binary_messages: bool

    def register(self, node_id: str | None) -> wire.NodeRegisterMessage:
        """node_register."""
        return wire.NodeRegisterMessage(
            node_id=node_id,
            version=SDK_VERSION,
            capability_schema_version=wire.CAPABILITY_SCHEMA_VERSION,
            platform=_PLATFORMS.get(platform.system(), "linux"),
            hardware=wire.Hardware(
                cpu_cores=os.cpu_count() or 1,
                memory_gb=_memory_gb(),
                gpus=[wire.GpuInfo(name=gpu.name, memory_gb=gpu.memory_gb) for gpu in self.gpus],
            ),
            installed_models=[wire.InstalledModel(model_id=model, kind="other", version="") for model in self.models],
            installed_services=self._services(),
            capability_by_type=self._capabilities(),
            accept_public_jobs=self.accept_public_jobs,
            language_capabilities=self._languages(),
            max_concurrent_jobs=self.max_jobs,
            region=self.region,
            gpu_tier=self.gpu_tier,
            result_ack=True,
            binary_messages=self.binary_messages or None,
            tenant_id=self.tenant_id,
        )

    def heartbeat(self, node_id: str, usage: Usage, running: list[tuple[str, int]]) -> wire.NodeHeartbeatMessage:
        """node_heartbeat; `running`: (job id, attempt) of its running jobs."""
        return wire.NodeHeartbeatMessage(
            node_id=node_id,
            timestamp=wall_ms(),
            resource_usage=wire.ResourceUsage(
                cpu_percent=usage.cpu_percent,
                mem_percent=usage.mem_percent,
                gpu_percent=usage.gpu_percent,
                gpu_mem_percent=usage.gpu_mem_percent,
                running_jobs=len(running),
            ),
            installed_services=self._services(),
            capability_by_type=self._capabilities(),
            language_capabilities=self._languages(),
            jobs=[wire.JobRef(job_id=job_id, attempt_id=attempt) for job_id, attempt in running],
        )

    def _services(self) -> list[wire.InstalledService]:
        return [
            wire.InstalledService(service_id=f"{kind}-sdk", type=kind, device="gpu", status="running")
            for kind in self.services
        ]

    def _capabilities(self) -> list[wire.CapabilityByType]:
        return [wire.CapabilityByType(type=kind, ready=True, ready_impl_ids=[f"{kind}-sdk"]) for kind in self.services]

    def _languages(self) -> wire.NodeLanguageCapabilities:
        return wire.NodeLanguageCapabilities(
            asr_languages=self.asr,
            tts_languages=self.tts,
            semantic_languages=self.semantic,
            semantic_core_ready=bool(self.semantic),
            supported_language_pairs=[wire.LanguagePair(src=src, tgt=tgt) for src, tgt in self.pairs] or None,
        )


def job_assign_from(data: Payload) -> wire.JobAssign:
    """The job_assign in a binary message; PeerError(INVALID_MESSAGE) if there is none."""
    number, head, audio = binary.split(data)
    if number != binary.JOB_ASSIGN:
        raise PeerError(ErrorCode.INVALID_MESSAGE, "a node receives no binary message but job_assign")
    # Copied, because a view would keep all that was received with it.
    assign: wire.JobAssign = binary.decode_parts(number, head, bytes(audio))
    return assign


def job_event(kind: type[JobEvent], assign: wire.JobAssign, node_id: str) -> JobEvent:
    """job_ack or job_started."""
    return kind(
        job_id=assign.job_id,
        attempt_id=assign.attempt_id,
        node_id=node_id,
        session_id=assign.session_id,
        trace_id=assign.trace_id,
    )


def asr_partial(assign: wire.JobAssign, node_id: str, text: str, is_final: bool) -> wire.NodeAsrPartial:
    """asr_partial."""
    return wire.NodeAsrPartial(
        job_id=assign.job_id,
        node_id=node_id,
        session_id=assign.session_id,
        utterance_index=assign.utterance_index,
        text=text,
        is_final=is_final,
        trace_id=assign.trace_id,
    )


def job_result(assign: wire.JobAssign, node_id: str, result: Result, processing_ms: int) -> wire.JobResult:
    """job_result of a success, without its speech; TypeError or ValueError if the handler's result does not fit."""
    timings = {"total_ms": processing_ms, **result.timings}
    extra = msgspec.convert({**result.extra, "service_timings": timings}, wire.ExtraResult)
    return wire.JobResult(
        job_id=assign.job_id,
        attempt_id=assign.attempt_id,
        node_id=node_id,
        session_id=assign.session_id,
        utterance_index=assign.utterance_index,
        success=True,
        text_asr=result.text_asr,
        text_translated=result.text_translated,
        tts_format=result.tts_format,
        extra=extra,
        processing_time_ms=processing_ms,
        trace_id=assign.trace_id,
        group_id=assign.group_id,
        part_index=assign.part_index,
        node_completed_at_ms=wall_ms(),
        asr_quality_level=result.asr_quality_level,
        quality_score=result.quality_score,
        reason_codes=result.reason_codes,
    )


def job_failure(assign: wire.JobAssign, node_id: str, failure: JobFailed, processing_ms: int) -> wire.JobResult:
    """job_result of a failure."""
    return wire.JobResult(
        job_id=assign.job_id,
        attempt_id=assign.attempt_id,
        node_id=node_id,
        session_id=assign.session_id,
        utterance_index=assign.utterance_index,
        success=False,
        error=wire.JobError(
            code=failure.code, message=failure.message[:ERROR_TEXT_MAX], details=failure.details or None
        ),
        processing_time_ms=processing_ms,
        trace_id=assign.trace_id,
        node_completed_at_ms=wall_ms(),
    )


def _memory_gb() -> int:
    """The machine's memory, at least 1; 1 where the system does not report it."""
    try:
        return max(1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30)
    except (AttributeError, ValueError, OSError):
        return 1
