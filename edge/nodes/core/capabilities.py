"""Capabilities: checks a registration and flattens it for the scheduler; applies heartbeats; clamps the load. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from edge.nodes.core.languages import Languages, language, languages_of, pairs_of
from mesh.config.jobs import NodeConfig
from mesh.config.scheduler import ModelsConfig
from mesh.errors import ErrorCode, PeerError
from mesh.frames import NodeCaps, NodeLoad
from mesh.ids import is_id
from mesh.messages.node import (
    CapabilityByType,
    InstalledModel,
    InstalledService,
    NodeHeartbeatMessage,
    NodeRegisterMessage,
)

_SCHEMA_MAJOR: Final = "2"
_RUNNING_JOBS_MAX: Final = 1_000_000
#: Models of one node that jobs may require; the first ones count.
MODELS_MAX: Final = 256


def caps_from(register: NodeRegisterMessage, limits: NodeConfig) -> NodeCaps:
    """The capabilities in `register`; PeerError if the schema, GPU or language rule is broken."""
    _check_schema(register)
    gpus = register.hardware.gpus or []
    if not gpus:
        raise PeerError(ErrorCode.NO_GPU_AVAILABLE, "hardware.gpus is empty: this node has no GPU")
    ready = _ready(register.capability_by_type or [])
    given = register.language_capabilities
    languages = languages_of(given, register.installed_models)
    _check_languages(languages)
    return NodeCaps(
        version=register.version,
        platform=register.platform.lower(),
        cpu_cores=register.hardware.cpu_cores,
        memory_gb=float(register.hardware.memory_gb),
        gpu_count=len(gpus),
        gpu_memory_gb=float(sum(gpu.memory_gb for gpu in gpus)),
        services_installed=_installed(register.installed_services, register.capability_by_type, ready),
        services_ready=ready,
        asr_langs=languages.asr,
        semantic_langs=languages.semantic,
        tts_langs=languages.tts,
        accept_public=register.accept_public_jobs,
        max_jobs=_max_jobs(register.max_concurrent_jobs, limits),
        region=register.region or "",
        gpu_tier=register.gpu_tier or "",
        tenant_id=_tenant(register.tenant_id),
        models=_models(register.installed_models),
        pairs=pairs_of(given, languages) or [],
    )


def caps_after(caps: NodeCaps, heartbeat: NodeHeartbeatMessage) -> NodeCaps:
    """`caps` with the changes of `heartbeat`: the same object if there are none.

    A list that the heartbeat leaves out, and a language list that is empty, changes nothing.
    """
    capabilities, services, models = (
        heartbeat.capability_by_type,
        heartbeat.installed_services,
        heartbeat.installed_models,
    )
    ready = caps.services_ready if capabilities is None else _ready(capabilities)
    installed = caps.services_installed if services is None else [service.type for service in services]
    changed = languages_of(heartbeat.language_capabilities, models or [])
    languages = Languages(
        changed.asr or caps.asr_langs, changed.semantic or caps.semantic_langs, changed.tts or caps.tts_langs
    )
    pairs = pairs_of(heartbeat.language_capabilities, languages)
    after = msgspec.structs.replace(
        caps,
        services_installed=_normalized([*installed, *ready]),
        services_ready=ready,
        asr_langs=languages.asr,
        semantic_langs=languages.semantic,
        tts_langs=languages.tts,
        models=caps.models if models is None else _models(models),
        pairs=caps.pairs if pairs is None else pairs,
    )
    return caps if after == caps else after


def load_from(heartbeat: NodeHeartbeatMessage) -> NodeLoad:
    """The load in `heartbeat`, each value clamped. GPU memory is not load: loaded models fill it."""
    usage = heartbeat.resource_usage
    return NodeLoad(
        cpu_percent=_percent(usage.cpu_percent),
        gpu_percent=_percent(usage.gpu_percent),
        mem_percent=_percent(usage.mem_percent),
        running_jobs=max(0, min(usage.running_jobs, _RUNNING_JOBS_MAX)),
    )


def service_types(
    services: list[InstalledService] | None, capabilities: list[CapabilityByType] | None, config: ModelsConfig
) -> dict[str, str]:
    """Service id -> type: as the node reports it, else as configured for well-known ids."""
    types = {
        config.asr_service_id: "asr",
        config.nmt_service_id: "nmt",
        config.tts_service_id: "tts",
    }
    for capability in capabilities or []:
        types |= dict.fromkeys(capability.ready_impl_ids or [], language(capability.type))
    types |= {service.service_id: service.type for service in services or [] if service.type}
    return types


def _percent(value: float | None) -> float:
    return 0.0 if value is None else float(max(0.0, min(100.0, value)))


def _check_schema(register: NodeRegisterMessage) -> None:
    version = register.capability_schema_version
    if version is None or version.strip().split(".")[0] != _SCHEMA_MAJOR:
        shown = "missing" if version is None else repr(version)
        raise PeerError(ErrorCode.INVALID_CAPABILITY_SCHEMA, f'capability_schema_version is {shown}, expected "2.0"')
    if register.capability_by_type is None:
        raise PeerError(ErrorCode.INVALID_CAPABILITY_SCHEMA, "capability_by_type is missing")


def _check_languages(languages: Languages) -> None:
    lists = (("asr_languages", languages.asr), ("semantic_languages", languages.semantic))
    missing = [name for name, langs in lists if not langs]
    if missing:
        text = f"no language in {' and '.join(missing)}"
        raise PeerError(ErrorCode.MISSING_LANG_CAPABILITIES, text, {"missing": missing})


def _max_jobs(wanted: int | None, limits: NodeConfig) -> int:
    return max(1, min(limits.max_jobs_default if wanted is None else wanted, limits.max_jobs_limit))


def _tenant(tenant_id: str | None) -> str:
    if tenant_id and not is_id(tenant_id):
        raise PeerError(ErrorCode.INVALID_ID, "`tenant_id` is not an id")
    return tenant_id or ""


def _models(models: list[InstalledModel]) -> list[str]:
    enabled = [model.model_id.strip() for model in models if model.enabled is not False]
    return sorted(list(dict.fromkeys(filter(None, enabled)))[:MODELS_MAX])


def _ready(capabilities: list[CapabilityByType]) -> list[str]:
    return _normalized(capability.type for capability in capabilities if capability.ready)


def _installed(
    services: list[InstalledService] | None, capabilities: list[CapabilityByType] | None, ready: list[str]
) -> list[str]:
    # Without a list of services, the reported types count as installed. Ready implies installed.
    named = [service.type for service in services] if services is not None else [c.type for c in capabilities or []]
    return _normalized([*named, *ready])


def _normalized(names: Iterable[str]) -> list[str]:
    # Sorted: another order is no change.
    return sorted({language(name) for name in names if name.strip()})
