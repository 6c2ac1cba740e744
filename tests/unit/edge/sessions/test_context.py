"""The bounds of all sessions follow from the configuration."""

from __future__ import annotations

from edge.sessions.context import SessionContext, limits_of
from mesh.config import load

CONFIG = load(environ={})


def test_limits_are_those_of_the_configuration() -> None:
    limits, speech, session = limits_of(CONFIG), CONFIG.speech, CONFIG.session
    assert limits.pending_max == CONFIG.edge.utterances_per_session_max
    assert (limits.inbound_max, limits.inbound_bytes_max) == (speech.events_max, speech.events_bytes_max)
    assert (limits.unacked_max, limits.close_ms) == (session.unacked_max, session.close_ms)
    assert (limits.signals_max, limits.deadline_ms) == (CONFIG.rooms.signals_max, CONFIG.job.deadline_ms)


def test_every_bound_is_positive() -> None:
    numbers = {name: value for name, value in limits_of(CONFIG)._asdict().items() if isinstance(value, int)}
    assert len(numbers) == 11 and all(value > 0 for value in numbers.values()), numbers


def test_context_names_every_dependency_of_an_actor() -> None:
    assert SessionContext._fields == ("link", "metrics", "requests", "relay", "rooms", "registry")
