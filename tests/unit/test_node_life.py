"""Every transition of a node's life, one line each; then what must hold on any walk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.node_life import NOBODY, Event, Life, Limits, Said, Status, due_ms, step

LIMITS = Limits(
    health_checks=2, warmup_timeout_ms=60_000, failure_window=5, failures_max=3, failures_in_row_max=3,
    heartbeat_timeout_ms=45_000, reconnect_grace_ms=3_000, record_ttl_ms=3_600_000,
)  # fmt: skip
T = 1_000_000
OK, BAD = Event.HEALTHY, Event.UNHEALTHY


def walk(life: Life, *events: Event, now_ms: int = T, said: Said = Said()) -> Life:  # noqa: B008 - immutable
    for event in events:
        life = step(life, event, now_ms, LIMITS, said)
    return life


NEW = walk(NOBODY, Event.REGISTER)
READY = walk(NEW, OK, OK)
DEGRADED = walk(READY, BAD, BAD, BAD)
SILENT = walk(READY, Event.TIME, now_ms=T + 45_000)
DRAINING = walk(READY, Event.DRAIN, said=Said("new disk", T + 30_000))
DETACHED = walk(READY, Event.DETACH, said=Said("closed"))
GONE = walk(READY, Event.LEAVE, said=Said("node_absent"))


@pytest.mark.parametrize(
    ("life", "status", "reason"),
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
        (walk(READY, Event.TIME, now_ms=T + 44_999), "ready", "healthy"),
        (SILENT, "offline", "heartbeat_timeout"),
        (walk(NEW, Event.TIME, now_ms=T + 45_000), "offline", "heartbeat_timeout"),
        (walk(DEGRADED, Event.TIME, now_ms=T + 45_000), "offline", "heartbeat_timeout"),
        (walk(SILENT, OK, now_ms=T + 50_000), "ready", "recovered"),
        (walk(SILENT, BAD, now_ms=T + 50_000), "degraded", "unhealthy"),
        (walk(SILENT, Event.REGISTER, now_ms=T + 50_000), "registering", "registered"),
        (DRAINING, "draining", "new disk"),
        (walk(DRAINING, OK, BAD, BAD, BAD, OK), "draining", "new disk"),
        (walk(DRAINING, Event.TIME, now_ms=T + 46_000), "draining", "new disk"),
        (walk(DRAINING, Event.REGISTER, now_ms=T + 29_999), "draining", "new disk"),
        (walk(DRAINING, Event.REGISTER, now_ms=T + 30_000), "registering", "registered"),
        (walk(DRAINING, OK, now_ms=T + 90_000), "draining", "new disk"),
        (walk(DRAINING, Event.RESUME), "ready", "resumed"),
        (walk(DRAINING, BAD, Event.RESUME), "degraded", "resumed"),
        (walk(DRAINING, Event.REGISTER, Event.RESUME), "registering", "resumed"),
        (walk(SILENT, Event.DRAIN, said=Said("why", T)), "draining", "why"),
        (walk(READY, Event.RESUME), "ready", "healthy"),
        (DETACHED, "ready", "closed"),
        (walk(DETACHED, BAD, BAD, BAD), "ready", "closed"),
        (walk(DETACHED, Event.TIME, now_ms=T + 2_999), "ready", "closed"),
        (walk(DETACHED, Event.TIME, now_ms=T + 3_000), "offline", "closed"),
        (walk(DETACHED, Event.REGISTER), "registering", "registered"),
        (GONE, "offline", "node_absent"),
        (walk(GONE, OK, Event.DRAIN, Event.RESUME, Event.TIME, Event.DETACH), "offline", "node_absent"),
        (walk(GONE, Event.REGISTER), "registering", "registered"),
        (walk(SILENT, Event.TIME, now_ms=T + 3_599_999), "offline", "heartbeat_timeout"),
        (walk(SILENT, Event.TIME, now_ms=T + 3_600_000), "offline", "forgotten"),
        (walk(DRAINING, Event.TIME, now_ms=T + 3_600_000), "offline", "forgotten"),
    ],
)
def test_every_transition(life: Life, status: str, reason: str) -> None:
    assert (life.status, life.reason) == (status, reason)


def test_a_silent_node_stays_on_the_lists_and_one_that_is_away_does_not() -> None:
    assert SILENT.seen_ms == T
    assert walk(DETACHED, Event.TIME, now_ms=T + 3_000).seen_ms == 0
    assert walk(SILENT, Event.TIME, now_ms=T + 3_600_000).seen_ms == 0
    assert GONE.seen_ms == 0


def test_a_registration_clears_what_was_before() -> None:
    again = walk(walk(DEGRADED, Event.DETACH), Event.REGISTER, now_ms=T + 5)
    assert again == Life(Status.REGISTERING, "registered", T + 5, T + 5)


def test_a_drain_that_has_not_ended_outlives_the_node_s_absence() -> None:
    gone = walk(DRAINING, Event.LEAVE, said=Said("closed"))
    assert walk(gone, Event.REGISTER, now_ms=T + 1).status == "draining"
    assert walk(gone, Event.REGISTER, now_ms=T + 30_000).status == "registering"


EVENTS = st.lists(st.tuples(st.sampled_from(Event), st.integers(0, 100_000)), max_size=60)


@given(EVENTS)
def test_on_any_walk(steps: list[tuple[Event, int]]) -> None:
    life, now_ms = NOBODY, T
    for event, later in steps:
        now_ms += later
        before = life
        life = step(life, event, now_ms, LIMITS, Said("why", now_ms + 10_000))
        assert len(life.heard) <= 5, "what is remembered is bounded"
        assert life.seen_ms or life.status == "offline", "who is off the lists is offline"
        if before.status == "draining" and life.status != "draining":
            assert event in (Event.RESUME, Event.REGISTER, Event.LEAVE, Event.TIME)
        if life.seen_ms and now_ms < due_ms(life, LIMITS):
            assert step(life, Event.TIME, now_ms, LIMITS) == life, "nothing happens before it is due"
        if life.seen_ms:
            due = due_ms(life, LIMITS)
            after = step(life, Event.TIME, max(due, now_ms), LIMITS)
            assert after.seen_ms == 0 or due_ms(after, LIMITS) > due, "what is due is done"
