"""The facts about a request that its result needs."""

from __future__ import annotations

import pytest

from edge.sessions.core.results.request_context import RequestContext
from tests.unit.edge.sessions.harness import PIECE, Case


def test_context_of_a_streamed_utterance_has_its_last_chunk_and_its_audio() -> None:
    case = Case()
    case.chunk(0)
    case.chunk(1, final=True)
    (context,) = case.state.outcomes.requests.values()
    assert (context.index, context.last_seq, context.audio_bytes) == (0, 1, 2 * len(PIECE))
    assert context.is_first and context.trace_id == "trace"


def test_context_of_a_whole_utterance_has_no_chunk_and_its_own_trace() -> None:
    case = Case()
    case.utter(0)
    (context,) = case.state.outcomes.requests.values()
    assert context.last_seq is None and context.uplink_ms is None and context.trace_id == "t-0"


def test_context_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        RequestContext(0, "", (), "t").index = 1  # type: ignore[misc]
