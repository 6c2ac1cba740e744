"""Requests and results of the scripts that change nodes. Plain values, no Redis: cores may import them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from mesh.frames import NodeCaps, NodeLoad

_NO_NUMBERS: Final[dict[str, int]] = {}


class NodeFacts(NamedTuple):
    """One node as its view in Redis describes it. Times are by Redis's clock until a snapshot converts them."""

    edge: str
    epoch: int
    status: str
    caps: NodeCaps
    load: NodeLoad
    #: All its pools, sorted, separated by commas.
    pools: str = ""
    #: When its socket closed; 0: it is open.
    detached_ms: int = 0
    #: When its drain ends; 0: it has none.
    drain_until_ms: int = 0
    #: Why it has its status.
    reason: str = ""


class Registered(NamedTuple):
    """Result of a registration: epoch of the connection, status, slots in use and version of the node."""

    epoch: int
    status: str
    used: int
    version: int
    #: False: a duplicate of an earlier registration.
    is_new: bool = True


class Heartbeat(NamedTuple):
    """Heartbeat of a live node. Its stored capabilities stay."""

    node_id: str
    edge: str
    epoch: int
    load: NodeLoad
    healthy: bool
    #: Running jobs, as mesh.keys.lease_member formats them; None: unknown, so leases are not audited.
    jobs: tuple[str, ...] | None = None


class HeartbeatReply(NamedTuple):
    """Reply to a heartbeat. All fields after the verdict are empty unless it is "ok".

    `status` and `status_before` differ in exactly one reply per change. `leaked`: orphaned leases that were released.
    `missing`: running jobs whose lease was lost and is restored.
    """

    verdict: Literal["ok", "superseded", "unknown"]
    used: int = 0
    version: int = 0
    status: str = ""
    status_before: str = ""
    reason: str = ""
    leaked: int = 0
    missing: int = 0


class StatusChange(NamedTuple):
    """A node whose status was changed by a timeout. Exactly one caller gets each change."""

    node_id: str
    edge: str
    epoch: int
    status: str
    reason: str


class Drained(NamedTuple):
    """Result of drain or resume. All but `known` is empty for a node that is not listed."""

    known: bool
    status: str = ""
    edge: str = ""
    epoch: int = 0
    #: When the drain ends, by Redis's clock; 0 after a resume.
    drain_until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A node reported, `count` times, that it lacks a model of a service."""

    node_id: str
    epoch: int
    #: Service type; "" if unknown, then the service id is marked.
    service: str
    service_id: str
    count: int = 1


class Marked(NamedTuple):
    """Result of a Mark. "limited": beyond the node's rate limit. "unknown": not listed with that epoch."""

    verdict: Literal["marked", "limited", "unknown"]
    version: int = 0
    #: Missing service -> expiry of the mark, by Redis's clock.
    marks: dict[str, int] = _NO_NUMBERS
