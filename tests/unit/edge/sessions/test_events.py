"""Events of a session: immutable, and each handled in at least one phase."""

from __future__ import annotations

from typing import get_args

import pytest

from edge.audio.core.reorder import Chunk
from edge.sessions.core.events import NO_MAIL, Attached, ChunkReceived, Event, FoundMail
from edge.sessions.core.state import TABLE


@pytest.mark.parametrize("event", get_args(Event))
def test_event_is_handled_in_a_phase(event: type) -> None:
    assert TABLE[event]


@pytest.mark.parametrize("event", [one for one in get_args(Event) if one is not Chunk])
def test_event_is_immutable(event: type) -> None:
    assert event.__struct_config__.frozen  # type: ignore[attr-defined]


def test_chunk_is_its_own_event() -> None:
    assert ChunkReceived is Chunk, "no wrapper on the hot path"


def test_connection_of_a_new_client_has_no_mail_and_no_results() -> None:
    attached = Attached("token")
    assert attached.mail == NO_MAIL == FoundMail("", (), ()) and attached.last_index == -1
    assert attached.resumed is None and attached.lost is None
