"""The page's speech gate: equal to Python's, sample for sample; in front of a session; in the demo page."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from playwright.async_api import Page, expect

from linguamesh.speech_gate import SpeechGate
from tests.browser import sine_wave
from tests.browser.page_server import PageServer
from tests.browser.session_page import js, opened, recorded
from tests.support.builders.speech import CASES, RATE, Passed, expected, pieces_of, random_case, sound_of, utterances_in
from tests.support.fakes.scripted_mesh import Client, ReceivedChunk, ScriptedMesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

GATE = """
  const { SpeechGate } = await import("/lingua-session.js");
  const { fromBase64, toBase64 } = await import("/session/frames.js");
  const gate = new SpeechGate(given.options);
  const passed = given.pieces.map((piece) => gate.push(new Int16Array(fromBase64(piece).slice().buffer)));
  return passed.map((some) => some.map((one) => one && toBase64(new Uint8Array(one.buffer))));
"""
#: Option of Python -> option in a page.
NAMES = {"sample_rate": "sampleRate", "pause_ms": "pauseMs", "level_min": "levelMin"}
#: Two tones, each between pauses.
TONES_HZ = (440, 660)
#: A source of constant levels, 100 ms each; `released` is true once its reader has left it.
SOURCE = """
  const { speechOf } = await import("/lingua-session.js");
  window.released = false;
  async function* levels(list) {
    try {
      for (const level of list) yield new Int16Array(1600).fill(level);
    } finally {
      released = true;
    }
  }
"""


@pytest.fixture(scope="module")
def spoken_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The input of the fake microphone, repeated for ever."""
    pause = bytes(2 * sine_wave.SAMPLE_RATE)
    sound = b"".join(pause + sine_wave.pcm16(0.6, hz) for hz in TONES_HZ)
    return sine_wave.write_wav(tmp_path_factory.mktemp("spoken") / "tones.wav", sound)


# --- the gate alone -----------------------------------------------------------------------------------


async def passed_in_page(page: Page, pieces: list[bytes], options: dict[str, Any]) -> list[Passed]:
    """The output of the page's gate for each piece."""
    given = {
        "options": {NAMES[name]: value for name, value in options.items()},
        "pieces": [base64.b64encode(piece).decode() for piece in pieces],
    }
    outputs = await page.evaluate(f"async (given) => {{ {GATE} }}", given)
    return [[one if one is None else base64.b64decode(one) for one in some] for some in outputs]


def passed_in_python(pieces: list[bytes], options: dict[str, Any]) -> list[Passed]:
    gate = SpeechGate(**options)
    return [gate.push(piece) for piece in pieces]


@pytest.mark.parametrize("name", CASES)
async def test_page_gate_passes_the_cases_of_the_table(shared_page: Page, name: str) -> None:
    case = CASES[name]
    sound = sound_of(case.script)
    pieces = [sound[at : at + 3_200] for at in range(0, len(sound), 3_200)]
    told = await passed_in_page(shared_page, pieces, case.options)
    assert told == passed_in_python(pieces, case.options)
    passed = [one for some in told for one in some]
    assert utterances_in(passed) == expected(case, sound)
    assert passed.count(None) == len(case.utterances) - case.is_open


@pytest.mark.parametrize("rate", [RATE, 11_025, 48_000])
async def test_page_gate_equals_python_gate_for_random_audio(shared_page: Page, rate: int) -> None:
    ends = 0
    for seed in range(20):
        pieces = pieces_of(*random_case(seed, rate))
        options = {"sample_rate": rate, "pause_ms": 100 * (seed % 10 + 1), "level_min": 50 + 10 * seed}
        told = await passed_in_page(shared_page, pieces, options)
        assert told == passed_in_python(pieces, options), f"seed {seed}"
        ends += sum(some.count(None) for some in told)
    assert ends > 20, "the random audio has utterances"


async def test_gate_rejects_invalid_options_and_samples(shared_page: Page) -> None:
    body = """
      const { SpeechGate, speechOf } = await import("/lingua-session.js");
      const failure = (action) => { try { action(); } catch (error) { return `${error.name} ${error.message}`; } };
      return [
        failure(() => new SpeechGate({ pauseMs: 19 })),
        failure(() => speechOf([], { pauseMs: 10_001 })),
        failure(() => new SpeechGate({ sampleRate: 999 })),
        failure(() => new SpeechGate({ levelMin: NaN })),
        failure(() => new SpeechGate().push(new Uint8Array(2))),
      ];
    """
    assert await js(shared_page, body) == [
        "RangeError pauseMs is 19; it is from 20 to 10000",
        "RangeError pauseMs is 10001; it is from 20 to 10000",
        "RangeError sampleRate is 999; it is from 1000 to 192000",
        "RangeError levelMin is NaN; it is from 1 to 32767",
        "LinguaError this is not an Int16Array of PCM16",
    ]


async def test_gate_copies_the_buffer_of_its_caller(shared_page: Page) -> None:
    body = """
      const { SpeechGate } = await import("/lingua-session.js");
      const gate = new SpeechGate();
      const buffer = new Int16Array(320);
      return [1, 2, 3, 4].map((level) => gate.push(buffer.fill(1_000 * level)).map((one) => [...new Set(one)]));
    """
    assert await js(shared_page, body) == [[], [], [[1_000, 2_000, 3_000]], [[4_000]]]


# --- in front of a session ----------------------------------------------------------------------------


async def utterance(client: Client) -> list[ReceivedChunk]:
    """The chunks of one utterance, up to its end."""
    chunks = [await client.chunk()]
    while not chunks[-1].is_final:
        chunks.append(await client.chunk())
    return chunks


def sound_in(chunks: list[ReceivedChunk]) -> np.ndarray:
    return np.frombuffer(b"".join(chunk.audio for chunk in chunks), dtype="<i2")


async def test_null_in_a_source_ends_the_utterance_once(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    body = """
      async function* source() { yield* [null, sound(150), null, null, new Uint8Array(2)]; }
      await session.stream(source());
    """
    await js(page, body)
    assert [len(sound_in(await utterance(client))) for _ in range(2)] == [2_400, 1]
    assert client.chunks_pending == 0


async def test_speech_counts_utterances_and_ends_with_its_source(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    body = """
      const speech = speechOf(levels(given), { pauseMs: 200 });
      await session.stream(speech);
      return [speech.utterances, speech.dropped, released];
    """
    levels = [0, 0, 900, 900, 0, 0, 0, 900, 900]
    assert await js(page, SOURCE + body, levels) == [2, 0, True]
    assert [len(sound_in(await utterance(client))) for _ in range(2)] == [600 * 16, 300 * 16]


async def test_dropped_microphone_chunks_are_reported_as_lost(page: Page, mesh: ScriptedMesh) -> None:
    await opened(page, mesh)
    await js(page, SOURCE + "await session.stream(speechOf(Object.assign(levels([900]), { dropped: 3 })));")
    assert await recorded(page, "lost") == ["audio"]


async def test_stream_of_silence_ends_with_its_session(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    body = """
      function* silence() { while (true) yield 0; }
      async function* unhurried(source) {
        for await (const samples of source) {
          yield samples;
          window.streamed = true;
          await new Promise((resolve) => setTimeout(resolve));
        }
      }
      window.streaming = outcome(() => session.stream(speechOf(unhurried(levels(silence())))));
    """
    await js(page, SOURCE + body)
    await page.wait_for_function("window.streamed")
    await client.send("error", code="SESSION_SUPERSEDED", message="taken over")
    assert (await js(page, "return streaming;"))["error"]["code"] == "SESSION_SUPERSEDED"
    assert await page.evaluate("released")


async def test_demo_shows_a_result_after_each_pause(page: Page, pages: PageServer, mesh: ScriptedMesh) -> None:
    await page.goto(f"{pages.url}/demo/speak.html?{urlencode({'urls': mesh.url, 'src': 'en', 'tgt': 'es'})}")
    await page.get_by_role("button", name="Record").click()
    client = await mesh.client()
    await client.accept(use_binary_frame=True)
    heard_hz: list[int] = []
    while set(heard_hz) != set(TONES_HZ):
        chunks = await utterance(client)
        hz = sine_wave.loudest_hz(sound_in(chunks))
        heard_hz.append(min(TONES_HZ, key=lambda known: abs(known - hz)))
        assert abs(heard_hz[-1] - hz) < 10
        await client.send_result(len(heard_hz) - 1, f"{heard_hz[-1]} Hz", last_seq=chunks[-1].seq)
    told = [f"hello\n{hz} Hz" for hz in heard_hz]
    await expect(page.get_by_role("listitem")).to_have_text(told, use_inner_text=True)
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()


async def test_demo_reports_a_recording_without_speech(page: Page, pages: PageServer, mesh: ScriptedMesh) -> None:
    await page.add_init_script("""
      const context = new AudioContext();
      navigator.mediaDevices.getUserMedia = async () => context.createMediaStreamDestination().stream;
    """)
    await page.goto(f"{pages.url}/demo/speak.html?{urlencode({'urls': mesh.url, 'src': 'en', 'tgt': 'es'})}")
    await page.get_by_role("button", name="Record").click()
    client = await mesh.client()
    await client.accept()
    await expect(page.get_by_role("status")).to_contain_text("Recording.")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_role("status")).to_contain_text("Nothing was heard.")
    await expect(page.get_by_role("button", name="Record")).to_be_visible()
    assert client.chunks_pending == 0
