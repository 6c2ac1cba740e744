"""The layout of the node table's columns, and the conversion of a node's facts into its row."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from mesh.frames import NodeCaps, NodeLoad
from selector.core.interner import NOT_INTERNED, RowInterns, bits
from selector.core.kernel import (
    DRAINING_STATUS,
    LANGUAGE_PLANES,
    OFFLINE_STATUS,
    OTHER_STATUS,
    PAIR_PLANES,
    READY_STATUS,
    SPEED_SLOTS,
    Columns,
)

INT32_MAX: Final = 2**31 - 1
_STATUS: Final = {"ready": READY_STATUS, "draining": DRAINING_STATUS, "offline": OFFLINE_STATUS}
_TYPES: Final[dict[str, type[np.generic]]] = {
    "seen_ms": np.int64,
    "unreachable_until_ms": np.int64,
    "detached_ms": np.int64,
    "status": np.uint8,
    "gpus": np.int32,
    "load_percent": np.float64,
    "accept_public": np.uint8,
    "tenant": np.int32,
    "pool": np.int32,
    "region": np.int32,
    "tier": np.int32,
    "installed": np.uint64,
    "ready": np.uint64,
    "marked": np.uint64,
    "asr": np.uint64,
    "semantic": np.uint64,
    "tts": np.uint64,
    "tts_named": np.uint8,
    "pairs": np.uint64,
    "pairs_named": np.uint8,
    "used": np.int32,
    "running": np.int32,
    "max_jobs": np.int32,
    "charged": np.int32,
    "speed_pair": np.int32,
    "speed_mean": np.float32,
    "speed_variance": np.float32,
    "speed_jobs": np.float32,
    "speed_at_ms": np.int64,
}
#: Columns that have more than one number per node.
_WIDTHS: Final = {
    "asr": LANGUAGE_PLANES,
    "semantic": LANGUAGE_PLANES,
    "tts": LANGUAGE_PLANES,
    "pairs": PAIR_PLANES,
    "speed_pair": SPEED_SLOTS,
    "speed_mean": SPEED_SLOTS,
    "speed_variance": SPEED_SLOTS,
    "speed_jobs": SPEED_SLOTS,
    "speed_at_ms": SPEED_SLOTS,
}


def empty_columns(capacity: int) -> Columns:
    """Columns for `capacity` nodes."""
    return Columns(
        **{
            name: np.zeros((capacity, _WIDTHS[name]) if name in _WIDTHS else capacity, dtype=kind)
            for name, kind in _TYPES.items()
        }
    )


def small(number: int) -> int:
    """A peer's number, clipped to what a column holds."""
    return max(0, min(int(number), INT32_MAX))


def _percent(number: float) -> float:
    """A peer's percentage; NaN and infinity count as 0."""
    return float(number) if math.isfinite(number) else 0.0


def write_load(columns: Columns, row: int, status: str, load: NodeLoad, detached_ms: int) -> None:
    """Status and load, which change from heartbeat to heartbeat."""
    columns.status[row] = _STATUS.get(status, OTHER_STATUS)
    columns.detached_ms[row] = max(0, detached_ms)
    columns.load_percent[row] = max(_percent(load.cpu_percent), _percent(load.gpu_percent), _percent(load.mem_percent))
    columns.running[row] = small(load.running_jobs)


def write_caps(columns: Columns, row: int, caps: NodeCaps, held: RowInterns, models: list[int]) -> None:
    """Capabilities. `held`: the numbers of its strings, `models`: of its models that jobs may need."""
    columns.gpus[row] = small(caps.gpu_count)
    columns.accept_public[row] = caps.accept_public
    columns.tenant[row] = held.tenants[0] if held.tenants else NOT_INTERNED
    columns.region[row] = held.regions[0] if held.regions else NOT_INTERNED
    columns.tier[row] = held.tiers[0] if held.tiers else NOT_INTERNED
    columns.installed[row] = bits([*held.installed, *models], 1)[0]
    columns.ready[row] = bits([*held.ready, *models], 1)[0]
    columns.asr[row] = bits(held.asr, LANGUAGE_PLANES)
    columns.semantic[row] = bits(held.semantic, LANGUAGE_PLANES)
    columns.tts[row] = bits(held.tts, LANGUAGE_PLANES)
    columns.tts_named[row] = bool(caps.tts_langs)
    columns.pairs[row] = bits(held.pairs, PAIR_PLANES)
    columns.pairs_named[row] = bool(caps.pairs)
    columns.max_jobs[row] = small(caps.max_jobs)
