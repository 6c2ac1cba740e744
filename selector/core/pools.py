"""Pools: which groups a node belongs to, and in which of them a job may look, in what order. See docs/choosing.md.

A node has one home pool, `hash.<n>` or `cap.<pool_id>`; jobs are placed pool by pool. The other sets that it is listed
in (language pairs, language sets, region and GPU tier) are for people and for other programs. All of it is computed
here; only register and heartbeat write it to Redis.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from mesh.config.scheduler import Pool, PoolsConfig
from mesh.frames import NodeCaps
from mesh.words import FilterName

_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_MASK: Final = (1 << 64) - 1
_HASH: Final = "hash."
_CAPABILITY: Final = "cap."
#: Allowed in a pool's name; a dot would make `pair.a.b` ambiguous, a comma or brace would break a key.
_WORD: Final = re.compile(r"[a-z0-9_-]{1,24}")
_NAME_CHARACTERS_MAX: Final = 64
CORE_SERVICES: Final = frozenset({"asr", "nmt", "tts"})
#: Entries of each LRU cache: hashes of routing keys, pools of needs, rings.
_CACHED_MAX: Final = 4_096


class PoolOrder(NamedTuple):
    """The pools of a job, in order. `reason` is set if it is barred from all pools."""

    preferred: str
    order: tuple[str, ...]
    eligible: tuple[str, ...]
    reason: str = ""


#: Without pools every node is in the pool without a name.
ANYWHERE: Final = PoolOrder("", ("",), ("",))
NOWHERE: Final = PoolOrder("", (), (), FilterName.POOL)


def fnv1a(data: bytes) -> int:
    """FNV-1a, 64 bits."""
    digest = _FNV_OFFSET
    for byte in data:
        digest = ((digest ^ byte) * _FNV_PRIME) & _MASK
    return digest


def home_among(pools: str) -> str:
    """The home pool in a node's list of pools, "" if it has none."""
    return next((pool for pool in pools.split(",") if pool.startswith((_HASH, _CAPABILITY))), "")


class PoolPlan:
    """The configured pools."""

    def __init__(self, config: PoolsConfig) -> None:
        self.config = config
        self.enabled = config.enabled
        self._seed = config.hash_seed.to_bytes(8, "little")
        self._pools = {pool.pool_id: pool for pool in sorted(config.pools, key=lambda pool: pool.pool_id)}
        #: Every home pool, in the order of the ring.
        self.names: tuple[str, ...] = (
            tuple(f"{_CAPABILITY}{pool_id}" for pool_id in self._pools)
            if self._pools
            else tuple(f"{_HASH}{number}" for number in range(config.pool_count))
        )
        prefix = _CAPABILITY if self._pools else _HASH
        self._bound = {bound.tenant_id: f"{prefix}{bound.pool_id}" for bound in config.tenant_overrides}
        self._kept_free = {f"{prefix}{bound.pool_id}" for bound in config.tenant_overrides if bound.exclusive}
        self._hash = lru_cache(_CACHED_MAX)(self._hash_anew)
        self._open_pools = lru_cache(_CACHED_MAX)(self._open_pools_anew)
        self._ring = lru_cache(_CACHED_MAX)(self._ring_anew)

    # --- nodes --------------------------------------------------------------------------------------

    def home_of(self, node_id: str, caps: NodeCaps) -> str:
        """The pool that a node works in, "" if none."""
        if not self.enabled:
            return ""
        if not self._pools:
            return f"{_HASH}{self._hash(node_id) % self.config.pool_count}"
        fitting = [(_specificity(pool), pool_id) for pool_id, pool in self._pools.items() if _fits(pool, caps)]
        if not fitting:
            return ""
        most = max(fitting)[0]
        ids = sorted(pool_id for specificity, pool_id in fitting if specificity == most)
        return f"{_CAPABILITY}{ids[self._hash(node_id) % len(ids)]}"

    def sets_of(self, node_id: str, caps: NodeCaps) -> list[str]:
        """Every set that a node is listed in, its home first, then the place, the language set and the pairs."""
        names = [self.home_of(node_id, caps), _place(caps), _language_set(caps)]
        sets = [name for name in names if name]
        for pair in _pairs(caps):
            if len(sets) >= self.config.sets_per_node_max:
                break
            sets.append(pair)
        return sets[: self.config.sets_per_node_max]

    # --- jobs ---------------------------------------------------------------------------------------

    def order_for(
        self,
        routing_key: str,
        tenant_id: str,
        services: Sequence[str],
        languages: Sequence[str] = (),
        region: str = "",
        gpu_tier: str = "",
    ) -> PoolOrder:
        """The pools in which a job may look, first the one that its routing key points to.

        A tenant with a pool of its own has no other. `languages`, `region` and `gpu_tier`: what the job asks for.
        """
        if not self.enabled:
            return ANYWHERE
        bound = self._bound.get(tenant_id) if tenant_id else None
        if bound is not None:
            if not self.is_eligible(bound, services):
                return NOWHERE
            return PoolOrder(bound, (bound,), (bound,))
        best, others = self._open_pools(tuple(services), tuple(languages), region, gpu_tier)
        if not best:
            return NOWHERE
        return self._ring(best, others, self._hash(routing_key) % len(best))

    def is_eligible(self, name: str, services: Collection[str]) -> bool:
        """True if the pool is meant for jobs with these services."""
        if name not in self.names:
            return False
        if not self._pools:
            return True
        needed = {service.lower() for service in services}
        if self.config.pool_match_scope == "core_only":
            needed &= CORE_SERVICES
        offered = {service.lower() for service in self._pools[_id_in(name)].required_services}
        if not offered:
            return True
        return needed == offered if self.config.pool_match_mode == "exact" else needed <= offered

    def pool(self, name: str) -> Pool | None:
        """The settings of a home pool, None for one that only a hash leads to."""
        return self._pools.get(_id_in(name)) if name.startswith(_CAPABILITY) else None

    def _open_pools_anew(
        self, services: tuple[str, ...], languages: tuple[str, ...], region: str, gpu_tier: str
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The pools that match a job's preferences best, and the other eligible ones."""
        public = [name for name in self.names if name not in self._kept_free]
        eligible = [
            name for name in public if self.is_eligible(name, services) and _has_languages(self.pool(name), languages)
        ]
        if not eligible and not self.config.strict_pool_eligibility:
            eligible = public
        distance = {name: _distance(self.pool(name), region, gpu_tier) for name in eligible}
        nearest = min(distance.values(), default=0)
        best = tuple(name for name in eligible if distance[name] == nearest)
        others = sorted((name for name in eligible if distance[name] > nearest), key=lambda name: distance[name])
        return best, tuple(others)

    def _ring_anew(self, best: tuple[str, ...], others: tuple[str, ...], first: int) -> PoolOrder:
        ring = (*best[first:], *best[:first], *others)
        return PoolOrder(ring[0], ring if self.config.fallback_scan_all_pools else ring[:1], (*best, *others))

    def _hash_anew(self, key: str) -> int:
        return fnv1a(key.encode() + self._seed)


def _id_in(name: str) -> int:
    return int(name.partition(".")[2])


def _specificity(pool: Pool) -> int:
    return len(pool.required_services) + len(pool.languages) + bool(pool.region) + bool(pool.gpu_tier)


def _fits(pool: Pool, caps: NodeCaps) -> bool:
    """True if a node meets every condition of a pool."""
    understood = _lower(caps.asr_langs) & _lower(caps.semantic_langs)
    return (
        _lower(pool.required_services) <= _lower(caps.services_installed)
        and _lower(pool.languages) <= understood
        and pool.region.lower() in ("", caps.region.lower())
        and pool.gpu_tier.lower() in ("", caps.gpu_tier.lower())
    )


def _has_languages(pool: Pool | None, languages: Sequence[str]) -> bool:
    """True if the pool's languages are a superset of the job's, or it names none."""
    return pool is None or not pool.languages or set(languages) <= _lower(pool.languages)


def _distance(pool: Pool | None, region: str, gpu_tier: str) -> int:
    """How many of the job's preferences a pool contradicts."""
    if pool is None:
        return 0
    preferences = ((pool.region.lower(), region), (pool.gpu_tier.lower(), gpu_tier))
    return sum(1 for set_to, asked in preferences if set_to and asked and set_to != asked)


def _lower(words: Collection[str]) -> set[str]:
    return {word.lower() for word in words}


def _words(words: Collection[str]) -> list[str]:
    return sorted(word for word in _lower(words) if _WORD.fullmatch(word))


def _place(caps: NodeCaps) -> str:
    region, tier = caps.region.lower() or "any", caps.gpu_tier.lower() or "any"
    is_said = bool(caps.region or caps.gpu_tier)
    return f"place.{region}.{tier}" if is_said and _WORD.fullmatch(region) and _WORD.fullmatch(tier) else ""


def _language_set(caps: NodeCaps) -> str:
    """The languages that a node both understands and translates to; "" if there are none or too many for a name."""
    languages = _words(_lower(caps.asr_langs) & _lower(caps.semantic_langs))
    name = f"langs.{'-'.join(languages)}"
    return name if languages and len(name) <= _NAME_CHARACTERS_MAX else ""


def _pairs(caps: NodeCaps) -> Iterator[str]:
    """The directed pairs: those that the node names, else every recognised language to every other."""
    if caps.pairs:
        for source, _, target in sorted(pair.lower().partition(">") for pair in set(caps.pairs)):
            if _WORD.fullmatch(source) and _WORD.fullmatch(target):
                yield f"pair.{source}.{target}"
        return
    targets = _words(caps.semantic_langs)
    for source in _words(caps.asr_langs):
        for target in targets:
            if source != target:
                yield f"pair.{source}.{target}"
