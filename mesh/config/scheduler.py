"""Settings of choosing: speeds, pools, missing models, and what the optional features of a job need."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mesh.config.base import Count, Ms, Section
from mesh.errors import ConfigError


class SpeedConfig(Section, frozen=True):
    """What is remembered of each node's speed."""

    #: Observations that the mean remembers; a new one counts at least one part in so many.
    jobs_remembered: Annotated[int, Meta(ge=1, le=1_000)] = 8
    #: Language pairs told apart per node; what comes later counts for the node as a whole.
    pairs_per_node_max: Annotated[int, Meta(ge=1, le=64)] = 16
    #: What was learned counts half when the next job is learned from so much later.
    half_life_ms: Ms = 60_000
    #: A failed job counts as if it had taken its audio's length and this much longer: somebody must do it again.
    failed_ms: Ms = 3_000
    #: Shorter audio counts as this long, because every job has a part that does not depend on its audio.
    audio_ms_min: Ms = 500


class Pool(Section, frozen=True):
    """One pool: a node belongs to the most specific of those whose every condition it meets."""

    pool_id: Annotated[int, Meta(ge=0, le=65_535)]
    name: Annotated[str, Meta(max_length=64)] = ""
    #: Service types that must be installed; none: any node.
    required_services: list[str] = []
    #: Languages that it must understand and translate to, all of them.
    languages: list[str] = []
    region: str = ""
    gpu_tier: str = ""


class TenantPool(Section, frozen=True):
    """A tenant whose jobs run in that pool and nowhere else."""

    tenant_id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")]
    pool_id: Annotated[int, Meta(ge=0, le=65_535)]
    #: Nobody else's jobs run there.
    exclusive: bool = False


class PoolsConfig(Section, frozen=True):
    """Two levels: first a pool, then a node in it. Membership in Redis is written by register and heartbeat only."""

    #: Without pools every job looks at every node.
    enabled: bool = False
    #: Pools that nodes are spread over by their id, while `pools` names none.
    pool_count: Annotated[int, Meta(ge=1, le=1_024)] = 16
    hash_seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    #: A job that finds nobody in its pool looks in the next ones.
    fallback_scan_all_pools: bool = True
    #: Which of a job's services a pool must have: asr, nmt and tts only, or all of them.
    pool_match_scope: Annotated[str, Meta(pattern="^(core_only|all_required)$")] = "core_only"
    #: A pool must have at least these services, or exactly these.
    pool_match_mode: Annotated[str, Meta(pattern="^(contains|exact)$")] = "contains"
    #: A job that no pool is meant for is refused; otherwise it looks in all.
    strict_pool_eligibility: bool = False
    pools: Annotated[list[Pool], Meta(max_length=1_024)] = []
    tenant_overrides: Annotated[list[TenantPool], Meta(max_length=10_000)] = []
    #: Sets in Redis that one node is listed in; beyond that, language pairs are left out.
    sets_per_node_max: Count = 64


def check_pools(config: PoolsConfig) -> None:
    """ConfigError if a pool or tenant stands there twice, or a tenant's pool does not exist."""
    ids: set[int] = set()
    for pool in config.pools:
        if pool.pool_id in ids:
            raise ConfigError(f"pools.pools: pool_id {pool.pool_id} stands there twice")
        ids.add(pool.pool_id)
    known = ids or range(config.pool_count)
    seen: set[str] = set()
    for bound in config.tenant_overrides:
        if bound.tenant_id in seen:
            raise ConfigError(f"pools.tenant_overrides: tenant {bound.tenant_id!r} stands there twice")
        if bound.pool_id not in known:
            text = f"tenant {bound.tenant_id!r} has pool {bound.pool_id}, which does not exist"
            raise ConfigError(f"pools.tenant_overrides: {text}")
        seen.add(bound.tenant_id)


class ModelsConfig(Section, frozen=True):
    """What happens when a node says MODEL_NOT_AVAILABLE."""

    #: So long the node gets no job that needs the service.
    unavailable_ms: Ms = 60_000
    #: The same service and version is logged once in this time, in the whole deployment.
    debounce_ms: Ms = 5_000
    #: Of one node, so many words per window count; the rest are dropped.
    node_rate_window_ms: Ms = 10_000
    node_rate_max: Count = 30
    #: Words that wait to be worked on; more are dropped and counted.
    queue_max: Count = 5_000
    #: Service ids of nodes that do not say which type they are.
    asr_service_id: str = "node-inference"
    nmt_service_id: str = "nmt-m2m100"
    tts_service_id: str = "piper-tts"


class Module(Section, frozen=True):
    """What an optional feature needs: other modules, service types, models."""

    modules: list[str] = []
    services: list[str] = []
    models: list[str] = []


def _modules() -> dict[str, Module]:
    return {
        "emotion_detection": Module(services=["asr"], models=["emotion-xlm-r"]),
        "speaker_identification": Module(services=["tone"], models=["speaker-id-ecapa"]),
        "voice_cloning": Module(modules=["speaker_identification"], services=["tone"], models=["vc-model-v1"]),
        "voice_style_detection": Module(modules=["voice_cloning"]),
        "speech_rate_detection": Module(services=["asr"], models=["sr-d-v1"]),
        "speech_rate_control": Module(modules=["speech_rate_detection"], services=["tts"], models=["tts-vocoder-v1"]),
        "persona_adaptation": Module(services=["asr"], models=["persona-style-transformer"]),
    }


class ModulesConfig(Section, frozen=True):
    """The optional features of a job and what each needs of a node."""

    table: dict[str, Module] = msgspec.field(default_factory=_modules)
