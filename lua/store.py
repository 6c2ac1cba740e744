"""The store: one typed method per script. Chooses keys and slots; decides nothing about jobs or nodes itself."""

from __future__ import annotations

from collections.abc import Sequence

from lua.answers import (
    Advanced,
    Beaten,
    ChangedNode,
    Changes,
    Claimed,
    CommitRequest,
    Committed,
    Registered,
    Released,
)
from lua.runner import Runner
from mesh.config import Config
from mesh.frames import NodeCaps, NodeLoad
from mesh.keys import Keys

__all__ = [
    "Advanced", "Beaten", "ChangedNode", "Changes", "Claimed", "CommitRequest", "Committed", "Registered", "Released",
    "Store",
]  # fmt: skip


class Store:
    """All that a selector may do to Redis. Every method raises StoreError when Redis cannot be used."""

    def __init__(self, runner: Runner, keys: Keys, config: Config) -> None:
        self._runner = runner
        self._keys = keys
        self._config = config

    # nodes
    async def register_node(
        self, node_id: str, edge: str, caps: NodeCaps, status: str, pools: Sequence[str], load: NodeLoad | None = None
    ) -> Registered:
        """Write the node's record for a new connection; a later registration always gets a higher epoch."""
        raise NotImplementedError

    async def heartbeat_node(
        self,
        node_id: str,
        edge: str,
        epoch: int,
        load: NodeLoad,
        status: str,
        caps: NodeCaps | None = None,
        pools: Sequence[str] | None = None,
    ) -> Beaten:
        """Renew the record. `caps` and `pools` None leave what is stored; give both or neither."""
        raise NotImplementedError

    async def node_offline(self, node_id: str, epoch: int, reason: str) -> bool:
        """Take the node off the lists if `epoch` is in force; its leases stay until released or lapsed."""
        raise NotImplementedError

    async def node_changes(self, cell: int, since: int, limit: int) -> Changes:
        """At most `limit` nodes of the cell that changed after version `since` (0 = all)."""
        raise NotImplementedError

    async def forget_silent_nodes(self, cell: int) -> int:
        """Remove what is left of nodes whose record has lapsed; how many. Bounded per call."""
        raise NotImplementedError

    # jobs
    async def commit(self, requests: Sequence[CommitRequest]) -> list[Committed]:
        """Place each request on its first candidate with room, once per request id. Never raises StoreError."""
        raise NotImplementedError

    async def advance_job(
        self, job_id: str, attempt: int, node_id: str, events: str, *, success: bool = True
    ) -> Advanced:
        """Apply one or more events of mesh.jobs, as in "finish release". `success` is recorded by finish."""
        raise NotImplementedError

    async def release_job(self, job_id: str, attempt: int, node_id: str, reason: str) -> Released:
        """Give the slot of exactly this attempt back."""
        raise NotImplementedError

    # sessions
    async def claim_session(
        self, session_id: str, edge: str, epoch: int, tenant_id: str, src_lang: str, tgt_lang: str
    ) -> Claimed:
        """Make `edge` the owner: epoch 0 takes over, otherwise it must be the epoch in force."""
        raise NotImplementedError

    async def release_session(self, session_id: str, edge: str, epoch: int) -> bool:
        """Forget the session if owner and epoch match."""
        raise NotImplementedError

    async def session_owner(self, session_id: str) -> str | None:
        """The edge that owns the session now."""
        raise NotImplementedError

    # deployment
    async def check_deployment(self, cells: int) -> None:
        """ConfigError when the deployment in Redis was born with another number of cells; writes it when new."""
        raise NotImplementedError
