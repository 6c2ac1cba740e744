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
    """The connection's epoch, and the status that the record has now; the node's load and its version."""

    epoch: int
    status: str
    used: int
    version: int
    #: False: a copy of a registration that was made before.
    is_new: bool = True


class Heartbeat(NamedTuple):
    """A node lives. Its capabilities stay as they are stored."""

    node_id: str
    edge: str
    epoch: int
    load: NodeLoad
    healthy: bool
    #: What runs there, as mesh.keys.lease_member spells it; None: not said, so nothing is compared.
    jobs: tuple[str, ...] | None = None


class HeartbeatReply(NamedTuple):
    """Answer to a heartbeat. All that follows the verdict is empty unless that is "ok".

    `status` and `status_before` differ in exactly one answer per change. `leaked`: slots that were held for nobody and
    are free again. `missing`: jobs that ran without a slot and have one again.
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
    """A node that the passing of time gave another status. Each change is told once, to one scanner."""

    node_id: str
    edge: str
    epoch: int
    status: str
    reason: str


class Drained(NamedTuple):
    """What an operator's command did. All but `known` is empty for a node that is not on the lists."""

    known: bool
    status: str = ""
    edge: str = ""
    epoch: int = 0
    #: When the drain ends, by Redis's clock; 0 after a resume.
    drain_until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A node said, `count` times, that it lacks a model of a service."""

    node_id: str
    epoch: int
    #: Service type; "" if nobody knows, then its id is marked.
    service: str
    service_id: str
    count: int = 1


class Marked(NamedTuple):
    """What became of a Mark. "limited": the node says so too often. "unknown": not on the lists by that connection."""

    verdict: Literal["marked", "limited", "unknown"]
    version: int = 0
    #: All that the node lacks -> until when, by Redis's clock.
    marks: dict[str, int] = _NO_NUMBERS
