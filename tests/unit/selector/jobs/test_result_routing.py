from __future__ import annotations

import msgspec
import pytest

from lua.store.types.jobs import Advance, Advanced
from lua.store.types.sessions import MailEntry, Parked, SessionOwner
from mesh.frames import JobDone, Push, ResultAck, decode_frame
from selector.jobs.core import result_routing
from selector.jobs.core.result_routing import Delivery

DONE = JobDone("job-01-x", 1, "n", "edge:b:1", "r-1", "s-1", 3, "edge:a:1", True)
KNOWN = Advanced("moved", "RELEASED", True, "edge:own:1", "s-own", "r-own")
PUSH = Push("job-01-x", 1, "n", "edge:b:1", "r-own", "s-own", 3)
TEXT = b'{"type": "job_result"}'
LATER = SessionOwner("edge:now:1", 5, away=True, resumable=True)


def deliver(
    advanced: Advanced = KNOWN, session: SessionOwner | None = None, *, dead: str = "", done: JobDone = DONE
) -> Delivery:
    return result_routing.on_result(done, advanced, [TEXT], session, lambda edge: edge != dead)


@pytest.mark.parametrize(
    ("advanced", "is_pushed"),
    [
        (Advanced("moved", "RELEASED", True), True),
        (Advanced("same", "RELEASED", True), True),
        (Advanced("unknown"), True),
        (Advanced("same", "RELEASED", False), False),  # given up before the result came
        (Advanced("fenced", "RUNNING", False), False),
        (Advanced("fenced", "RELEASED", True), False),
    ],
)
def test_a_result_is_pushed_or_fenced(advanced: Advanced, is_pushed: bool) -> None:
    park, push, ack = deliver(advanced, SessionOwner("edge:now:1", 5))
    assert park is None
    if is_pushed:
        assert ack is None and push is not None and push.to == "edge:now:1"
    else:
        assert push is None and ack == ("edge:b:1", ResultAck("n", "job-01-x", 1, "fenced"))


def test_what_the_record_says_counts_more_than_what_the_node_says() -> None:
    assert deliver() == Delivery(push=("edge:own:1", PUSH))  # type: ignore[arg-type]
    _, lost, _ = deliver(Advanced("unknown"))
    assert lost is not None and isinstance(lost.frame, Push)
    assert (lost.to, lost.frame.session_id, lost.frame.request_id) == ("edge:a:1", "s-1", "r-1")


@pytest.mark.parametrize("session", [None, SessionOwner("")])
def test_a_result_that_nobody_can_be_found_for_goes_back(session: SessionOwner | None) -> None:
    nowhere = msgspec.structs.replace(DONE, session_edge="")
    answer = deliver(Advanced("unknown"), session, done=nowhere)
    assert answer == Delivery(ack=("edge:b:1", ResultAck("n", "job-01-x", 1, "no_session")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("done", "advanced", "asks"),
    [
        (DONE, KNOWN, False),
        (DONE, Advanced("unknown"), False),
        (msgspec.structs.replace(DONE, resend=1), KNOWN, True),
        (msgspec.structs.replace(DONE, resend=1), Advanced("fenced"), False),
        (msgspec.structs.replace(DONE, session_edge=""), KNOWN, False),
        (msgspec.structs.replace(DONE, session_edge=""), Advanced("unknown"), True),
    ],
)
def test_redis_is_asked_for_the_session_only_when_in_doubt(done: JobDone, advanced: Advanced, asks: bool) -> None:
    assert result_routing.needs_owner(done, advanced) is asks


NOBODY = ("edge:b:1", ResultAck("n", "job-01-x", 1, "no_session"))
NOW = ("edge:now:1", PUSH)


@pytest.mark.parametrize(
    ("session", "dead", "parks", "push", "ack"),
    [
        # its client is there
        (SessionOwner("edge:now:1", 5), "", False, NOW, None),
        (SessionOwner("edge:now:1", 5, resumable=True), "", False, NOW, None),
        (SessionOwner("edge:now:1", 5, resumable=True), "edge:own:1", False, NOW, None),
        # its client is away
        (LATER, "", True, None, None),
        (LATER, "edge:now:1", True, None, None),
        (LATER._replace(resumable=False), "", False, NOW, None),  # its edge decides
        # its edge is gone; if it only seems so, it may have the client still
        (LATER._replace(away=False), "edge:now:1", True, NOW, None),
        (LATER._replace(away=False, resumable=False), "edge:now:1", False, None, NOBODY),
        # Redis forgot it; the edge that asked for the job may know it
        (SessionOwner(""), "", False, ("edge:own:1", PUSH), None),
        (SessionOwner(""), "edge:own:1", False, None, NOBODY),
        # Redis cannot tell
        (None, "edge:own:1", False, ("edge:own:1", PUSH), None),
    ],
)
def test_a_result_goes_where_its_session_is_or_waits_for_it(
    session: SessionOwner | None, dead: str, parks: bool, push: object, ack: object
) -> None:
    delivery = deliver(KNOWN, session, dead=dead)
    assert (delivery.park is not None, delivery.push, delivery.ack) == (parks, push, ack)


def test_what_waits_is_the_very_push_under_the_name_of_its_attempt() -> None:
    letter = deliver(KNOWN, LATER).park
    assert letter is not None
    assert letter == MailEntry("s-own", "job-01-x#1", letter.frame, TEXT)
    assert decode_frame(letter.frame) == PUSH


def test_a_nodes_edge_hears_what_became_of_it() -> None:
    for parked, verdict in (
        (Parked("parked", 2), "parked"),
        (Parked("same"), "parked"),
        (Parked("no_session"), "no_session"),
    ):
        assert result_routing.on_parked(DONE, parked) == ("edge:b:1", ResultAck("n", "job-01-x", 1, verdict))


def test_a_result_says_what_its_node_needed() -> None:
    done = msgspec.structs.replace(DONE, pair="en>es", audio_ms=1_500, took_ms=450)
    assert result_routing.finish_of(done) == Advance(
        "job-01-x", 1, "n", "finish release", True, pair="en>es", audio_ms=1_500, took_ms=450
    )
    strange = msgspec.structs.replace(DONE, audio_ms=-5, took_ms=-77)
    assert result_routing.finish_of(strange)[-2:] == (0, -1)
