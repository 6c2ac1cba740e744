"""Every transition of a node, one line each; then the invariants of any walk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.states.node import UNREGISTERED, EventDetail, NodeEvent, NodeLimits, NodeState, Status, due_ms, step

LIMITS = NodeLimits(
    health_checks=2,
    warmup_timeout_ms=60_000,
    failure_window=5,
    failures_max=3,
    failures_in_row_max=3,
    heartbeat_timeout_ms=45_000,
    reconnect_grace_ms=3_000,
    record_ttl_ms=3_600_000,
)
T = 1_000_000
OK, BAD = NodeEvent.HEALTHY, NodeEvent.UNHEALTHY


def walk(state: NodeState, *events: NodeEvent, now_ms: int = T, detail: EventDetail = EventDetail()) -> NodeState:  # noqa: B008 - immutable
    for event in events:
        state = step(state, event, now_ms, LIMITS, detail)
    return state


NEW = walk(UNREGISTERED, NodeEvent.REGISTER)
READY = walk(NEW, OK, OK)
DEGRADED = walk(READY, BAD, BAD, BAD)
SILENT = walk(READY, NodeEvent.TIME, now_ms=T + 45_000)
DRAINING = walk(READY, NodeEvent.DRAIN, detail=EventDetail("new disk", T + 30_000))
DETACHED = walk(READY, NodeEvent.DETACH, detail=EventDetail("closed"))
GONE = walk(READY, NodeEvent.LEAVE, detail=EventDetail("node_absent"))


@pytest.mark.parametrize(
    ("state", "status", "reason"),
    [
        (NEW, "registering", "registered"),
        (walk(NEW, OK), "registering", "registered"),
        (READY, "ready", "healthy"),
        (walk(NEW, OK, BAD, OK), "registering", "registered"),
        (walk(NEW, OK, BAD, OK, OK), "ready", "healthy"),
        (walk(NEW, BAD, now_ms=T + 59_999), "registering", "registered"),
        (walk(NEW, BAD, now_ms=T + 60_000), "degraded", "warmup_timeout"),
        (walk(walk(NEW, OK), OK, now_ms=T + 60_000), "ready", "healthy"),
        (walk(READY, BAD, BAD), "ready", "healthy"),
        (DEGRADED, "degraded", "unhealthy"),
        (walk(READY, BAD, OK, BAD, OK, BAD), "degraded", "unhealthy"),
        (walk(READY, BAD, OK, OK, OK, OK, BAD, BAD), "ready", "healthy"),
        (walk(DEGRADED, BAD), "degraded", "unhealthy"),
        (walk(DEGRADED, OK), "ready", "recovered"),
        (walk(DEGRADED, OK, BAD, BAD), "ready", "recovered"),
        (walk(READY, NodeEvent.TIME, now_ms=T + 44_999), "ready", "healthy"),
        (SILENT, "offline", "heartbeat_timeout"),
        (walk(NEW, NodeEvent.TIME, now_ms=T + 45_000), "offline", "heartbeat_timeout"),
        (walk(DEGRADED, NodeEvent.TIME, now_ms=T + 45_000), "offline", "heartbeat_timeout"),
        (walk(SILENT, OK, now_ms=T + 50_000), "ready", "recovered"),
        (walk(SILENT, BAD, now_ms=T + 50_000), "degraded", "unhealthy"),
        (walk(SILENT, NodeEvent.REGISTER, now_ms=T + 50_000), "registering", "registered"),
        (DRAINING, "draining", "new disk"),
        (walk(DRAINING, OK, BAD, BAD, BAD, OK), "draining", "new disk"),
        (walk(DRAINING, NodeEvent.TIME, now_ms=T + 46_000), "draining", "new disk"),
        (walk(DRAINING, NodeEvent.REGISTER, now_ms=T + 29_999), "draining", "new disk"),
        (walk(DRAINING, NodeEvent.REGISTER, now_ms=T + 30_000), "registering", "registered"),
        (walk(DRAINING, OK, now_ms=T + 90_000), "draining", "new disk"),
        (walk(DRAINING, NodeEvent.RESUME), "ready", "resumed"),
        (walk(DRAINING, BAD, NodeEvent.RESUME), "degraded", "resumed"),
        (walk(DRAINING, NodeEvent.REGISTER, NodeEvent.RESUME), "registering", "resumed"),
        (walk(SILENT, NodeEvent.DRAIN, detail=EventDetail("why", T)), "draining", "why"),
        (walk(READY, NodeEvent.RESUME), "ready", "healthy"),
        (DETACHED, "ready", "closed"),
        (walk(DETACHED, BAD, BAD, BAD), "ready", "closed"),
        (walk(DETACHED, NodeEvent.TIME, now_ms=T + 2_999), "ready", "closed"),
        (walk(DETACHED, NodeEvent.TIME, now_ms=T + 3_000), "offline", "closed"),
        (walk(DETACHED, NodeEvent.REGISTER), "registering", "registered"),
        (GONE, "offline", "node_absent"),
        (walk(GONE, OK, NodeEvent.DRAIN, NodeEvent.RESUME, NodeEvent.TIME, NodeEvent.DETACH), "offline", "node_absent"),
        (walk(GONE, NodeEvent.REGISTER), "registering", "registered"),
        (walk(SILENT, NodeEvent.TIME, now_ms=T + 3_599_999), "offline", "heartbeat_timeout"),
        (walk(SILENT, NodeEvent.TIME, now_ms=T + 3_600_000), "offline", "forgotten"),
        (walk(DRAINING, NodeEvent.TIME, now_ms=T + 3_600_000), "offline", "forgotten"),
    ],
)
def test_every_transition(state: NodeState, status: str, reason: str) -> None:
    assert (state.status, state.reason) == (status, reason)


def test_silent_node_stays_listed_and_detached_node_does_not() -> None:
    assert SILENT.seen_ms == T
    assert walk(DETACHED, NodeEvent.TIME, now_ms=T + 3_000).seen_ms == 0
    assert walk(SILENT, NodeEvent.TIME, now_ms=T + 3_600_000).seen_ms == 0
    assert GONE.seen_ms == 0


def test_registration_clears_the_previous_state() -> None:
    again = walk(walk(DEGRADED, NodeEvent.DETACH), NodeEvent.REGISTER, now_ms=T + 5)
    assert again == NodeState(Status.REGISTERING, "registered", T + 5, T + 5)


def test_drain_outlives_the_absence_of_the_node() -> None:
    gone = walk(DRAINING, NodeEvent.LEAVE, detail=EventDetail("closed"))
    assert walk(gone, NodeEvent.REGISTER, now_ms=T + 1).status == "draining"
    assert walk(gone, NodeEvent.REGISTER, now_ms=T + 30_000).status == "registering"


EVENTS = st.lists(st.tuples(st.sampled_from(NodeEvent), st.integers(0, 100_000)), max_size=60)


@given(EVENTS)
def test_invariants_hold_on_any_walk(steps: list[tuple[NodeEvent, int]]) -> None:
    state, now_ms = UNREGISTERED, T
    for event, later in steps:
        now_ms += later
        before = state
        state = step(state, event, now_ms, LIMITS, EventDetail("why", now_ms + 10_000))
        assert len(state.heard) <= 5, "the history is bounded"
        assert state.seen_ms or state.status == "offline", "an unlisted node is offline"
        if before.status == "draining" and state.status != "draining":
            assert event in (NodeEvent.RESUME, NodeEvent.REGISTER, NodeEvent.LEAVE, NodeEvent.TIME)
        if state.seen_ms and now_ms < due_ms(state, LIMITS):
            assert step(state, NodeEvent.TIME, now_ms, LIMITS) == state, "no change before it is due"
        if state.seen_ms:
            due = due_ms(state, LIMITS)
            after = step(state, NodeEvent.TIME, max(due, now_ms), LIMITS)
            assert after.seen_ms == 0 or due_ms(after, LIMITS) > due, "a due change happens"
