"""One node's connection by single steps."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from edge.nodes.core.connection import (
    Acknowledge,
    Close,
    ConnectionState,
    NodeConnection,
    Refuse,
    SendHeartbeat,
    SendOffline,
    SendRegister,
)
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Failed, NodeCaps, NodeLoad, NodeRegistered
from mesh.words import CloseCode

LOAD = NodeLoad(cpu_percent=10.0)
MIN_MS = 500
#: Later than anything that was held back.
LATER = itertools.count(MIN_MS, MIN_MS)


def caps(**fields: Any) -> NodeCaps:
    base: dict[str, Any] = {
        "version": "2", "platform": "linux", "cpu_cores": 1, "memory_gb": 1.0, "gpu_count": 1, "gpu_memory_gb": 1.0,
        "services_installed": ["asr"], "services_ready": ["asr"], "asr_langs": ["en"], "semantic_langs": ["en"],
        "tts_langs": [], "accept_public": True, "max_jobs": 4,
    }  # fmt: skip
    return NodeCaps(**{**base, **fields})


def registered(epoch: int = 5) -> NodeRegistered:
    return NodeRegistered("1", "n", epoch, "registering")


def node(epoch: int = 5) -> NodeConnection:
    connection = NodeConnection(MIN_MS)
    assert connection.on_register("n", "fresh", caps(), False) == [SendRegister("n", caps())]
    assert connection.on_registered(registered(epoch)) == [Acknowledge("n", "registering")]
    return connection


def test_node_without_an_id_gets_a_fresh_one() -> None:
    connection = NodeConnection(MIN_MS)
    assert connection.on_register(None, "fresh", caps(), True) == [SendRegister("fresh", caps())]
    assert connection.wants_result_ack and connection.state is ConnectionState.REGISTERING


def test_messages_before_registration_or_about_other_nodes_are_refused() -> None:
    connection = NodeConnection(MIN_MS)
    with pytest.raises(PeerError) as error:
        connection.on_heartbeat("n", LOAD, None, next(LATER))
    assert error.value.code is ErrorCode.NOT_REGISTERED
    connection = node()
    for call in (lambda: connection.check_owns("other"), lambda: connection.on_register("other", "f", caps(), False)):
        with pytest.raises(PeerError) as error:
            call()
        assert error.value.code is ErrorCode.ID_MISMATCH
    assert connection.state is ConnectionState.REGISTERED


def test_heartbeat_carries_capabilities_when_changed_and_at_intervals() -> None:
    connection = node()
    assert connection.on_heartbeat("n", LOAD, caps(), next(LATER)) == [SendHeartbeat("n", 5, LOAD, None)]
    changed = caps(asr_langs=["en", "de"])
    assert connection.on_heartbeat("n", LOAD, changed, next(LATER)) == [SendHeartbeat("n", 5, LOAD, changed)]
    assert connection.on_heartbeat("n", LOAD, changed, next(LATER)) == [SendHeartbeat("n", 5, LOAD, None)]
    connection.heartbeat_undelivered(carried_caps=True)
    assert connection.on_heartbeat("n", LOAD, changed, next(LATER)) == [SendHeartbeat("n", 5, LOAD, changed)]
    later = [connection.on_heartbeat("n", LOAD, changed, next(LATER))[0] for _ in range(16)]
    assert sum(isinstance(beat, SendHeartbeat) and beat.caps is not None for beat in later) == 2


def test_heartbeats_in_quick_succession_are_throttled_to_the_latest() -> None:
    connection = node()
    assert connection.on_heartbeat("n", LOAD, None, 1_000) == [SendHeartbeat("n", 5, LOAD, None)]
    assert connection.heartbeat_due_ms is None
    changed = caps(tts_langs=["en"])
    assert connection.on_heartbeat("n", NodeLoad(cpu_percent=20.0), changed, 1_001) == []
    latest = NodeLoad(cpu_percent=30.0)
    assert connection.on_heartbeat("n", latest, None, 1_499) == [] and connection.heartbeat_due_ms == 1_500
    assert connection.send_due_heartbeat(1_499) == []
    assert connection.send_due_heartbeat(1_500) == [SendHeartbeat("n", 5, latest, changed)]
    assert connection.send_due_heartbeat(1_501) == [] and connection.heartbeat_due_ms is None
    assert connection.on_heartbeat("n", LOAD, None, 1_998) == [], "what was held back counts too"
    connection.on_stale(5, "unknown")
    assert connection.send_due_heartbeat(1_999) == [], "it goes with the registration"
    assert connection.on_registered(registered(6)) == [SendHeartbeat("n", 6, LOAD, None)]
    assert connection.on_heartbeat("n", latest, None, 1_999) == [SendHeartbeat("n", 6, latest, None)], "at once"


def test_heartbeat_while_registering_follows_the_registration() -> None:
    connection = NodeConnection(MIN_MS)
    connection.on_register("n", "f", caps(), False)
    changed = caps(tts_langs=["en"])
    assert connection.on_heartbeat("n", LOAD, changed, next(LATER)) == []
    assert connection.on_register("n", "f", changed, False) == [], "one question is enough"
    effects = connection.on_registered(registered())
    assert effects == [Acknowledge("n", "registering"), SendHeartbeat("n", 5, LOAD, changed)]


def test_second_registration_on_the_same_socket_is_acknowledged_again() -> None:
    connection = node()
    assert connection.on_register(None, "f", caps(max_jobs=8), False) == [SendRegister("n", caps(max_jobs=8))]
    assert connection.on_registered(registered(6)) == [Acknowledge("n", "registering")]
    assert connection.epoch == 6


def test_expired_record_is_registered_again_by_the_edge() -> None:
    connection = node()
    assert connection.on_stale(4, "unknown") == [], "that was about an older epoch"
    assert connection.on_stale(5, "unknown") == [SendRegister("n", caps())]
    assert connection.on_stale(5, "unknown") == [], "it is under way"
    assert connection.on_registered(registered(9)) == [SendHeartbeat("n", 9, NodeLoad(), None)]
    assert connection.epoch == 9


def test_new_record_gets_the_latest_load() -> None:
    connection = node()
    connection.on_heartbeat("n", LOAD, None, next(LATER))
    connection.on_stale(5, "unknown")
    assert connection.on_registered(registered(9)) == [SendHeartbeat("n", 9, LOAD, None)]
    assert connection.on_registered(registered(9)) == [], "the same answer again"
    assert connection.on_registered(registered(10)) == [SendHeartbeat("n", 10, LOAD, None)]


def test_heartbeat_before_the_reply_is_sent_after_it() -> None:
    connection = NodeConnection(MIN_MS)
    connection.on_register("n", "f", caps(), False)
    assert connection.on_heartbeat("n", LOAD, None, next(LATER)) == []
    effects = connection.on_registered(registered())
    assert effects == [Acknowledge("n", "registering"), SendHeartbeat("n", 5, LOAD, None)]


def test_superseded_connection_is_closed_without_offline() -> None:
    connection = node()
    (close,) = connection.on_stale(5, "superseded")
    assert isinstance(close, Close) and close.code == CloseCode.SUPERSEDED
    assert connection.on_closed("1006") == [] and not connection.is_open


def test_retry_of_the_own_registration_does_not_supersede() -> None:
    connection = node()
    connection.registration_retried()
    assert connection.on_stale(5, "superseded") == [SendRegister("n", caps())]
    connection.on_registered(registered(8))
    (close,) = connection.on_stale(8, "superseded")
    assert isinstance(close, Close), "the doubt is used once"


def test_retried_registration_is_settled_after_some_heartbeats() -> None:
    connection = node()
    connection.registration_retried()
    for _ in range(3):
        connection.on_heartbeat("n", LOAD, None, next(LATER))
    (close,) = connection.on_stale(5, "superseded")
    assert isinstance(close, Close)


def test_two_replies_to_one_call_leave_the_higher_epoch() -> None:
    connection = node(epoch=5)
    assert connection.on_registered(registered(7)) == [] and connection.epoch == 7
    assert connection.on_registered(registered(6)) == [] and connection.epoch == 7


def test_closed_socket_sends_offline_with_its_own_epoch() -> None:
    connection = node()
    assert connection.on_closed("1006") == [SendOffline("n", 5, "1006")]
    assert connection.on_closed("1006") == []
    assert NodeConnection(MIN_MS).on_closed("1006") == []


def test_registration_after_the_socket_closed_is_cancelled() -> None:
    connection = NodeConnection(MIN_MS)
    connection.on_register("n", "f", caps(), False)
    assert connection.on_closed("1006") == []
    assert connection.on_registered(registered(5)) == [SendOffline("n", 5, "closed")]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (None, ErrorCode.SCHEDULER_DEPENDENCY_DOWN),
        (Failed("1", "NODE_ID_CONFLICT", "taken"), ErrorCode.NODE_ID_CONFLICT),
        (Failed("1", "SOMETHING_NEW", "what"), ErrorCode.INTERNAL_ERROR),
    ],
)
def test_refused_registration_is_an_error_and_may_be_sent_again(answer: Failed | None, code: ErrorCode) -> None:
    connection = NodeConnection(MIN_MS)
    connection.on_register("n", "f", caps(), False)
    (refuse,) = connection.on_refused(answer)
    assert isinstance(refuse, Refuse) and refuse.code is code
    assert connection.state is ConnectionState.UNREGISTERED
    assert connection.on_register("n", "f", caps(), False) == [SendRegister("n", caps())]


def test_failed_registration_of_the_edge_keeps_the_old_epoch() -> None:
    connection = node()
    connection.on_stale(5, "unknown")
    assert connection.on_refused(None) == [] and connection.state is ConnectionState.REGISTERED
    assert connection.on_heartbeat("n", LOAD, None, next(LATER)) != []
