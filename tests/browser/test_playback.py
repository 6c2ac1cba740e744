"""Playback of results in a page, and its reports to the mesh."""

from __future__ import annotations

import base64
import io
import wave

import pytest
from playwright.async_api import Page

from mesh.messages import client as wire
from tests.browser import sine_wave
from tests.browser.session_page import js, opened, results
from tests.support.fakes.scripted_mesh import ScriptedMesh

pytestmark = pytest.mark.asyncio(loop_scope="module")


def wav(sound: bytes, rate: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(sound)
    return out.getvalue()


#: Records duration, channels and peak of each buffer that is played.
RECORD_PLAYED = """
  window.played = [];
  const real = AudioBufferSourceNode.prototype.start;
  AudioBufferSourceNode.prototype.start = function (...given) {
    const { duration, numberOfChannels } = this.buffer;
    const peak = Math.max(...this.buffer.getChannelData(0));
    played.push([Math.round(duration * 1_000), numberOfChannels, Math.round(peak * 100) / 100]);
    return real.apply(this, given);
  };
"""


@pytest.mark.parametrize(
    ("form", "speech"),
    [
        ("pcm16", sine_wave.pcm16(0.2)),
        ("wav", wav(sine_wave.pcm16(0.2, rate=22_050), 22_050)),
        ("pcm16", wav(sine_wave.pcm16(0.2), 16_000)),
    ],
    ids=["pcm16", "wav", "wav declared as pcm16"],
)
@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary message"])
async def test_playback_is_reported_to_the_mesh(
    page: Page, mesh: ScriptedMesh, form: str, speech: bytes, binary: bool
) -> None:
    client = await opened(page, mesh, binary_messages=binary or None)
    more = {"speech": speech} if binary else {"tts_audio": base64.b64encode(speech).decode()}
    await client.send_result(0, tts_format=form, group_id="g-1", **more)
    await results(page, 1)
    await js(page, RECORD_PLAYED + "await session.play(resultObjects[0]);")
    started = await client.next(wire.TtsStarted)
    ended = await client.next(wire.TtsPlayEnded)
    assert (started.session_id, started.trace_id, started.group_id) == ("s-1", "t-0", "g-1")
    assert (ended.session_id, ended.trace_id, ended.group_id) == ("s-1", "t-0", "g-1")
    assert started.ts_start_ms <= ended.ts_end_ms
    assert await page.evaluate("played") == [[200, 1, 0.5]]
    kept = await js(page, "return [...resultObjects[0].ttsAudio];")
    assert bytes(kept) == speech, "it can be played again"


async def test_results_are_played_one_after_another(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    speech = base64.b64encode(sine_wave.pcm16(0.1)).decode()
    for index in range(3):
        await client.send_result(index, tts_audio=speech, group_id=f"g-{index}")
    await client.send_result(3)
    await results(page, 4)
    await js(page, "await Promise.all(resultObjects.map((result) => session.play(result)));")
    for index in range(3):
        assert (await client.next(wire.TtsStarted)).group_id == f"g-{index}"
        assert (await client.next(wire.TtsPlayEnded)).group_id == f"g-{index}"


async def test_undecodable_speech_is_an_error_and_does_not_block_the_queue(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await client.send_result(0, tts_audio=base64.b64encode(b"no sound at all").decode(), tts_format="wav")
    await client.send_result(1, tts_audio=base64.b64encode(sine_wave.pcm16(0.05)).decode(), group_id="g-1")
    await results(page, 2)
    played = await js(page, "return Promise.all(resultObjects.map((one) => outcome(() => session.play(one))));")
    assert [one["error"] and one["error"]["code"] for one in played] == ["INVALID_AUDIO", None]
    assert (await client.next(wire.TtsPlayEnded)).group_id == "g-1"


async def test_own_playback_of_a_page_can_be_reported(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await client.send_result(0, group_id="g-7")
    await client.send_result(1)
    await results(page, 2)
    await js(page, "for (const one of resultObjects) { session.ttsStarted(one); session.ttsPlayEnded(one); }")
    assert (await client.next(wire.TtsStarted)).group_id == "g-7"
    assert (await client.next(wire.TtsPlayEnded)).group_id == "g-7"


async def test_closed_session_stops_playback(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await client.send_result(0, tts_audio=base64.b64encode(sine_wave.pcm16(60)).decode(), group_id="g-1")
    await results(page, 1)
    body = """
      const Real = window.AudioContext;
      window.AudioContext = function () { return (window.context = new Real()); };
      window.playing = session.play(resultObjects[0]);
    """
    await js(page, body)
    await client.next(wire.TtsStarted)
    assert await page.evaluate("context.state") == "running"
    await client.send("error", code="SESSION_SUPERSEDED", message="taken over")
    # The speech lasts a minute: without a closed context `playing` would also resolve, at its end.
    assert await js(page, "await playing; return context.state;") == "closed"
