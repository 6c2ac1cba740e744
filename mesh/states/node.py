"""Executable specification of lua/scripts/shared/node_state.lua, run by tests only: the state machine of a node.

The Lua script is in force; tests/lua compares both on random walks. Production code uses the enums only.

                     healthy heartbeats           unhealthy heartbeats
    registering ------------------------> ready <=================> degraded
         |  warmup timeout                  |    healthy heartbeat      ^
         +----------------------------------+---------------------------+
                any of them, heartbeat timeout: offline, until the next heartbeat
                any of them, by an operator:    draining, until `resume` or a registration after the drain's end

An offline node stays listed, so that a heartbeat finds it. It is unlisted by NodeOffline of its edge, at the end of the
reconnect grace, or when its record expires; then only a registration lists it again. Fencing by the epoch happens
before this table.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple


class Status(StrEnum):
    """Status of a node. Only a ready one gets jobs."""

    REGISTERING = "registering"
    READY = "ready"
    DEGRADED = "degraded"
    DRAINING = "draining"
    OFFLINE = "offline"


class NodeEvent(StrEnum):
    """Events of a node."""

    REGISTER = "register"
    HEALTHY = "healthy"  # a heartbeat
    UNHEALTHY = "unhealthy"  # a heartbeat
    DETACH = "detach"  # its socket closed
    TIME = "time"  # the scan for timeouts
    DRAIN = "drain"
    RESUME = "resume"
    LEAVE = "leave"  # its edge reports that it is gone


class NodeLimits(NamedTuple):
    """The bounds, from mesh.config.NodeConfig and EdgeConfig."""

    health_checks: int
    warmup_timeout_ms: int
    failure_window: int
    failures_max: int
    failures_in_row_max: int
    heartbeat_timeout_ms: int
    reconnect_grace_ms: int
    record_ttl_ms: int


class NodeState(NamedTuple):
    """The state in the node's record. Without a record it is `UNREGISTERED`."""

    status: Status
    #: Why it has this status, for people.
    reason: str = ""
    registered_ms: int = 0
    #: Last heartbeat or registration; 0 = unlisted.
    seen_ms: int = 0
    #: The latest heartbeats, newest last: + healthy, - unhealthy. Cleared when the node becomes ready.
    heard: str = ""
    #: When the socket closed; 0 = it is open.
    detached_ms: int = 0
    #: When the drain ends; 0 = none.
    drain_until_ms: int = 0


UNREGISTERED: Final = NodeState(Status.OFFLINE)


class EventDetail(NamedTuple):
    """Arguments of an event: a reason for people, and the end of a drain."""

    reason: str = ""
    until_ms: int = 0


NO_DETAIL: Final = EventDetail()


def step(
    state: NodeState, event: NodeEvent, now_ms: int, limits: NodeLimits, detail: EventDetail = NO_DETAIL
) -> NodeState:
    """The state after `event`. An unlisted node changes by a registration only."""
    if state.seen_ms == 0 and event is not NodeEvent.REGISTER:
        return state
    return _STEPS[event](state, now_ms, limits, detail)


def due_ms(state: NodeState, limits: NodeLimits) -> int:
    """When a timeout can change the state next."""
    if state.detached_ms:
        return state.detached_ms + limits.reconnect_grace_ms
    stays = state.status in (Status.OFFLINE, Status.DRAINING)
    return state.seen_ms + (limits.record_ttl_ms if stays else limits.heartbeat_timeout_ms)


def _registered(state: NodeState, now_ms: int, _limits: NodeLimits, _detail: EventDetail) -> NodeState:
    if state.drain_until_ms > now_ms:
        return NodeState(Status.DRAINING, state.reason, now_ms, now_ms, drain_until_ms=state.drain_until_ms)
    return NodeState(Status.REGISTERING, "registered", now_ms, now_ms)


def _healthy(state: NodeState, now_ms: int, limits: NodeLimits, _detail: EventDetail) -> NodeState:
    return _heartbeat(state, "+", now_ms, limits)


def _unhealthy(state: NodeState, now_ms: int, limits: NodeLimits, _detail: EventDetail) -> NodeState:
    return _heartbeat(state, "-", now_ms, limits)


def _heartbeat(state: NodeState, sign: str, now_ms: int, limits: NodeLimits) -> NodeState:
    if state.detached_ms:
        return state  # the socket is closed: the heartbeat is older
    length = max(limits.health_checks, limits.failure_window, limits.failures_in_row_max)
    state = state._replace(heard=(state.heard + sign)[-length:], seen_ms=now_ms)
    if state.status is Status.REGISTERING:
        return _warming_up(state, now_ms, limits)
    if state.status is Status.READY:
        return _degraded(state, "unhealthy") if _fails(state.heard, limits) else state
    if state.status is Status.DRAINING:
        return state
    if sign == "+":
        return _ready(state, "recovered")
    return _degraded(state, "unhealthy") if state.status is Status.OFFLINE else state


def _warming_up(state: NodeState, now_ms: int, limits: NodeLimits) -> NodeState:
    if state.heard.endswith("+" * limits.health_checks):
        return _ready(state, "healthy")
    if now_ms - state.registered_ms >= limits.warmup_timeout_ms:
        return _degraded(state, "warmup_timeout")
    return state


def _fails(heard: str, limits: NodeLimits) -> bool:
    in_window = heard[-limits.failure_window :].count("-")
    return in_window >= limits.failures_max or heard.endswith("-" * limits.failures_in_row_max)


def _ready(state: NodeState, reason: str) -> NodeState:
    return state._replace(status=Status.READY, reason=reason, heard="+")


def _degraded(state: NodeState, reason: str) -> NodeState:
    return state._replace(status=Status.DEGRADED, reason=reason)


def _detached(state: NodeState, now_ms: int, _limits: NodeLimits, detail: EventDetail) -> NodeState:
    return state if state.detached_ms else state._replace(detached_ms=now_ms, reason=detail.reason)


def _time(state: NodeState, now_ms: int, limits: NodeLimits, _detail: EventDetail) -> NodeState:
    if now_ms < due_ms(state, limits):
        return state
    if state.detached_ms:
        return _unlisted(state, state.reason)
    if state.status in (Status.OFFLINE, Status.DRAINING):
        return _unlisted(state, "forgotten")
    return state._replace(status=Status.OFFLINE, reason="heartbeat_timeout")


def _drained(state: NodeState, _now_ms: int, _limits: NodeLimits, detail: EventDetail) -> NodeState:
    return state._replace(status=Status.DRAINING, reason=detail.reason, drain_until_ms=detail.until_ms)


def _resumed(state: NodeState, _now_ms: int, _limits: NodeLimits, _detail: EventDetail) -> NodeState:
    if state.status is not Status.DRAINING:
        return state
    status = {"": Status.REGISTERING, "+": Status.READY, "-": Status.DEGRADED}[state.heard[-1:]]
    return state._replace(status=status, reason="resumed", drain_until_ms=0)


def _left(state: NodeState, _now_ms: int, _limits: NodeLimits, detail: EventDetail) -> NodeState:
    return _unlisted(state, detail.reason)


def _unlisted(state: NodeState, reason: str) -> NodeState:
    return state._replace(status=Status.OFFLINE, reason=reason, seen_ms=0)


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
