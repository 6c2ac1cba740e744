"""The microphone of a page: its format, its device, its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.async_api import Page

from tests.browser import sine_wave
from tests.browser.session_page import js, opened
from tests.support.fakes.scripted_mesh import ScriptedMesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Without processing that makes speech clearer and a tone weaker.
PLAIN = "{ constraints: { echoCancellation: false, noiseSuppression: false, autoGainControl: false } }"
#: A browser that does not resample a microphone.
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
async def test_microphone_yields_pcm16_at_16_khz_in_chunks_of_100_ms(page: Page, before: str) -> None:
    chunks = await js(page, before + RECORD % PLAIN)
    assert {len(chunk) for chunk in chunks[:15]} == {1_600}
    assert all(0 < len(chunk) <= 1_600 for chunk in chunks)
    # Without the start of the device.
    sound = np.array([sample for chunk in chunks[5:15] for sample in chunk])
    assert abs(sine_wave.loudest_hz(sound) - sine_wave.HZ) < 5
    assert np.max(np.abs(sound)) > 3_000


async def test_microphone_is_released_when_its_loop_is_left(page: Page) -> None:
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


async def test_microphone_stopped_during_its_start_yields_nothing(page: Page) -> None:
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


async def test_denied_microphone_is_an_error_with_a_hint(page: Page) -> None:
    body = """
      navigator.mediaDevices.getUserMedia = async () => { throw new DOMException("denied", "NotAllowedError"); };
      const { microphone } = await import("/lingua-session.js");
      return outcome(async () => { for await (const samples of microphone()) return samples; });
    """
    error = (await js(page, body))["error"]
    assert error["code"] == "MICROPHONE" and error["hint"]


async def test_unread_microphone_chunks_are_bounded_and_counted(page: Page) -> None:
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
      const deliver = ports[0].onmessage;
      ports[0].onmessage = null; // chunks of the device itself do not count
      for (let i = 0; i < 400; i += 1) deliver({ data: new Int16Array(1) });
      deliver({ data: null });
      let count = 0;
      for await (const samples of source) count += 1;
      return [count, source.dropped >= 100];
    """
    assert await js(page, body) == [300, True]


async def test_microphone_audio_reaches_the_mesh(page: Page, mesh: ScriptedMesh) -> None:
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
    assert abs(sine_wave.loudest_hz(sound) - sine_wave.HZ) < 5
