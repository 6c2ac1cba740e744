"""Order, deduplication and delivery of results."""

from __future__ import annotations

import asyncio

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from linguamesh.errors import SessionError
from linguamesh.session.results import (
    PEERS_MAX,
    UNREAD_MAX,
    PeerIndices,
    PendingResults,
    ResultOrder,
    Translation,
    UnreadResults,
    translation_from,
)
from mesh.messages import client as wire


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_results_are_released_by_index_each_once(order: list[int], discarded: set[int]) -> None:
    results: ResultOrder[int] = ResultOrder()
    released: list[int] = []
    for index in order:
        released += results.put(index, None if index in discarded else index)
        assert results.put(index, 99) == []
    assert released == [index for index in range(8) if index not in discarded]


def test_flush_releases_results_across_gaps() -> None:
    results: ResultOrder[str] = ResultOrder()
    assert results.put(3, "d") == results.put(1, "b") == results.put(2, None) == []
    assert results.flush() == ["b", "d"]
    assert results.put(4, "e") == ["e"]


def test_a_translation_has_the_stages_of_its_message() -> None:
    fields = {"type": "translation_result", "session_id": "s", "utterance_index": 0, "job_id": "j", "trace_id": "t"}
    fields |= {"text_asr": "", "text_translated": "", "tts_audio": "", "tts_format": "pcm16"}
    for stages in ({}, {"stages": {"edge_in": 120, "node": 9_000}}):
        message = wire.decode_from_server(msgspec.json.encode({**fields, **stages}).decode())
        assert isinstance(message, wire.TranslationResult)
        assert translation_from(message, 0, 1).stages == stages.get("stages", {})


def test_peer_indices_deduplicate_and_evict_the_oldest_peer() -> None:
    peers = PeerIndices()
    assert peers.add("a", 5) and not peers.add("a", 5) and not peers.add("a", 2)
    assert (peers.last_index("a"), peers.last_index("b")) == (5, -1)
    for number in range(PEERS_MAX):
        peers.add(str(number), 0)
    assert peers.last_index("a") == -1


async def unread(results: UnreadResults) -> list[int]:
    """The indices of a closed queue."""
    return [translation.utterance_index async for translation in results.read()]


async def test_result_with_a_future_is_delivered_at_once_and_not_queued() -> None:
    pending = PendingResults()
    future: asyncio.Future[Translation] = asyncio.get_running_loop().create_future()
    pending.add(1, future)
    pending.complete(Translation(1, text_translated="hola"))
    assert future.result().text_translated == "hola" and len(pending) == 0
    pending.complete(Translation(0))
    pending.complete(Translation(2))
    pending.complete(Translation(2))
    pending.close("SESSION_CLOSED", "")
    assert await unread(pending.unread) == [0, 2]


async def test_cancelled_utterance_does_not_block_later_results() -> None:
    pending = PendingResults()
    pending.add(0, None)
    pending.cancel(0)
    pending.complete(Translation(0))
    pending.complete(Translation(1))
    pending.close("SESSION_CLOSED", "")
    assert await unread(pending.unread) == [1]


async def test_close_fails_pending_utterances_with_the_code() -> None:
    pending = PendingResults()
    future: asyncio.Future[Translation] = asyncio.get_running_loop().create_future()
    pending.add(0, future)
    pending.close("WS_DISCONNECTED", "the connection is lost")
    error = future.result().error
    assert isinstance(error, SessionError) and (error.code, error.utterance_index) == ("WS_DISCONNECTED", 0)


async def test_unread_results_evict_the_oldest_beyond_the_bound() -> None:
    results = UnreadResults()
    results.extend([Translation(index) for index in range(UNREAD_MAX + 2)])
    results.close()
    indices = await unread(results)
    assert (len(indices), indices[0]) == (UNREAD_MAX, 2)
