"""Pools: which groups a node belongs to. Computed here; only register and heartbeat write them to Redis."""

from __future__ import annotations

import re
from typing import Final

from mesh.frames import NodeCaps

_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_MASK: Final = (1 << 64) - 1
#: What may stand in a pool's name; a dot would make `pair.a.b` ambiguous, a comma or brace would break a key.
_LANGUAGE: Final = re.compile(r"[a-z0-9_-]{1,24}")


def fnv1a(text: str) -> int:
    """FNV-1a, 64 bits."""
    digest = _FNV_OFFSET
    for byte in text.encode():
        digest = ((digest ^ byte) * _FNV_PRIME) & _MASK
    return digest


def pools_of(node_id: str, caps: NodeCaps, *, hash_pools: int, pools_max: int) -> list[str]:
    """The node's hash pool, then its directed language pairs in alphabetical order, at most `pools_max` in all."""
    pools = [f"hash.{fnv1a(node_id) % hash_pools}"]
    targets = _languages(caps.semantic_langs)
    for source in _languages(caps.asr_langs):
        for target in targets:
            if len(pools) >= pools_max:
                return pools
            if source != target:
                pools.append(f"pair.{source}.{target}")
    return pools


def _languages(words: list[str]) -> list[str]:
    return sorted({word.lower() for word in words if _LANGUAGE.fullmatch(word.lower())})
