"""What a node's words mean for scheduling: the rules a registration must pass, flat capabilities, bounded load."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from mesh.config import NodeConfig
from mesh.errors import ErrorCode, PeerError
from mesh.frames import NodeCaps, NodeLoad
from mesh.node_wire import (
    CapabilityByType,
    InstalledModel,
    InstalledService,
    NodeHeartbeat,
    NodeLanguageCapabilities,
    NodeRegister,
)

_SCHEMA_MAJOR: Final = "2"
_RUNNING_JOBS_MAX: Final = 1_000_000
#: A language tag, in lower case: `en`, `zh-cn`, `zh-hant-tw`. Anything else is no language and is left out.
_TAG: Final = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8})*")
_TAG_CHARACTERS_MAX: Final = 35
#: Different languages of one node, all lists together; the first ones count. A large speech model knows about a
#: hundred. Selectors have room for 256 (docs/adr/0005-kernel.md), which one node must not fill alone.
LANGUAGES_MAX: Final = 128


def language(text: str) -> str:
    """A language tag as it is compared everywhere: trimmed, lower case."""
    return text.strip().lower()


def caps_from(register: NodeRegister, limits: NodeConfig) -> NodeCaps:
    """The capabilities in `register`; PeerError if the schema, GPU or language rule is broken."""
    _check_schema(register)
    gpus = register.hardware.gpus or []
    if not gpus:
        raise PeerError(ErrorCode.NO_GPU_AVAILABLE, "hardware.gpus is empty: this node has no GPU")
    ready = _ready(register.capability_by_type or [])
    asr, semantic, tts = _languages(register.language_capabilities, register.installed_models)
    _check_languages(asr, semantic)
    return NodeCaps(
        version=register.version,
        platform=register.platform.lower(),
        cpu_cores=register.hardware.cpu_cores,
        memory_gb=float(register.hardware.memory_gb),
        gpu_count=len(gpus),
        gpu_memory_gb=float(sum(gpu.memory_gb for gpu in gpus)),
        services_installed=_installed(register.installed_services, register.capability_by_type, ready),
        services_ready=ready,
        asr_langs=asr,
        semantic_langs=semantic,
        tts_langs=tts,
        accept_public=register.accept_public_jobs,
        max_jobs=_max_jobs(register.max_concurrent_jobs, limits),
        region=register.region or "",
        gpu_tier=register.gpu_tier or "",
    )


def caps_after(caps: NodeCaps, heartbeat: NodeHeartbeat) -> NodeCaps:
    """`caps` with what `heartbeat` changes: the same object when that is nothing.

    A list that the heartbeat leaves out, and a language list that is empty, changes nothing.
    """
    capabilities, services = heartbeat.capability_by_type, heartbeat.installed_services
    ready = caps.services_ready if capabilities is None else _ready(capabilities)
    installed = caps.services_installed if services is None else [service.type for service in services]
    asr, semantic, tts = _languages(heartbeat.language_capabilities, heartbeat.installed_models or [])
    after = msgspec.structs.replace(
        caps,
        services_installed=_tidy([*installed, *ready]),
        services_ready=ready,
        asr_langs=asr or caps.asr_langs,
        semantic_langs=semantic or caps.semantic_langs,
        tts_langs=tts or caps.tts_langs,
    )
    return caps if after == caps else after


def load_from(heartbeat: NodeHeartbeat) -> NodeLoad:
    """The load in `heartbeat`, each value brought into its range. GPU memory is not load: loaded models fill it."""
    usage = heartbeat.resource_usage
    return NodeLoad(
        cpu_percent=_percent(usage.cpu_percent),
        gpu_percent=_percent(usage.gpu_percent),
        mem_percent=_percent(usage.mem_percent),
        running_jobs=max(0, min(usage.running_jobs, _RUNNING_JOBS_MAX)),
    )


def _percent(value: float | None) -> float:
    return 0.0 if value is None else float(max(0.0, min(100.0, value)))


def _check_schema(register: NodeRegister) -> None:
    version = register.capability_schema_version
    if version is None or version.strip().split(".")[0] != _SCHEMA_MAJOR:
        shown = "missing" if version is None else repr(version)
        raise PeerError(ErrorCode.INVALID_CAPABILITY_SCHEMA, f'capability_schema_version is {shown}, expected "2.0"')
    if register.capability_by_type is None:
        raise PeerError(ErrorCode.INVALID_CAPABILITY_SCHEMA, "capability_by_type is missing")


def _check_languages(asr: list[str], semantic: list[str]) -> None:
    missing = [name for name, langs in (("asr_languages", asr), ("semantic_languages", semantic)) if not langs]
    if missing:
        text = f"no language in {' and '.join(missing)}"
        raise PeerError(ErrorCode.MISSING_LANG_CAPABILITIES, text, {"missing": missing})


def _max_jobs(asked: int | None, limits: NodeConfig) -> int:
    return max(1, min(limits.max_jobs_default if asked is None else asked, limits.max_jobs_limit))


def _ready(capabilities: list[CapabilityByType]) -> list[str]:
    return _tidy(capability.type for capability in capabilities if capability.ready)


def _installed(
    services: list[InstalledService] | None, capabilities: list[CapabilityByType] | None, ready: list[str]
) -> list[str]:
    # Without a list of services, what the node reports on counts as installed. Ready implies installed.
    named = [service.type for service in services] if services is not None else [c.type for c in capabilities or []]
    return _tidy([*named, *ready])


def _languages(
    said: NodeLanguageCapabilities | None, models: list[InstalledModel]
) -> tuple[list[str], list[str], list[str]]:
    """ASR, semantic and TTS languages: what is said outright, else what the models are for."""
    said = said or NodeLanguageCapabilities()
    enabled = [model for model in models if model.enabled is not False]
    asr, semantic, tts = said.asr_languages, said.semantic_languages, said.tts_languages
    if asr is None:
        asr = [m.src_lang for m in enabled if m.kind.lower() == "asr" and m.src_lang]
    if semantic is None:
        semantic = _translated(said) or [m.tgt_lang for m in enabled if m.kind.lower() == "nmt" and m.tgt_lang]
    if tts is None:
        tts = [m.tgt_lang for m in enabled if m.kind.lower() == "tts" and m.tgt_lang]
    known: set[str] = set()
    return _tags(asr, known), _tags(semantic, known), _tags(tts, known)


def _translated(said: NodeLanguageCapabilities) -> list[str]:
    """Target languages in the lists that one generation of nodes sends in place of semantic_languages."""
    pairs = [pair.tgt for pair in said.supported_language_pairs or []]
    return pairs or [lang for capability in said.nmt_capabilities or [] for lang in capability.languages]


def _tags(words: Iterable[str], known: set[str]) -> list[str]:
    """The language tags among `words`. `known` gathers those of all lists, at most LANGUAGES_MAX."""
    tags = set()
    for word in words:
        tag = language(word)
        if len(tag) > _TAG_CHARACTERS_MAX or not _TAG.fullmatch(tag):
            continue
        if tag in known or len(known) < LANGUAGES_MAX:
            known.add(tag)
            tags.add(tag)
    return sorted(tags)


def _tidy(words: Iterable[str]) -> list[str]:
    # Sorted, so that a node which lists them in another order has not changed.
    return sorted({language(word) for word in words if word.strip()})
