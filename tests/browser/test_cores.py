"""The modules that decide, alone in a page: frames, kept audio, the order of results, the resampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page

from mesh import audio_frames
from mesh.audio_frames import AudioFrame, FinalFrame, PingFrame, PongFrame
from tests.browser import tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: 100 ms of PCM16 at 16 kHz.
PIECE = 3_200

AUDIO = """
  const { SendBuffer } = await import("/session/send-buffer.js");
  const told = ({ chunks, waitMs }) => ({
    chunks: chunks.map(({ seq, isFinal, audio, timestampMs }) => [seq, isFinal, audio.length, timestampMs]), waitMs,
  });
  const piece = (bytes = 3200) => new Uint8Array(bytes);
"""
RESULTS = """
  const { ResultOrder } = await import("/session/results.js");
  const order = new ResultOrder();
  order.restart("me");
  const result = (utterance_index, more = {}) => ({
    type: "translation_result", session_id: "me", utterance_index, text_translated: `t${utterance_index}`, ...more,
  });
  const told = ({ own, peer, ack }) => ({
    results: own.map(({ index, error }) => [index, error?.code ?? "", error?.message ?? ""]),
    heard: peer && peer.index, ack: [ack.session_id, ack.utterance_index],
  });
"""


async def run(page: Page, before: str, body: str, argument: Any = None) -> Any:
    """What the body returns."""
    return await page.evaluate(f"async (given) => {{ {before} {body} }}", argument)


# --- frames -----------------------------------------------------------------------------------------


async def frames_of(page: Page, session_id: str, chunks: list[dict[str, Any]]) -> list[bytes]:
    """The binary frame of each chunk, as the page makes it."""
    body = """
      const { binaryFrame } = await import("/session/frames.js");
      return given.chunks.map((chunk) => [...binaryFrame(given.id, { ...chunk, audio: new Uint8Array(chunk.audio) })]);
    """
    return [bytes(one) for one in await run(page, "", body, {"id": session_id, "chunks": chunks})]


@pytest.mark.parametrize("session_id", ["s-0123ABCD", "é" * 100, "x" * 255])
async def test_a_chunk_is_the_frame_that_the_mesh_makes_of_it(shared_page: Page, session_id: str) -> None:
    given = [
        {"seq": 0, "isFinal": False, "audio": [1, 2, 255, 0], "timestampMs": 1_700_000_000_123},
        {"seq": 2**32 - 1, "isFinal": True, "audio": [7], "timestampMs": 0},
        {"seq": 5, "isFinal": False, "audio": [], "timestampMs": 2**32},
        {"seq": 6, "isFinal": True, "audio": [], "timestampMs": 2**32 + 7},
    ]
    meant = [
        AudioFrame(session_id, 0, 1_700_000_000_123, False, bytes([1, 2, 255, 0])),
        AudioFrame(session_id, 2**32 - 1, 0, True, b"\x07"),
        AudioFrame(session_id, 5, 2**32, False, b""),
        FinalFrame(session_id, 6, 2**32 + 7),
    ]
    assert await frames_of(shared_page, session_id, given) == [audio_frames.encode(frame) for frame in meant]


async def test_a_ping_comes_back_as_a_pong_and_nothing_else_does(shared_page: Page) -> None:
    ping = audio_frames.encode(PingFrame("s-1", 3, 77))
    others = [audio_frames.encode(PongFrame("s-1", 3, 77)), audio_frames.encode(FinalFrame("s-1", 3, 77)), b"", b"\x10"]
    body = """
      const { pongFor } = await import("/session/frames.js");
      return given.map((frame) => { const pong = pongFor(new Uint8Array(frame).buffer); return pong && [...pong]; });
    """
    answers = await run(shared_page, "", body, [list(frame) for frame in [ping, *others]])
    assert bytes(answers[0]) == audio_frames.encode(PongFrame("s-1", 3, 77))
    assert answers[1:] == [None] * len(others)


async def test_base64_survives_the_way_there_and_back(shared_page: Page) -> None:
    body = """
      const { fromBase64, toBase64 } = await import("/session/frames.js");
      const bytes = Uint8Array.from({ length: 100_000 }, (_, place) => (place * 31) % 256);
      const again = fromBase64(toBase64(bytes));
      return again.length === bytes.length && again.every((byte, place) => byte === bytes[place]);
    """
    assert await run(shared_page, "", body) is True


# --- audio ------------------------------------------------------------------------------------------


async def test_audio_is_cut_into_chunks_of_100_ms_and_the_rest_waits_for_the_end(shared_page: Page) -> None:
    body = """
      const audio = new SendBuffer();
      audio.add(piece(3000), 5);
      const early = told(audio.takeDue(0));
      audio.add(piece(4000), 6);
      const due = told(audio.takeDue(0));
      audio.endUtterance(7);
      const end = told(audio.takeDue(0));
      audio.endUtterance(8);
      return { early, due, end, nothing: told(audio.takeDue(0)) };
    """
    nothing = {"chunks": [], "waitMs": None}
    assert await run(shared_page, AUDIO, body) == {
        "early": nothing,
        "due": {"chunks": [[0, False, PIECE, 6], [1, False, PIECE, 6]], "waitMs": None},
        "end": {"chunks": [[2, True, 600, 7]], "waitMs": None},
        "nothing": nothing,
    }


async def test_an_end_without_more_audio_is_a_chunk_of_its_own(shared_page: Page) -> None:
    body = """
      const audio = new SendBuffer();
      audio.add(piece(), 1);
      audio.takeDue(0);
      audio.endUtterance(2);
      return told(audio.takeDue(0)).chunks;
    """
    assert await run(shared_page, AUDIO, body) == [[1, True, 0, 2]]


async def test_much_audio_goes_out_in_turns(shared_page: Page) -> None:
    body = """
      const audio = new SendBuffer();
      audio.add(piece(25 * 3200), 1);
      const turns = [0, 50, 100, 200].map((now) => told(audio.takeDue(now)));
      return turns.map(({ chunks, waitMs }) => [chunks.length, waitMs]);
    """
    assert await run(shared_page, AUDIO, body) == [[10, 100], [0, 50], [10, 100], [5, None]]


async def test_kept_chunks_are_sent_again_as_they_were_and_go_when_their_utterance_ends(shared_page: Page) -> None:
    body = """
      const audio = new SendBuffer();
      audio.add(piece(3 * 3200), 1);
      audio.endUtterance(2);
      const first = told(audio.takeDue(0)).chunks;
      audio.add(piece(2 * 3200), 3);
      audio.takeDue(0);
      const complete = audio.onResumed(2);
      const again = told(audio.takeDue(0)).chunks;
      audio.acknowledge(3);
      audio.onResumed(0);
      const rest = told(audio.takeDue(0)).chunks;
      audio.acknowledge(5);
      return { first, complete, again, rest, bytes: audio.bytes };
    """
    first = [[0, False, PIECE, 1], [1, False, PIECE, 1], [2, False, PIECE, 1], [3, True, 0, 2]]
    rest = [[4, False, PIECE, 3], [5, False, PIECE, 3]]
    expected = {"first": first, "complete": True, "again": first[2:] + rest, "rest": rest, "bytes": 0}
    assert await run(shared_page, AUDIO, body) == expected


async def test_a_new_session_gets_what_has_not_ended_with_numbers_from_0_on(shared_page: Page) -> None:
    body = """
      const audio = new SendBuffer();
      audio.add(piece(3 * 3200), 1);
      audio.takeDue(0);
      audio.acknowledge(0);
      audio.endUtterance(2);
      audio.onRestarted();
      return told(audio.takeDue(0)).chunks;
    """
    assert await run(shared_page, AUDIO, body) == [[0, False, PIECE, 1], [1, False, PIECE, 1], [2, True, 0, 2]]


async def test_slow_down_makes_messages_rarer_and_larger_but_keeps_utterances_apart(shared_page: Page) -> None:
    body = """
      const audio = new SendBuffer();
      audio.onBackpressure("SLOW_DOWN", 5_000, 0);
      audio.add(piece(7 * 3200), 1);
      audio.endUtterance(2);
      audio.add(piece(), 3);
      return [0, 499, 500, 1_000, 1_500].map((now) => told(audio.takeDue(now)));
    """
    assert await run(shared_page, AUDIO, body) == [
        {"chunks": [[0, False, 5 * PIECE, 1]], "waitMs": 500},
        {"chunks": [], "waitMs": 1},
        {"chunks": [[1, True, 2 * PIECE, 1]], "waitMs": 500},
        {"chunks": [[2, False, PIECE, 3]], "waitMs": None},
        {"chunks": [], "waitMs": None},
    ]


@pytest.mark.parametrize("action", ["PAUSE", "BUSY"])
async def test_pause_and_busy_stop_all_audio_for_as_long_as_they_say(shared_page: Page, action: str) -> None:
    body = """
      const audio = new SendBuffer();
      audio.onBackpressure(given, 2_000, 0);
      audio.add(piece(), 1);
      return [0, 1_999, 2_000].map((now) => told(audio.takeDue(now)));
    """
    assert await run(shared_page, AUDIO, body, action) == [
        {"chunks": [], "waitMs": 2_000},
        {"chunks": [], "waitMs": 1},
        {"chunks": [[0, False, PIECE, 1]], "waitMs": None},
    ]


async def test_a_refused_chunk_goes_again_before_later_ones_and_after_the_pause(shared_page: Page) -> None:
    body = """
      const audio = new SendBuffer();
      audio.add(piece(3 * 3200), 1);
      audio.takeDue(0);
      audio.onBackpressure("BUSY", 300, 0);
      audio.onRejected(1, 0);
      audio.onRejected(77, 0);
      audio.add(piece(), 2);
      return [299, 300].map((now) => told(audio.takeDue(now)).chunks);
    """
    assert await run(shared_page, AUDIO, body) == [[], [[1, False, PIECE, 1], [3, False, PIECE, 2]]]


async def test_a_refused_chunk_waits_a_little_when_the_mesh_does_not_say_how_long(shared_page: Page) -> None:
    body = """
      const audio = new SendBuffer();
      audio.add(piece(), 1);
      audio.takeDue(0);
      audio.onRejected(0, 0);
      const soon = told(audio.takeDue(0));
      audio.onBackpressure("BUSY", 2_000, 0);
      return [soon, told(audio.takeDue(0)), told(audio.takeDue(2_000))];
    """
    nothing = {"chunks": [], "waitMs": 500}, {"chunks": [], "waitMs": 2_000}
    assert await run(shared_page, AUDIO, body) == [*nothing, {"chunks": [[0, False, PIECE, 1]], "waitMs": None}]


async def test_what_is_kept_is_bounded_and_what_was_sent_gives_way(shared_page: Page) -> None:
    body = """
      const audio = new SendBuffer({ bytesMax: 10_000 });
      const first = audio.add(piece(2 * 3200), 1);
      const refused = audio.add(piece(2 * 3200), 2);
      audio.takeDue(0);
      const later = audio.add(piece(2 * 3200), 3);
      const bounded = audio.bytes <= 10_000;
      return { first, refused, later, bounded, complete: audio.onResumed(0), left: told(audio.takeDue(200)).chunks };
    """
    assert await run(shared_page, AUDIO, body) == {
        "first": True,
        "refused": False,
        "later": True,
        "bounded": True,
        "complete": False,
        "left": [[1, False, PIECE, 1], [2, False, PIECE, 3], [3, False, PIECE, 3]],
    }


# --- results ----------------------------------------------------------------------------------------


async def test_each_index_is_told_once_and_acknowledged_each_time(shared_page: Page) -> None:
    body = """
      const seen = [0, 0, 1, 0, 2].map((index) => told(order.onResult(result(index, { last_seq: index * 10 }))));
      return { seen, last: [order.lastIndex, order.lastSeq] };
    """
    assert await run(shared_page, RESULTS, body) == {
        "seen": [
            {"results": [[0, "", ""]], "heard": None, "ack": ["me", 0]},
            {"results": [], "heard": None, "ack": ["me", 0]},
            {"results": [[1, "", ""]], "heard": None, "ack": ["me", 1]},
            {"results": [], "heard": None, "ack": ["me", 1]},
            {"results": [[2, "", ""]], "heard": None, "ack": ["me", 2]},
        ],
        "last": [2, 20],
    }


async def test_a_failure_is_told_at_its_turn_with_the_reason_that_was_announced(shared_page: Page) -> None:
    body = """
      const missing = (utterance_index, reason) => ({ ...result(utterance_index), type: "missing_result", reason });
      const at = (utterance_index) => ({ session_id: "me", utterance_index });
      order.onErrorAnnounced({ type: "ui_event", event: "ERROR", ...at(1), error_code: "NMT_TIMEOUT", hint: "again" });
      order.onErrorAnnounced({ type: "ui_event", event: "ERROR", ...at(2), error_code: "WORSE", hint: "less" });
      order.onErrorAnnounced({ type: "error", code: "NO_AVAILABLE_NODE", message: "none", details: at(2) });
      const foreign = { ...at(0), session_id: "you" };
      order.onErrorAnnounced({ type: "error", code: "OTHER", message: "not mine", details: foreign });
      order.onErrorAnnounced({ type: "error", code: "VAGUE", message: "about nothing" });
      const reasons = ["silence_detected", "job_failed", "job_failed", "gap_timeout"];
      return reasons.map((reason, index) => told(order.onResult(missing(index, reason))).results).flat();
    """
    assert await run(shared_page, RESULTS, body) == [
        [0, "MISSING_RESULT", "silence_detected"],
        [1, "NMT_TIMEOUT", "again"],
        [2, "NO_AVAILABLE_NODE", "none"],
        [3, "MISSING_RESULT", "gap_timeout"],
    ]


async def test_what_others_got_may_end_later_than_the_next_result(shared_page: Page) -> None:
    body = """
      const ended = (utterance_index, last_seq) => ({ session_id: "me", utterance_index, last_seq });
      order.onResult(result(0, { last_seq: 4 }));
      const next = told(order.onResult(result(3, { last_seq: 30 })));
      const before = [order.lastIndex, order.lastSeq];
      order.onUtteranceEnded(ended(2, 20));
      const between = [order.lastIndex, order.lastSeq];
      order.onUtteranceEnded(ended(1, 10));
      const double = told(order.onResult(result(3, { last_seq: 30 })));
      return { next, before, between, after: [order.lastIndex, order.lastSeq], double: double.results };
    """
    assert await run(shared_page, RESULTS, body) == {
        "next": {"results": [[3, "", ""]], "heard": None, "ack": ["me", 3]},
        "before": [0, 4],
        "between": [0, 4],
        "after": [3, 30],
        "double": [],
    }


async def test_results_that_were_lost_are_told_as_failures_before_the_next_one(shared_page: Page) -> None:
    body = """
      order.onResult(result(0));
      order.resume("me", true);
      const seen = told(order.onResult(result(3)));
      const later = told(order.onResult(result(4)));
      return [seen.results, later.results, order.lastIndex];
    """
    lost = [[1, "MISSING_RESULT", "lost"], [2, "MISSING_RESULT", "lost"]]
    assert await run(shared_page, RESULTS, body) == [[*lost, [3, "", ""]], [[4, "", ""]], 4]


async def test_a_new_session_goes_on_counting(shared_page: Page) -> None:
    body = """
      order.onResult(result(0));
      order.onResult(result(1));
      order.restart("me again");
      const first = told(order.onResult(result(0, { session_id: "me again" })));
      return { first, last: order.lastIndex, old: told(order.onResult(result(2))).results };
    """
    first = {"results": [[2, "", ""]], "heard": None, "ack": ["me again", 0]}
    assert await run(shared_page, RESULTS, body) == {"first": first, "last": 0, "old": []}


async def test_each_utterance_of_others_is_heard_once(shared_page: Page) -> None:
    body = """
      const heard = [["a", 7], ["b", 7], ["a", 8], ["a", 7]];
      return heard.map(([session_id, index]) => told(order.onResult(result(index, { session_id }))));
    """
    assert [(one["heard"], one["ack"]) for one in await run(shared_page, RESULTS, body)] == [
        (7, ["a", 7]),
        (7, ["b", 7]),
        (8, ["a", 8]),
        (None, ["a", 8]),
    ]


async def test_what_is_remembered_of_a_peer_that_says_too_much_is_bounded(shared_page: Page) -> None:
    """The first index never ends, and a thousand sessions are heard: the order goes on."""
    body = """
      for (let index = 1; index <= 1_000; index += 1) order.onResult(result(index, { last_seq: index }));
      for (let other = 0; other < 1_000; other += 1) order.onResult(result(0, { session_id: `s${other}` }));
      return [order.lastIndex, told(order.onResult(result(0, { session_id: "s999" }))).heard];
    """
    assert await run(shared_page, RESULTS, body) == [1_000, None]


# --- sound ------------------------------------------------------------------------------------------


async def resampled(page: Page, sound: np.ndarray, rate: int, block: int) -> np.ndarray:
    body = """
      const { Resampler } = await import("/audio/resampler.js");
      const resampler = new Resampler(given.rate, 16_000);
      const out = [];
      for (let at = 0; at < given.sound.length; at += given.block) {
        out.push(...resampler.push(Float32Array.from(given.sound.slice(at, at + given.block))));
      }
      return out;
    """
    return np.array(await run(page, "", body, {"sound": sound.tolist(), "rate": rate, "block": block}))


@pytest.mark.parametrize("rate", [48_000, 44_100, 8_000])
async def test_a_tone_keeps_its_pitch_and_loudness_at_another_rate(shared_page: Page, rate: int) -> None:
    heard = await resampled(shared_page, tone.samples(0.5, 440, rate), rate, 128)
    assert abs(len(heard) - 8_000) < 100
    middle = heard[1_000:-1_000]
    assert abs(tone.loudest_hz(middle) - 440) < 5
    assert abs(np.sqrt(np.mean(middle**2)) - 0.5 / np.sqrt(2)) < 0.005


async def test_blocks_leave_no_seams(shared_page: Page) -> None:
    sound = tone.samples(0.1, 700, 44_100)
    at_once = await resampled(shared_page, sound, 44_100, len(sound))
    in_blocks = await resampled(shared_page, sound, 44_100, 37)
    assert len(in_blocks) == len(at_once)
    assert np.max(np.abs(in_blocks - at_once)) < 1e-6


async def test_what_the_lower_rate_cannot_hold_is_removed(shared_page: Page) -> None:
    heard = await resampled(shared_page, tone.samples(0.5, 11_000, 48_000), 48_000, 128)
    assert np.max(np.abs(heard[1_000:-1_000])) < 0.005
