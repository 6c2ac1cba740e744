"""A page and a mesh of real processes: results come in order, also after the failure of an edge."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page

from linguamesh.local.redis_server import RedisServer
from linguamesh.node import Job, Node, Result
from tests.browser.session_page import js, opening, recorded, results, until
from tests.support.clients.sdk import Worker, at_once, workers
from tests.support.processes.running_mesh import RunningMesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Half a second each.
CHUNKS_PER_UTTERANCE = 5
SPEAK = """
  const { microphone } = await import("/lingua-session.js");
  window.said = [];
  window.speaking = (async () => {
    for await (const samples of microphone()) {
      said.push(...new Uint8Array(samples.slice().buffer));
      session.speak(samples);
      if (said.length % (given.chunks * 3200) === 0) session.endUtterance();
      if (said.length === given.chunks * 3200 * given.utterances) return;
    }
  })();
"""


async def speak(page: Page, utterances: int) -> None:
    """Start to stream that many utterances of the microphone."""
    await js(page, SPEAK, {"chunks": CHUNKS_PER_UTTERANCE, "utterances": utterances})


async def said(page: Page) -> bytes:
    """All audio that was sent, once it is complete."""
    return bytes(await js(page, "await speaking; return said;"))


def translated(worker: Worker) -> bytes:
    """The audio of all utterances, in order of their indices, as the node received it."""
    audio = {job.utterance_index: job.audio for job in worker.jobs}
    return b"".join(audio[index] for index in sorted(audio))


def assert_each_once(received: list[dict[str, Any]], session_id: str, count: int) -> None:
    expected = [(index, f"{session_id}/{index}", None) for index in range(count)]
    assert [(one["index"], one["text"], one["error"]) for one in received] == expected


async def test_microphone_audio_is_translated_in_order(page: Page, redis_server: RedisServer, tmp: Path) -> None:
    worker = Worker("n-1", at_once)
    with RunningMesh(tmp, redis_server.url) as mesh:
        async with workers(mesh.url("edge-1"), worker):
            session_id = (await opening(page, mesh.url("edge-0")))["value"]
            await speak(page, 6)
            received = await results(page, 6)
            assert_each_once(received, session_id, 6)
            assert translated(worker) == await said(page)
            assert (worker.jobs[0].audio_format, worker.jobs[0].sample_rate) == ("pcm16", 16_000)
            await js(page, "await session.close();")
            await until(page, "recorded.over !== null")
            assert (await recorded(page, "over"))["code"] == ""
    assert await recorded(page, "lost") == []


async def test_speech_of_a_node_reaches_the_page_without_base64(
    page: Page, redis_server: RedisServer, tmp: Path
) -> None:
    speech = random.Random(1).randbytes(50_000)

    async def answer(job: Job) -> Result:
        return Result(text_asr="a", text_translated=f"{job.session_id}/{job.utterance_index}", tts_audio=speech)

    with RunningMesh(tmp, redis_server.url) as mesh:
        async with Node(mesh.url("edge-1"), answer, asr=["en"], semantic=["es"]):
            await opening(page, mesh.url("edge-0"))
            await js(page, "session.speak(sound(500)); session.endUtterance();")
            await results(page, 1)
            assert bytes(await js(page, "return [...resultObjects[0].ttsAudio];")) == speech
            assert await js(page, "return resultObjects[0].message.tts_audio instanceof Uint8Array;")
            await js(page, "await session.close();")


async def test_session_fails_over_when_its_edge_dies_while_streaming(
    page: Page, redis_server: RedisServer, tmp: Path
) -> None:
    utterances = 16
    worker = Worker("n-1", at_once)
    with RunningMesh(tmp, redis_server.url, edges=3) as mesh:
        async with workers(mesh.url("edge-2"), worker):
            opened = await opening(page, [mesh.url("edge-0"), mesh.url("edge-1")], timing={})
            await speak(page, utterances)
            await results(page, 4)
            mesh.kill("edge-0")
            received = await results(page, utterances)
            assert_each_once(received, opened["value"], utterances)
            assert translated(worker) == await said(page)
            assert await js(page, "return session.url;") == f"{mesh.url('edge-1')}/ws/session"
            await js(page, "await session.close();")
    assert await recorded(page, "states") == ["opening", "open", "reconnecting", "open", "closed"]
    assert await recorded(page, "lost") == []


async def test_room_members_receive_each_others_results(page: Page, redis_server: RedisServer, tmp: Path) -> None:
    worker = Worker("n-1", at_once)
    other = await page.context.new_page()
    await other.goto(page.url)
    with RunningMesh(tmp, redis_server.url) as mesh:
        async with workers(mesh.url("edge-0"), worker):
            ada = (await opening(page, mesh.url("edge-0")))["value"]
            await opening(other, mesh.url("edge-1"))
            room = await js(page, "return session.createRoom({ displayName: 'Ada', preferredLang: 'en' });")
            await js(other, "await session.joinRoom(given, { displayName: 'Bea', preferredLang: 'es' });", room)
            await until(page, "session.members.length === 2")
            await speak(page, 3)
            await until(other, "recorded.heard.length === 3")
            heard = await recorded(other, "heard")
            assert [(one["index"], one["sessionId"], one["text"]) for one in heard] == [
                (index, ada, f"{ada}/{index}") for index in range(3)
            ]
            assert await recorded(page, "results") == [] and await recorded(other, "results") == []
            await js(other, "session.leaveRoom();")
            await until(page, "session.members.length === 1")
            await asyncio.gather(js(page, "await session.close();"), js(other, "await session.close();"))
