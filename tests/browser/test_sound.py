"""Sound in and out of a page: the microphone, and the speech of results."""

from __future__ import annotations

import base64
import io
import wave

import numpy as np
import pytest
from playwright.async_api import Page

from mesh import session_wire as wire
from tests.browser import tone
from tests.browser.driving import js, opened, results
from tests.browser.scripted_mesh import ScriptedMesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: The microphone as it is, without what makes speech clearer and a tone weaker.
PLAIN = "{ constraints: { echoCancellation: false, noiseSuppression: false, autoGainControl: false } }"
#: A browser that does not resample what comes from a microphone.
NO_RESAMPLING = """
  const Real = window.AudioContext;
  window.AudioContext = function (options) {
    if (options?.sampleRate) throw new DOMException("not this rate", "NotSupportedError");
    return new Real({ sampleRate: 44_100 });
  };
"""
RECORD = """
  const { microphone } = await import("/lingua-session.js");
  const source = microphone(%s);
  const chunks = [];
  for await (const samples of source) {
    chunks.push([...samples]);
    if (chunks.length === 15) source.stop();
  }
  return chunks;
"""


@pytest.mark.parametrize("before", ["", NO_RESAMPLING], ids=["browser resamples", "worklet resamples"])
async def test_the_microphone_gives_pcm16_at_16_khz_in_chunks_of_100_ms(page: Page, before: str) -> None:
    chunks = await js(page, before + RECORD % PLAIN)
    assert {len(chunk) for chunk in chunks[:15]} == {1_600}
    assert all(0 < len(chunk) <= 1_600 for chunk in chunks)
    # Without the beginning, where the device starts.
    sound = np.array([sample for chunk in chunks[5:15] for sample in chunk])
    assert abs(tone.loudest_hz(sound) - tone.HZ) < 5
    assert np.max(np.abs(sound)) > 3_000


async def test_the_microphone_is_released_when_its_loop_is_left(page: Page) -> None:
    body = """
      const tracks = [];
      const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
      navigator.mediaDevices.getUserMedia = async (wish) => {
        const stream = await real(wish);
        tracks.push(...stream.getTracks());
        return stream;
      };
      const { microphone } = await import("/lingua-session.js");
      for await (const samples of microphone()) break;
      return tracks.map((track) => track.readyState);
    """
    assert await js(page, body) == ["ended"]


async def test_a_microphone_that_is_stopped_before_it_listens_gives_nothing(page: Page) -> None:
    body = """
      const { microphone } = await import("/lingua-session.js");
      const source = microphone();
      const starting = source.start();
      source.stop();
      await starting;
      let count = 0;
      for await (const samples of source) count += 1;
      return count;
    """
    assert await js(page, body) == 0


async def test_no_microphone_is_an_error_with_a_hint(page: Page) -> None:
    body = """
      navigator.mediaDevices.getUserMedia = async () => { throw new DOMException("denied", "NotAllowedError"); };
      const { microphone } = await import("/lingua-session.js");
      return outcome(async () => { for await (const samples of microphone()) return samples; });
    """
    error = (await js(page, body))["error"]
    assert error["code"] == "MICROPHONE" and error["hint"]


async def test_chunks_that_nobody_takes_are_bounded_and_counted(page: Page) -> None:
    body = """
      const ports = [];
      const Real = window.AudioWorkletNode;
      window.AudioWorkletNode = function (...given) {
        const node = new Real(...given);
        ports.push(node.port);
        return node;
      };
      const { microphone } = await import("/lingua-session.js");
      const source = microphone();
      await source.start();
      const hear = ports[0].onmessage;
      ports[0].onmessage = null; // what the device hears meanwhile does not count
      for (let i = 0; i < 400; i += 1) hear({ data: new Int16Array(1) });
      hear({ data: null });
      let count = 0;
      for await (const samples of source) count += 1;
      return [count, source.dropped >= 100];
    """
    assert await js(page, body) == [300, True]


async def test_what_the_microphone_hears_reaches_the_mesh(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh, use_binary_frame=True)
    body = f"""
      const {{ microphone }} = await import("/lingua-session.js");
      window.source = microphone({PLAIN});
      void session.stream(source);
    """
    await js(page, body)
    chunks = await client.chunks(15)
    await js(page, "source.stop();")
    while not chunks[-1].is_final:
        chunks.append(await client.chunk())
    assert [chunk.seq for chunk in chunks] == list(range(len(chunks)))
    sound = np.frombuffer(b"".join(chunk.audio for chunk in chunks[5:15]), dtype="<i2")
    assert abs(tone.loudest_hz(sound) - tone.HZ) < 5


# --- speech -----------------------------------------------------------------------------------------


def wav(sound: bytes, rate: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(sound)
    return out.getvalue()


#: What goes to the loudspeaker is looked at on its way.
LISTEN = """
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
        ("pcm16", tone.pcm16(0.2)),
        ("wav", wav(tone.pcm16(0.2, rate=22_050), 22_050)),
        ("pcm16", wav(tone.pcm16(0.2), 16_000)),
    ],
    ids=["pcm16", "wav", "wav that is called pcm16"],
)
async def test_speech_is_played_and_the_mesh_is_told(page: Page, mesh: ScriptedMesh, form: str, speech: bytes) -> None:
    client = await opened(page, mesh)
    await client.say_result(0, tts_audio=base64.b64encode(speech).decode(), tts_format=form, group_id="g-1")
    await results(page, 1)
    await js(page, LISTEN + "await session.play(told[0]);")
    started = await client.next(wire.TtsStarted)
    ended = await client.next(wire.TtsPlayEnded)
    assert (started.session_id, started.trace_id, started.group_id) == ("s-1", "t-0", "g-1")
    assert (ended.session_id, ended.trace_id, ended.group_id) == ("s-1", "t-0", "g-1")
    assert started.ts_start_ms <= ended.ts_end_ms
    assert await page.evaluate("played") == [[200, 1, 0.5]]


async def test_speech_is_played_one_after_the_other(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    speech = base64.b64encode(tone.pcm16(0.1)).decode()
    for index in range(3):
        await client.say_result(index, tts_audio=speech, group_id=f"g-{index}")
    await client.say_result(3)
    await results(page, 4)
    await js(page, "await Promise.all(told.map((result) => session.play(result)));")
    for index in range(3):
        assert (await client.next(wire.TtsStarted)).group_id == f"g-{index}"
        assert (await client.next(wire.TtsPlayEnded)).group_id == f"g-{index}"


async def test_speech_that_cannot_be_played_is_an_error_and_holds_nothing_up(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await client.say_result(0, tts_audio=base64.b64encode(b"no sound at all").decode(), tts_format="wav")
    await client.say_result(1, tts_audio=base64.b64encode(tone.pcm16(0.05)).decode(), group_id="g-1")
    await results(page, 2)
    played = await js(page, "return Promise.all(told.map((one) => outcome(() => session.play(one))));")
    assert [one["error"] and one["error"]["code"] for one in played] == ["INVALID_AUDIO", None]
    assert (await client.next(wire.TtsPlayEnded)).group_id == "g-1"


async def test_a_page_that_plays_by_itself_can_tell_the_mesh(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await client.say_result(0, group_id="g-7")
    await client.say_result(1)
    await results(page, 2)
    await js(page, "for (const one of told) { session.ttsStarted(one); session.ttsPlayEnded(one); }")
    assert (await client.next(wire.TtsStarted)).group_id == "g-7"
    assert (await client.next(wire.TtsPlayEnded)).group_id == "g-7"


async def test_the_end_of_the_session_is_the_end_of_the_sound(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await client.say_result(0, tts_audio=base64.b64encode(tone.pcm16(60)).decode(), group_id="g-1")
    await results(page, 1)
    await js(page, "window.playing = session.play(told[0]);")
    await client.next(wire.TtsStarted)
    await client.say("error", code="SESSION_SUPERSEDED", message="taken over")
    await js(page, "await playing;")
