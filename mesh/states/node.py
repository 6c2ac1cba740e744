"""State machine of a node, as one pure function: specifies lua/scripts/shared/node_state.lua, which is in force.
Runs only in tests, which compare both.

                     healthy heartbeats             unhealthy ones
    registering ------------------------> ready <=================> degraded
         |  too long                        |      a healthy one        ^
         +----------------------------------+---------------------------+
                any of them, silent too long: offline; any heartbeat brings it back
                any of them, by an operator:  draining, until `resume` or a registration after the drain's end

An offline node stays on the lists, so that a heartbeat finds it there. It leaves them when its edge says that it is
away, when its socket has been closed for longer than the grace, or when its record lapses; then only a registration
brings it back. Whose connection an event belongs to is fencing (the epoch), and not this table's business.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple


class Status(StrEnum):
    """What may be done with a node. Only a ready one gets work."""

    REGISTERING = "registering"
    READY = "ready"
    DEGRADED = "degraded"
    DRAINING = "draining"
    OFFLINE = "offline"


class NodeEvent(StrEnum):
    """What can happen to a node."""

    REGISTER = "register"
    HEALTHY = "healthy"  # a heartbeat
    UNHEALTHY = "unhealthy"  # a heartbeat
    DETACH = "detach"  # its socket closed
    TIME = "time"  # somebody looked at the clock
    DRAIN = "drain"
    RESUME = "resume"
    LEAVE = "leave"  # its edge says that it is away


class NodeLimits(NamedTuple):
    """The rules, from mesh.config.NodeConfig."""

    health_checks: int
    warmup_timeout_ms: int
    failure_window: int
    failures_max: int
    failures_in_row_max: int
    heartbeat_timeout_ms: int
    reconnect_grace_ms: int
    record_ttl_ms: int


class NodeState(NamedTuple):
    """What the record keeps. Without a record it is `NOBODY`."""

    status: Status
    #: Why it has this status.
    reason: str = ""
    registered_ms: int = 0
    #: Last heartbeat or registration; 0: off the lists.
    seen_ms: int = 0
    #: The latest heartbeats, newest last: + healthy, - not. Begins anew when the node becomes ready.
    heard: str = ""
    #: When the socket closed; 0: it is open.
    detached_ms: int = 0
    #: When the drain ends; 0: there is none.
    drain_until_ms: int = 0


NOBODY: Final = NodeState(Status.OFFLINE)


class EventDetail(NamedTuple):
    """What comes with an event: a reason for people, and the end of a drain."""

    reason: str = ""
    until_ms: int = 0


NO_DETAIL: Final = EventDetail()


def step(
    life: NodeState, event: NodeEvent, now_ms: int, limits: NodeLimits, said: EventDetail = NO_DETAIL
) -> NodeState:
    """The node's life after `event`. Off the lists, nothing but a registration changes anything."""
    if life.seen_ms == 0 and event is not NodeEvent.REGISTER:
        return life
    return _STEPS[event](life, now_ms, limits, said)


def due_ms(life: NodeState, limits: NodeLimits) -> int:
    """When the passing of time can change the node next."""
    if life.detached_ms:
        return life.detached_ms + limits.reconnect_grace_ms
    stays = life.status in (Status.OFFLINE, Status.DRAINING)
    return life.seen_ms + (limits.record_ttl_ms if stays else limits.heartbeat_timeout_ms)


def _registered(life: NodeState, now_ms: int, _limits: NodeLimits, _said: EventDetail) -> NodeState:
    if life.drain_until_ms > now_ms:
        return NodeState(Status.DRAINING, life.reason, now_ms, now_ms, drain_until_ms=life.drain_until_ms)
    return NodeState(Status.REGISTERING, "registered", now_ms, now_ms)


def _healthy(life: NodeState, now_ms: int, limits: NodeLimits, _said: EventDetail) -> NodeState:
    return _heard(life, "+", now_ms, limits)


def _unhealthy(life: NodeState, now_ms: int, limits: NodeLimits, _said: EventDetail) -> NodeState:
    return _heard(life, "-", now_ms, limits)


def _heard(life: NodeState, sign: str, now_ms: int, limits: NodeLimits) -> NodeState:
    if life.detached_ms:
        return life  # the socket is closed, so this is from before
    kept = max(limits.health_checks, limits.failure_window, limits.failures_in_row_max)
    life = life._replace(heard=(life.heard + sign)[-kept:], seen_ms=now_ms)
    if life.status is Status.REGISTERING:
        return _warming(life, now_ms, limits)
    if life.status is Status.READY:
        return _degraded(life, "unhealthy") if _fails(life.heard, limits) else life
    if life.status is Status.DRAINING:
        return life
    if sign == "+":
        return _ready(life, "recovered")
    return _degraded(life, "unhealthy") if life.status is Status.OFFLINE else life


def _warming(life: NodeState, now_ms: int, limits: NodeLimits) -> NodeState:
    if life.heard.endswith("+" * limits.health_checks):
        return _ready(life, "healthy")
    if now_ms - life.registered_ms >= limits.warmup_timeout_ms:
        return _degraded(life, "warmup_timeout")
    return life


def _fails(heard: str, limits: NodeLimits) -> bool:
    in_window = heard[-limits.failure_window :].count("-")
    return in_window >= limits.failures_max or heard.endswith("-" * limits.failures_in_row_max)


def _ready(life: NodeState, reason: str) -> NodeState:
    return life._replace(status=Status.READY, reason=reason, heard="+")


def _degraded(life: NodeState, reason: str) -> NodeState:
    return life._replace(status=Status.DEGRADED, reason=reason)


def _detached(life: NodeState, now_ms: int, _limits: NodeLimits, said: EventDetail) -> NodeState:
    return life if life.detached_ms else life._replace(detached_ms=now_ms, reason=said.reason)


def _time(life: NodeState, now_ms: int, limits: NodeLimits, _said: EventDetail) -> NodeState:
    if now_ms < due_ms(life, limits):
        return life
    if life.detached_ms:
        return _off_the_lists(life, life.reason)
    if life.status in (Status.OFFLINE, Status.DRAINING):
        return _off_the_lists(life, "forgotten")
    return life._replace(status=Status.OFFLINE, reason="heartbeat_timeout")


def _drained(life: NodeState, _now_ms: int, _limits: NodeLimits, said: EventDetail) -> NodeState:
    return life._replace(status=Status.DRAINING, reason=said.reason, drain_until_ms=said.until_ms)


def _resumed(life: NodeState, _now_ms: int, _limits: NodeLimits, _said: EventDetail) -> NodeState:
    if life.status is not Status.DRAINING:
        return life
    status = {"": Status.REGISTERING, "+": Status.READY, "-": Status.DEGRADED}[life.heard[-1:]]
    return life._replace(status=status, reason="resumed", drain_until_ms=0)


def _left(life: NodeState, _now_ms: int, _limits: NodeLimits, said: EventDetail) -> NodeState:
    return _off_the_lists(life, said.reason)


def _off_the_lists(life: NodeState, reason: str) -> NodeState:
    return life._replace(status=Status.OFFLINE, reason=reason, seen_ms=0)


_STEPS: Final[dict[NodeEvent, Callable[[NodeState, int, NodeLimits, EventDetail], NodeState]]] = {
    NodeEvent.REGISTER: _registered,
    NodeEvent.HEALTHY: _healthy,
    NodeEvent.UNHEALTHY: _unhealthy,
    NodeEvent.DETACH: _detached,
    NodeEvent.TIME: _time,
    NodeEvent.DRAIN: _drained,
    NodeEvent.RESUME: _resumed,
    NodeEvent.LEAVE: _left,
}
assert set(_STEPS) == set(NodeEvent)
