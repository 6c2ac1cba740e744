"""The send buffer of a session in a page: chunking, flow control, retry, eviction."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.browser.session_page import js

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: 100 ms of PCM16 at 16 kHz.
PIECE = 3_200

BUFFER = """
  const { SendBuffer } = await import("/session/send-buffer.js");
  const plain = ({ chunks, waitMs }) => ({
    chunks: chunks.map(({ seq, isFinal, audio, timestampMs }) => [seq, isFinal, audio.length, timestampMs]), waitMs,
  });
  const piece = (bytes = 3200) => new Uint8Array(bytes);
"""


async def test_audio_is_split_into_chunks_of_100_ms(shared_page: Page) -> None:
    body = """
      const buffer = new SendBuffer();
      buffer.add(piece(3000), 5);
      const early = plain(buffer.takeDue(0));
      buffer.add(piece(4000), 6);
      const due = plain(buffer.takeDue(0));
      buffer.endUtterance(7);
      const end = plain(buffer.takeDue(0));
      buffer.endUtterance(8);
      return { early, due, end, nothing: plain(buffer.takeDue(0)) };
    """
    nothing = {"chunks": [], "waitMs": None}
    assert await js(shared_page, BUFFER + body) == {
        "early": nothing,
        "due": {"chunks": [[0, False, PIECE, 6], [1, False, PIECE, 6]], "waitMs": None},
        "end": {"chunks": [[2, True, 600, 7]], "waitMs": None},
        "nothing": nothing,
    }


async def test_end_of_utterance_without_partial_piece_is_an_empty_chunk(shared_page: Page) -> None:
    body = """
      const buffer = new SendBuffer();
      buffer.add(piece(), 1);
      buffer.takeDue(0);
      buffer.endUtterance(2);
      return plain(buffer.takeDue(0)).chunks;
    """
    assert await js(shared_page, BUFFER + body) == [[1, True, 0, 2]]


async def test_backlog_is_sent_in_bursts(shared_page: Page) -> None:
    body = """
      const buffer = new SendBuffer();
      buffer.add(piece(25 * 3200), 1);
      const turns = [0, 50, 100, 200].map((now) => plain(buffer.takeDue(now)));
      return turns.map(({ chunks, waitMs }) => [chunks.length, waitMs]);
    """
    assert await js(shared_page, BUFFER + body) == [[10, 100], [0, 50], [10, 100], [5, None]]


async def test_unacked_chunks_are_retried_unchanged_until_acknowledged(shared_page: Page) -> None:
    body = """
      const buffer = new SendBuffer();
      buffer.add(piece(3 * 3200), 1);
      buffer.endUtterance(2);
      const first = plain(buffer.takeDue(0)).chunks;
      buffer.add(piece(2 * 3200), 3);
      buffer.takeDue(0);
      const complete = buffer.onResumed(2);
      const again = plain(buffer.takeDue(0)).chunks;
      buffer.acknowledge(3);
      buffer.onResumed(0);
      const rest = plain(buffer.takeDue(0)).chunks;
      buffer.acknowledge(5);
      return { first, complete, again, rest, bytes: buffer.bytes };
    """
    first = [[0, False, PIECE, 1], [1, False, PIECE, 1], [2, False, PIECE, 1], [3, True, 0, 2]]
    rest = [[4, False, PIECE, 3], [5, False, PIECE, 3]]
    expected = {"first": first, "complete": True, "again": first[2:] + rest, "rest": rest, "bytes": 0}
    assert await js(shared_page, BUFFER + body) == expected


async def test_unacked_chunks_are_renumbered_in_a_new_session(shared_page: Page) -> None:
    body = """
      const buffer = new SendBuffer();
      buffer.add(piece(3 * 3200), 1);
      buffer.takeDue(0);
      buffer.acknowledge(0);
      buffer.endUtterance(2);
      buffer.onRestarted();
      return plain(buffer.takeDue(0)).chunks;
    """
    assert await js(shared_page, BUFFER + body) == [[0, False, PIECE, 1], [1, False, PIECE, 1], [2, True, 0, 2]]


async def test_slow_down_joins_pieces_within_one_utterance(shared_page: Page) -> None:
    body = """
      const buffer = new SendBuffer();
      buffer.onBackpressure("SLOW_DOWN", 5_000, 0);
      buffer.add(piece(7 * 3200), 1);
      buffer.endUtterance(2);
      buffer.add(piece(), 3);
      return [0, 499, 500, 1_000, 1_500].map((now) => plain(buffer.takeDue(now)));
    """
    assert await js(shared_page, BUFFER + body) == [
        {"chunks": [[0, False, 5 * PIECE, 1]], "waitMs": 500},
        {"chunks": [], "waitMs": 1},
        {"chunks": [[1, True, 2 * PIECE, 1]], "waitMs": 500},
        {"chunks": [[2, False, PIECE, 3]], "waitMs": None},
        {"chunks": [], "waitMs": None},
    ]


@pytest.mark.parametrize("action", ["PAUSE", "BUSY"])
async def test_pause_and_busy_suspend_chunks_until_their_time(shared_page: Page, action: str) -> None:
    body = """
      const buffer = new SendBuffer();
      buffer.onBackpressure(given, 2_000, 0);
      buffer.add(piece(), 1);
      return [0, 1_999, 2_000].map((now) => plain(buffer.takeDue(now)));
    """
    assert await js(shared_page, BUFFER + body, action) == [
        {"chunks": [], "waitMs": 2_000},
        {"chunks": [], "waitMs": 1},
        {"chunks": [[0, False, PIECE, 1]], "waitMs": None},
    ]


async def test_rejected_chunk_is_retried_after_the_pause_and_before_later_chunks(shared_page: Page) -> None:
    body = """
      const buffer = new SendBuffer();
      buffer.add(piece(3 * 3200), 1);
      buffer.takeDue(0);
      buffer.onBackpressure("BUSY", 300, 0);
      buffer.onRejected(1, 0);
      buffer.onRejected(77, 0);
      buffer.add(piece(), 2);
      return [299, 300].map((now) => plain(buffer.takeDue(now)).chunks);
    """
    assert await js(shared_page, BUFFER + body) == [[], [[1, False, PIECE, 1], [3, False, PIECE, 2]]]


async def test_rejected_chunk_without_backpressure_waits_the_default_time(shared_page: Page) -> None:
    body = """
      const buffer = new SendBuffer();
      buffer.add(piece(), 1);
      buffer.takeDue(0);
      buffer.onRejected(0, 0);
      const soon = plain(buffer.takeDue(0));
      buffer.onBackpressure("BUSY", 2_000, 0);
      return [soon, plain(buffer.takeDue(0)), plain(buffer.takeDue(2_000))];
    """
    nothing = {"chunks": [], "waitMs": 500}, {"chunks": [], "waitMs": 2_000}
    assert await js(shared_page, BUFFER + body) == [*nothing, {"chunks": [[0, False, PIECE, 1]], "waitMs": None}]


async def test_full_buffer_evicts_sent_chunks_only(shared_page: Page) -> None:
    body = """
      const buffer = new SendBuffer({ bytesMax: 10_000 });
      const first = buffer.add(piece(2 * 3200), 1);
      const refused = buffer.add(piece(2 * 3200), 2);
      buffer.takeDue(0);
      const later = buffer.add(piece(2 * 3200), 3);
      const bounded = buffer.bytes <= 10_000;
      return { first, refused, later, bounded, complete: buffer.onResumed(0), left: plain(buffer.takeDue(200)).chunks };
    """
    assert await js(shared_page, BUFFER + body) == {
        "first": True,
        "refused": False,
        "later": True,
        "bounded": True,
        "complete": False,
        "left": [[1, False, PIECE, 1], [2, False, PIECE, 3], [3, False, PIECE, 3]],
    }
