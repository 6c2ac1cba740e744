"""Settings of node selection: speeds, pools, missing models, and the requirements of optional features."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mesh.config.base import Count, Ms, Section
from mesh.errors import ConfigError


class SpeedConfig(Section, frozen=True):
    """How each node's speed (work time per time of audio) is learned from finished jobs."""

    #: Jobs that the mean speed is taken over: a new job counts at least one part in as many.
    jobs_remembered: Annotated[int, Meta(ge=1, le=1_000)] = 8
    #: Language pairs with a speed of their own per node. Jobs of further pairs count for the node as a whole only.
    pairs_per_node_max: Annotated[int, Meta(ge=1, le=64)] = 16
    #: Age at which the jobs learned from so far count half as much when the next one is learned from.
    half_life_ms: Ms = 60_000
    #: Penalty of a failed job: it counts as if it had taken its audio's length and this much longer, since another node
    #: must do it. Too low, and a node that fails at once looks fast.
    failed_ms: Ms = 3_000
    #: Minimum audio length in the speed model; shorter audio counts as this long, because every job has a fixed part.
    audio_ms_min: Ms = 500


class Pool(Section, frozen=True):
    """One pool. A node belongs to the most specific pool whose every condition it meets."""

    #: Number of the pool, unique.
    pool_id: Annotated[int, Meta(ge=0, le=65_535)]
    #: Name for people, at most 64 characters.
    name: Annotated[str, Meta(max_length=64)] = ""
    #: Service types that must be installed on a node; empty = any node.
    required_services: list[str] = []
    #: Languages that a node must all understand and translate to; empty = any.
    languages: list[str] = []
    #: Region that a node must be in; empty = any.
    region: str = ""
    #: GPU tier that a node must have; empty = any.
    gpu_tier: str = ""


class TenantPool(Section, frozen=True):
    """A tenant whose jobs run in one pool only."""

    #: The tenant, listed once at most.
    tenant_id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")]
    #: The only pool for its jobs; must exist.
    pool_id: Annotated[int, Meta(ge=0, le=65_535)]
    #: True: jobs of other tenants do not run in that pool.
    exclusive: bool = False


class PoolsConfig(Section, frozen=True):
    """Selection in two levels: first a pool, then a node. Membership is written by register and heartbeat only."""

    #: False: there are no pools, and every job is compared with every node.
    enabled: bool = False
    #: Number of pools that nodes are spread over by the hash of their id, while `pools` is empty.
    pool_count: Annotated[int, Meta(ge=1, le=1_024)] = 16
    #: Seed of the hash that spreads nodes and jobs over pools. Must be the same in every process.
    hash_seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    #: True: a job without a suitable node in its pool tries the other pools. False: it uses its own pool only.
    fallback_scan_all_pools: bool = True
    #: Services of a job that a pool must offer: asr, nmt and tts only, or all of them.
    pool_match_scope: Annotated[str, Meta(pattern="^(core_only|all_required)$")] = "core_only"
    #: Whether a pool must offer at least these services, or exactly these.
    pool_match_mode: Annotated[str, Meta(pattern="^(contains|exact)$")] = "contains"
    #: True: a job that matches no pool is refused. False: it tries all pools.
    strict_pool_eligibility: bool = False
    #: Pools by capability, at most 1024. Empty: nodes are spread over `pool_count` pools.
    pools: Annotated[list[Pool], Meta(max_length=1_024)] = []
    #: Tenants that are bound to a pool, at most 10000.
    tenant_overrides: Annotated[list[TenantPool], Meta(max_length=10_000)] = []
    #: Redis sets that list one node. Beyond it language pairs are left out.
    sets_per_node_max: Count = 64


def check_pools(config: PoolsConfig) -> None:
    """ConfigError if a pool or tenant is listed twice, or a tenant's pool does not exist."""
    ids: set[int] = set()
    for pool in config.pools:
        if pool.pool_id in ids:
            raise ConfigError(f"pools.pools: pool_id {pool.pool_id} is listed twice")
        ids.add(pool.pool_id)
    known = ids or range(config.pool_count)
    seen: set[str] = set()
    for bound in config.tenant_overrides:
        if bound.tenant_id in seen:
            raise ConfigError(f"pools.tenant_overrides: tenant {bound.tenant_id!r} is listed twice")
        if bound.pool_id not in known:
            text = f"tenant {bound.tenant_id!r} has pool {bound.pool_id}, which does not exist"
            raise ConfigError(f"pools.tenant_overrides: {text}")
        seen.add(bound.tenant_id)


class ModelsConfig(Section, frozen=True):
    """Handling of MODEL_NOT_AVAILABLE reports of nodes."""

    #: Time that a node gets no job that needs the reported service.
    unavailable_ms: Ms = 60_000
    #: Interval in which one service and version is logged once, in the whole deployment.
    debounce_ms: Ms = 5_000
    #: Length of the window of `node_rate_max`.
    node_rate_window_ms: Ms = 10_000
    #: Reports of one node that count per window. Further ones are dropped.
    node_rate_max: Count = 30
    #: Reports that wait to be handled, at an edge and at a selector. Beyond it they are dropped and counted.
    queue_max: Count = 5_000
    #: Id of the speech recognition service of nodes that name no service types.
    asr_service_id: str = "node-inference"
    #: Id of the translation service of nodes that name no service types.
    nmt_service_id: str = "nmt-m2m100"
    #: Id of the speech synthesis service of nodes that name no service types.
    tts_service_id: str = "piper-tts"


class Module(Section, frozen=True):
    """The requirements of one optional feature."""

    #: Other features that it needs, with their requirements.
    modules: list[str] = []
    #: Service types that the node must have.
    services: list[str] = []
    #: Models that the node must have.
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
    """The optional features of a job."""

    #: Feature -> its requirements. A job with the feature goes only to nodes that meet them.
    table: dict[str, Module] = msgspec.field(default_factory=_modules)
