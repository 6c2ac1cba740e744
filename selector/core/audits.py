"""What audits found: how far the slots in Redis were from the jobs that nodes run, at each node's last audit.

An audit puts right what it finds, so a node that is fine at its next heartbeat no longer counts. Only nodes with a
mismatch are remembered; one that is not heard of again is forgotten, because another selector may hear it now.
"""

from __future__ import annotations

from typing import Final

#: Nodes remembered; beyond that the oldest are forgotten.
NODES_MAX: Final = 10_000


class Audits:
    """Mismatches of one selector's nodes."""

    def __init__(self, remember_ms: int) -> None:
        self.leaked_total = 0
        self.missing_total = 0
        self._remember_ms = remember_ms
        #: Node id -> (mismatches, when); oldest first.
        self._found: dict[str, tuple[int, int]] = {}

    def note(self, node_id: str, leaked: int, missing: int, now_ms: int) -> None:
        """One audit: slots that nobody used, and running jobs that had none."""
        self.leaked_total += leaked
        self.missing_total += missing
        self._found.pop(node_id, None)
        if leaked + missing:
            self._found[node_id] = (leaked + missing, now_ms)
            if len(self._found) > NODES_MAX:
                del self._found[next(iter(self._found))]

    def drift(self, now_ms: int) -> int:
        """The mismatches of all nodes at their last audits."""
        for node_id, (_, found_ms) in list(self._found.items()):
            if now_ms - found_ms < self._remember_ms:
                break
            del self._found[node_id]
        return sum(mismatches for mismatches, _ in self._found.values())
