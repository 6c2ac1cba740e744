"""Binary messages of both SDKs: negotiated with scripted edges, and through real edges to and from peers with JSON."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from websockets.asyncio.client import connect

from linguamesh.node import Job, Node, Result
from linguamesh.session import Session, Translation
from linguamesh.websocket import MeshConnection, dial
from mesh.frames import JobDone
from mesh.messages import binary
from mesh.messages import client as session_wire
from mesh.messages import node as node_wire
from mesh.messages.audio import audio_bytes
from mesh.messages.base import encode_utf8
from tests.support.conditions import DEADLINE_S, until
from tests.support.fakes.played_mesh import recv_close
from tests.support.fakes.scripted_server import Peer, ScriptedServer, scripted_server
from tests.support.processes.edge import Rig, running

#: Larger than what a link carries in its table, and than one read of a socket may have.
AUDIO = random.Random(1).randbytes(200_000)
SPEECH = random.Random(2).randbytes(100_000)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as scripted:
        yield scripted


def no_delay(failures: int) -> float:
    """Reconnect without backoff."""
    return 0.0


async def received(peer: Peer, number: int) -> Any:
    """The next binary message, which is of that type."""
    async with asyncio.timeout(DEADLINE_S):
        while not isinstance(data := await peer.connection.recv(), bytes):
            pass
    assert data[0] == number
    return binary.decode(data)


# --- a session and a scripted edge ----------------------------------------------------------------


async def accept_session(server: ScriptedServer, **fields: Any) -> tuple[Peer, dict[str, Any]]:
    peer = await server.peer()
    init = await peer.recv("session_init")
    await peer.send("session_init_ack", session_id="s-1", trace_id="t-1", resume_token="s-1.secret", **fields)
    return peer, init


def result(index: int) -> session_wire.TranslationResult:
    return session_wire.TranslationResult(
        session_id="s-1",
        utterance_index=index,
        job_id="j",
        text_asr="a",
        text_translated="b",
        tts_format="pcm16",
        trace_id="t",
    )


async def send_result(peer: Peer, index: int) -> None:
    await peer.connection.send(b"".join(binary.encode(result(index), SPEECH)))


async def closed(session: Session, peer: Peer) -> None:
    closing = asyncio.create_task(session.close())
    await recv_close(peer)
    await peer.send("session_close_ack", session_id="s-1")
    await closing


async def test_session_sends_and_receives_raw_audio_once_that_is_agreed(server: ScriptedServer) -> None:
    session = Session(server.url, src="en", tgt="es")
    opening = asyncio.create_task(session.__aenter__())
    peer, init = await accept_session(server, binary_messages=True)
    assert init["binary_messages"] is True
    await opening
    translating = asyncio.create_task(session.translate(AUDIO))
    utterance = await received(peer, binary.UTTERANCE)
    assert (utterance.session_id, utterance.utterance_index, bytes(utterance.audio)) == ("s-1", 0, AUDIO)
    await send_result(peer, 0)
    translation = await translating
    assert (translation.text_translated, translation.tts_audio) == ("b", SPEECH)
    await peer.recv("result_ack")
    await closed(session, peer)


@pytest.mark.parametrize("answer", [{}, {"binary_messages": False}], ids=["an older edge", "refused"])
async def test_session_sends_json_if_that_was_not_agreed(server: ScriptedServer, answer: dict[str, Any]) -> None:
    session = Session(server.url, src="en", tgt="es")
    opening = asyncio.create_task(session.__aenter__())
    peer, _ = await accept_session(server, **answer)
    await opening
    translating = asyncio.create_task(session.translate(b"\1\0"))
    assert (await peer.recv("utterance"))["audio"] == "AQA="
    await peer.send("translation_result", **json.loads(encode_utf8(result(0))) | {"tts_audio": "c3BlZWNo"})
    assert (await translating).tts_audio == b"speech"
    await closed(session, peer)


async def test_session_that_does_not_want_it_does_not_ask(server: ScriptedServer) -> None:
    session = Session(server.url, src="en", tgt="es", binary_messages=False)
    opening = asyncio.create_task(session.__aenter__())
    peer, init = await accept_session(server)
    await opening
    assert "binary_messages" not in init
    await closed(session, peer)


async def test_resume_negotiates_anew(server: ScriptedServer) -> None:
    session = Session(server.url, src="en", tgt="es", reconnect_delay=no_delay)
    opening = asyncio.create_task(session.__aenter__())
    peer, _ = await accept_session(server, binary_messages=True)
    await opening
    translating = asyncio.create_task(session.translate(b"\1\0"))
    await received(peer, binary.UTTERANCE)
    peer.connection.transport.abort()
    peer, init = await accept_session(server, resumed=True)
    assert init["binary_messages"] is True and init["resume_token"] == "s-1.secret"
    assert (await peer.recv("utterance"))["audio"] == "AQA=", "the next edge did not agree"
    peer.connection.transport.abort()
    peer, _ = await accept_session(server, resumed=True, binary_messages=True)
    assert bytes((await received(peer, binary.UTTERANCE)).audio) == b"\1\0"
    await send_result(peer, 0)
    assert (await translating).tts_audio == SPEECH
    await closed(session, peer)


async def test_malformed_binary_message_costs_the_session_nothing_else(server: ScriptedServer) -> None:
    session = Session(server.url, src="en", tgt="es")
    opening = asyncio.create_task(session.__aenter__())
    peer, _ = await accept_session(server, binary_messages=True)
    await opening
    translating = asyncio.create_task(session.translate(AUDIO))
    await received(peer, binary.UTTERANCE)
    for data in (b"\x23", b"\x23\xff\xff\xff\xff{}", b"\x23\x02\x00\x00\x00{}", b"\x7f???"):
        await peer.connection.send(data)
    await send_result(peer, 0)
    assert (await translating).tts_audio == SPEECH
    assert session.reconnects == 0
    await closed(session, peer)


# --- a node and a scripted edge -------------------------------------------------------------------


async def accept_node(server: ScriptedServer, **fields: Any) -> tuple[Peer, dict[str, Any]]:
    peer = await server.peer()
    register = await peer.recv("node_register")
    await peer.send("node_register_ack", node_id="node-1", status="ready", **fields)
    return peer, register


async def assign(peer: Peer, job_id: str = "job-00-1") -> None:
    message = node_wire.JobAssign(
        job_id=job_id,
        attempt_id=1,
        session_id="s-1",
        utterance_index=3,
        src_lang="en",
        tgt_lang="es",
        pipeline=node_wire.PipelineConfig(),
        audio_format="pcm16",
        sample_rate=16_000,
        trace_id="t-1",
    )
    await peer.connection.send(b"".join(binary.encode(message, AUDIO)))


async def speak(job: Job) -> Result:
    assert job.audio == AUDIO
    return Result(text_asr="a", text_translated="b", tts_audio=SPEECH)


async def test_node_receives_and_sends_raw_audio_once_that_is_agreed(server: ScriptedServer) -> None:
    node = Node(server.url, speak, asr=["en"], semantic=["es"])
    entering = asyncio.create_task(node.__aenter__())
    peer, register = await accept_node(server, binary_messages=True)
    assert register["binary_messages"] is True
    await entering
    for data in (b"", b"\x21\xff\xff\xff\xff{}", b"\x22\x02\x00\x00\x00{}", b"\x21\x02\x00\x00\x00{}"):
        await peer.connection.send(data)  # malformed: ignored
    await assign(peer)
    answer = await received(peer, binary.JOB_RESULT)
    assert (answer.success, answer.job_id, bytes(answer.tts_audio)) == (True, "job-00-1", SPEECH)
    await node.close()


async def test_result_is_retried_in_the_form_of_the_next_connection(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linguamesh.websocket.RECONNECT_BASE_S", 0.0)
    node = Node(server.url, speak, asr=["en"], semantic=["es"])
    entering = asyncio.create_task(node.__aenter__())
    peer, _ = await accept_node(server, binary_messages=True)
    await entering
    await assign(peer)
    await received(peer, binary.JOB_RESULT)
    peer.connection.transport.abort()
    peer, register = await accept_node(server)
    assert register["binary_messages"] is True
    retried = node_wire.decode_from_node(json.dumps(await peer.recv("job_result")))
    assert isinstance(retried, node_wire.JobResult) and retried.job_id == "job-00-1"
    await peer.send("job_result_ack", job_id="job-00-1", attempt_id=1)
    await node.close()


# --- real edges -----------------------------------------------------------------------------------


class Mesh:
    """Real edges, an SDK node at the first one and SDK sessions. `jobs` are those that the node got."""

    def __init__(self, rig: Rig, stack: AsyncExitStack) -> None:
        self.rig = rig
        self.jobs: list[Job] = []
        #: Jobs end when it is set.
        self.gate = asyncio.Event()
        self.gate.set()
        self._stack = stack

    async def node(self, *, is_binary: bool) -> None:
        node = Node(self.rig.url(""), self._work, asr=["en"], semantic=["es", "en"], binary_messages=is_binary)
        await self._stack.enter_async_context(node)

    async def session(self, *edges: int, is_binary: bool, **options: Any) -> Session:
        urls = [self.rig.url("", edge) for edge in edges]
        times = {"timeout": DEADLINE_S, "open_timeout": DEADLINE_S, "close_timeout": 1.0, "reconnect_delay": no_delay}
        session = Session(urls, src="en", tgt="es", binary_messages=is_binary, **times, **options)
        return await self._stack.enter_async_context(session)

    async def _work(self, job: Job) -> Result:
        self.jobs.append(job)
        await self.gate.wait()
        return Result(text_asr=f"{len(job.audio)}", text_translated="b", tts_audio=SPEECH[: len(job.audio) // 2])

    async def lose(self, session: Session) -> None:
        """The session's connection is lost, and the mesh knows."""
        connection = session._lifecycle.connection.connection
        assert connection is not None
        connection.transport.abort()
        record = self.rig.selector.records[session.session_id]
        await until(lambda: record.away, "the mesh knows")


@pytest.fixture
async def mesh(tmp: Path) -> AsyncIterator[Mesh]:
    async with running(tmp, edges=2) as rig, AsyncExitStack() as stack:
        yield Mesh(rig, stack)


def is_raw(audio: object) -> bool:
    """True if the audio came in a binary message."""
    assert isinstance(audio, bytes | Raw)
    return isinstance(audio, bytes)


def check(translation: Translation, audio: bytes = AUDIO) -> None:
    assert (translation.text_asr, translation.tts_audio) == (f"{len(audio)}", SPEECH[: len(audio) // 2])


@pytest.mark.parametrize("edge", [0, 1], ids=["one edge", "two edges"])
@pytest.mark.parametrize("session_is_binary", [False, True], ids=["JSON session", "binary session"])
@pytest.mark.parametrize("node_is_binary", [False, True], ids=["JSON node", "binary node"])
async def test_audio_and_speech_are_the_same_for_all_peers(
    mesh: Mesh, node_is_binary: bool, session_is_binary: bool, edge: int
) -> None:
    await mesh.node(is_binary=node_is_binary)
    session = await mesh.session(edge, is_binary=session_is_binary)
    for index in range(3):
        translation = await session.translate(AUDIO)
        check(translation)
        assert translation.utterance_index == index and translation.message is not None
        # The mesh does not decode the base64 of a node, so its result stays JSON.
        assert is_raw(translation.message.tts_audio) is (node_is_binary and session_is_binary)
        assert mesh.jobs[-1].audio == AUDIO and is_raw(mesh.jobs[-1].message.audio) is node_is_binary
    assert mesh.rig.selector.seen_of(JobDone) == [], "each result took the direct way"


@pytest.mark.parametrize("session_is_binary", [False, True], ids=["JSON session", "binary session"])
async def test_streamed_utterance_gets_its_speech_in_a_binary_message(mesh: Mesh, session_is_binary: bool) -> None:
    await mesh.node(is_binary=True)
    session = await mesh.session(1, is_binary=session_is_binary)
    results = session.results()
    for _ in range(2):
        await session.speak(AUDIO[:6_400])
        await session.end_utterance()
        translation = await anext(results)
        check(translation, AUDIO[:6_400])
        assert mesh.jobs[-1].audio == AUDIO[:6_400]
        assert translation.message is not None and translation.message.last_seq is not None
        assert is_raw(translation.message.tts_audio) is session_is_binary


@pytest.mark.parametrize("is_taken_over", [False, True], ids=["same edge", "another edge"])
async def test_result_that_waited_in_the_mail_is_redelivered(
    mesh: Mesh, is_taken_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parked as JSON, because an entry of the mail has one part."""
    await mesh.node(is_binary=True)
    session = await mesh.session(*((1, 0) if is_taken_over else (1,)), is_binary=True)
    may_return = asyncio.Event()

    async def dial_late(url: str, **options: Any) -> MeshConnection:
        await may_return.wait()
        return await dial(url, **options)

    monkeypatch.setattr("linguamesh.session.connection.dial", dial_late)
    mesh.gate.clear()
    index = await session.send(AUDIO)
    await until(lambda: bool(mesh.jobs), "the node has the job")
    await mesh.lose(session)
    mesh.gate.set()
    mail = mesh.rig.selector.records[session.session_id].mail
    await until(lambda: bool(mail), "the result waits in the mail")
    may_return.set()
    translation = await anext(session.results())
    check(translation)
    assert (translation.utterance_index, session.reconnects, session.lost) == (index, 1, False)
    check(await session.translate(AUDIO))


async def test_unacknowledged_result_is_redelivered_in_the_form_of_each_connection(mesh: Mesh) -> None:
    """A raw client, because the SDK acknowledges at once."""
    await mesh.node(is_binary=True)
    init = {"client_version": "1", "platform": "web", "src_lang": "en", "tgt_lang": "es", "resumable": True}
    token = None
    for is_binary in (True, False, True):
        async with connect(mesh.rig.url("/ws/session", 1), max_size=None, proxy=None) as socket:
            fields = {**init, "binary_messages": is_binary, "resume_token": token, "last_index": -1, "last_seq": -1}
            peer = Peer(socket)  # type: ignore[arg-type]
            await peer.send("session_init", **fields)
            ack = await peer.recv("session_init_ack")
            assert ack.get("binary_messages") is (True if is_binary else None)
            if token is None:
                utterance = session_wire.Utterance(
                    session_id=ack["session_id"],
                    utterance_index=0,
                    manual_cut=True,
                    src_lang="en",
                    tgt_lang="es",
                    audio_format="pcm16",
                    sample_rate=16_000,
                )
                await socket.send(b"".join(binary.encode(utterance, AUDIO)))
            token = ack["resume_token"]
            if is_binary:
                message = await received(peer, binary.TRANSLATION_RESULT)
            else:
                message = session_wire.decode_from_server(json.dumps(await peer.recv("translation_result")))
            assert message.utterance_index == 0 and bytes(audio_bytes(message.tts_audio)) == SPEECH
            socket.transport.abort()
    assert len(mesh.jobs) == 1


@pytest.mark.parametrize("node_is_binary", [False, True], ids=["JSON node", "binary node"])
async def test_speech_is_relayed_to_the_members_of_a_room(mesh: Mesh, node_is_binary: bool) -> None:
    await mesh.node(is_binary=node_is_binary)
    speaker, listener = await mesh.session(0, is_binary=True), await mesh.session(1, is_binary=True)
    await listener.join_room(await speaker.create_room(), preferred_lang="es")
    await until(lambda: len(speaker.members) == 2, "both are in the room")
    for index in range(2):
        own = await speaker.translate(AUDIO)
        assert own.for_room and own.tts_audio == b""
        heard = await anext(listener.heard())
        check(heard)
        assert (heard.speaker, heard.utterance_index) == (speaker.session_id, index)
