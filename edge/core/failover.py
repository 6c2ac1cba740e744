"""Failover: which failures of a node justify another attempt at another node. Pure; both ends of a job use it."""

from __future__ import annotations

from typing import Final

from mesh.messages.node import JobResult

#: Codes of failures that another node may not have.
FAILOVER_CODES: Final = frozenset(
    (
        "INTERNAL_ERROR",
        "MODEL_CORRUPTED",
        "MODEL_LOAD_FAILED",
        "MODEL_NOT_AVAILABLE",
        "MODEL_VERIFY_FAILED",
        "NODE_OVERLOADED",
        "NODE_UNAVAILABLE",
        "NO_GPU_AVAILABLE",
        "PROCESSING_ERROR",
    )
)


def is_failover(result: JobResult) -> bool:
    """True for a failure that another node may not have; a failure without a code is one."""
    if result.success:
        return False
    return result.error is None or result.error.code.strip().upper() in FAILOVER_CODES
