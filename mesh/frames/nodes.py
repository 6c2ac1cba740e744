"""Frames about nodes, between edge and selector: registration, heartbeats, status, drain and missing models."""

from __future__ import annotations

import msgspec

from mesh.frames.base import Frame, Lane, Role


class NodeCaps(msgspec.Struct, frozen=True, array_like=True):
    """Capabilities of a node, flattened by its edge from node_register and node_heartbeat."""

    version: str
    platform: str
    cpu_cores: int
    memory_gb: float
    gpu_count: int
    gpu_memory_gb: float
    services_installed: list[str]  # service types, lower case
    services_ready: list[str]
    asr_langs: list[str]
    semantic_langs: list[str]
    tts_langs: list[str]  # empty = not declared: any target language of the semantic stage
    accept_public: bool
    max_jobs: int
    region: str = ""
    gpu_tier: str = ""
    tenant_id: str = ""
    models: list[str] = []  # ids of enabled models
    pairs: list[str] = []  # directed, as pair_of spells them; empty = any of asr_langs to any of semantic_langs


class NodeLoad(msgspec.Struct, frozen=True, array_like=True):
    """Load of a node, as its heartbeat reports it."""

    cpu_percent: float = 0.0
    gpu_percent: float = 0.0
    mem_percent: float = 0.0
    running_jobs: int = 0


class NodeRegister(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector: a node registered on a socket of the edge. Reply: NodeRegistered | Failed."""

    ref: str
    node_id: str
    edge: str
    caps: NodeCaps


class NodeRegistered(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge: reply. The epoch fences this connection; a later registration gets a higher one."""

    ref: str
    node_id: str
    epoch: int
    status: str


class NodeHeartbeat(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector: liveness, load and jobs. `caps` is None while unchanged. Reply: NodeStale or none."""

    node_id: str
    edge: str
    epoch: int
    load: NodeLoad
    caps: NodeCaps | None = None
    #: Jobs that node and edge know to run there, as lease members (mesh.keys.lease_member); None = unknown.
    jobs: list[str] | None = None


class NodeStale(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge: the epoch is not the current one. `reason` (mesh.words.StaleReason):

    "superseded": another connection owns the node; close this one. "unknown": there is no record; register again.
    """

    node_id: str
    epoch: int
    reason: str


class NodeOffline(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge -> selector: the node's socket closed. Ignored unless the epoch is the current one.

    The node is then detached: it costs more in selection, and after edge.reconnect_grace_ms it is offline.
    """

    node_id: str
    edge: str
    epoch: int
    reason: str


class StatusChanged(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge: the node's status changed, and why."""

    node_id: str
    epoch: int
    status: str
    reason: str


class ControlNode(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Selector -> edge: an operator's command for a node of the edge.

    "drain": notify the node, assign it no more jobs, and return its unfinished jobs at `deadline_ms` (wall clock).
    "resume": cancel the drain.
    """

    node_id: str
    epoch: int
    command: str
    reason: str
    deadline_ms: int = 0


class ModelMissing(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge -> selector, by the node's cell: `count` MODEL_NOT_AVAILABLE errors of the node since the last report."""

    node_id: str
    epoch: int
    service_id: str
    #: The service type of that id, "" if the edge does not know it.
    service: str
    version: str
    reason: str
    count: int = 1
