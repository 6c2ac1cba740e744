"""A lost connection: reconnect, resume, redelivery, and the limits of each."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from mesh.messages import client as wire
from tests.browser.session_page import SOON, js, opened, opening, recorded, results, speak, until
from tests.support.fakes.scripted_mesh import TOKEN, ScriptedMesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: `received(count)` resolves when that many messages were received on all sockets together.
COUNT_MESSAGES = """
  let count = 0;
  let waiters = [];
  const onMessage = () => {
    count += 1;
    for (const waiter of waiters) if (waiter.count === count) waiter.resolve();
  };
  window.received = (wanted) => new Promise((resolve) => {
    if (count >= wanted) resolve();
    else waiters.push({ count: wanted, resolve });
  });
  window.WebSocket = class extends WebSocket {
    constructor(url) { super(url); this.addEventListener("message", onMessage); }
  };
"""


@pytest.mark.parametrize("binary", [False, True])
async def test_lost_connection_resumes_at_its_position(page: Page, mesh: ScriptedMesh, binary: bool) -> None:
    client = await opened(page, mesh, use_binary_frame=binary, options={"init": {"pairing_code": "123456"}})
    await speak(page, 100, end=True)
    await speak(page, 200, end=True)
    await speak(page, 100)
    first = await client.chunks(6)
    await client.send_result(0, last_seq=1)
    await client.next(wire.ResultAckMessage)
    client.abort()

    again = await mesh.client()
    init = again.init
    assert (init.resume_token, init.last_index, init.last_seq) == (TOKEN, 0, 1)
    # A pairing code is valid once.
    assert (init.src_lang, init.resumable, init.binary_frames, init.pairing_code) == ("en", True, True, None)
    await again.accept(use_binary_frame=binary, resumed=True, next_utterance_index=1, resend_from_seq=2)
    assert await again.chunks(4) == first[2:]
    await again.send_result(0, "duplicate", last_seq=1)
    await again.send_result(1, last_seq=4)
    assert [(one["index"], one["text"]) for one in await results(page, 2)] == [(0, "hola"), (1, "hola")]
    assert (await again.next(wire.ResultAckMessage, lambda ack: ack.utterance_index == 1)).session_id == "s-1"
    await speak(page, 100, end=True)
    assert [chunk.seq for chunk in await again.chunks(2)] == [6, 7]
    assert await recorded(page, "states") == ["opening", "open", "reconnecting", "open"]
    assert await js(page, "return [session.lost, session.sessionId];") == [False, "s-1"]


async def test_resume_resends_from_the_requested_chunk(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await speak(page, 400, end=True)
    first = await client.chunks(5)
    client.abort()
    again = await mesh.client()
    await again.accept(resumed=True, resend_from_seq=3)
    assert await again.chunks(2) == first[3:]
    again.abort()
    third = await mesh.client()
    assert (third.init.last_index, third.init.last_seq) == (-1, -1)
    await third.accept(resumed=True, resend_from_seq=0)
    assert await third.chunks(5) == first


async def test_backpressure_ends_with_its_connection(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await client.send("backpressure", action="PAUSE", resume_after_ms=60_000)
    await client.send("backpressure", action="SLOW_DOWN", resume_after_ms=60_000)
    await until(page, "recorded.events.length === 2")
    await speak(page, 200)
    client.abort()
    again = await mesh.client()
    await again.accept(resumed=True, resend_from_seq=0)
    assert [chunk.seq for chunk in await again.chunks(2)] == [0, 1]


async def test_audio_during_reconnect_is_sent_after_resume(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await speak(page, 100)
    await client.chunk()
    client.abort()
    again = await mesh.client()
    await until(page, "session.state === 'reconnecting'")
    await speak(page, 200, end=True)
    await again.accept(resumed=True, resend_from_seq=1)
    assert [(chunk.seq, chunk.is_final) for chunk in await again.chunks(3)] == [(1, False), (2, False), (3, True)]


async def test_session_that_cannot_be_resumed_is_replaced(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await speak(page, 100, end=True)
    await speak(page, 200, end=True)
    first = await client.chunks(5)
    await client.send_result(0, last_seq=1)
    await results(page, 1)
    client.abort()
    again = await mesh.client()
    await again.accept("s-2", resumed=False, resume_token="another")
    said = await again.chunks(3)
    assert [chunk.seq for chunk in said] == [0, 1, 2]
    assert [(one.is_final, one.audio, one.timestamp_ms) for one in said] == [
        (one.is_final, one.audio, one.timestamp_ms) for one in first[2:]
    ]
    await again.send_result(0, "in the new one", last_seq=2)
    assert [(one["index"], one["sessionId"]) for one in await results(page, 2)] == [(0, "s-1"), (1, "s-2")]
    assert await recorded(page, "lost") == ["session"]
    assert await js(page, "return [session.lost, session.sessionId];") == [True, "s-2"]
    again.abort()
    assert (await mesh.client()).init.resume_token == "another"


async def test_results_lost_by_the_mesh_are_failures(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await client.send_result(0)
    await results(page, 1)
    client.abort()
    again = await mesh.client()
    await again.accept(resumed=True, lost=True, resend_from_seq=0)
    await again.send_result(2)
    received = await results(page, 3)
    messages = [(one["index"], (one["error"] or {}).get("message")) for one in received]
    assert messages == [
        (0, None),
        (1, "lost"),
        (2, None),
    ]
    assert await recorded(page, "lost") == ["results"]


async def test_evicted_audio_is_reported_as_lost_at_resume(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh, options={"keptBytesMax": 10_000})
    for _ in range(5):
        await speak(page, 100)
        await client.chunk()
    client.abort()
    again = await mesh.client()
    await again.accept(resumed=True, resend_from_seq=0)
    assert [chunk.seq for chunk in await again.chunks(3)] == [2, 3, 4]
    assert await recorded(page, "lost") == ["audio"]


async def test_reconnect_dials_the_next_address(page: Page, mesh: ScriptedMesh) -> None:
    async with ScriptedMesh() as other:
        waiting = opening(page, [mesh.url, other.url])
        client = await mesh.client()
        await client.accept()
        await waiting
        client.abort()
        again = await other.client()
        await again.accept(resumed=True, resend_from_seq=0)
        await until(page, "session.state === 'open'")
        assert await js(page, "return session.url;") == f"{other.url}/ws/session"
        again.abort()
        await (await mesh.client()).accept(resumed=True, resend_from_seq=0)
        await until(page, "session.state === 'open'")


async def test_reconnect_retries_after_transient_refusals(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await client.close(1001)
    second = await mesh.client()
    await second.send("error", code="SCHEDULER_DEPENDENCY_DOWN", message="the mesh cannot reach its store")
    third = await mesh.client()
    third.abort()
    fourth = await mesh.client()
    await fourth.accept(resumed=True, resend_from_seq=0)
    await until(page, "session.state === 'open'")


async def test_reconnect_ends_at_permanent_refusal(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    client.abort()
    again = await mesh.client()
    await again.send("error", code="INVALID_MESSAGE", message="not like this")
    await until(page, "recorded.over !== null")
    assert (await recorded(page, "over"))["code"] == "INVALID_MESSAGE"


async def test_reconnect_is_abandoned_after_its_timeout(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh, options={"timing": {**SOON, "giveUp": 200}})
    await mesh.stop_listening()
    client.abort()
    await until(page, "recorded.over !== null")
    assert (await recorded(page, "over"))["code"] == "WS_DISCONNECTED"


async def test_close_during_reconnect_cancels_it(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh, options={"timing": {"reconnectBase": 600_000, "reconnectCap": 600_000}})
    client.abort()
    await until(page, "session.state === 'reconnecting'")
    await js(page, "await session.close();")
    await until(page, "recorded.over !== null")
    assert await recorded(page, "states") == ["opening", "open", "reconnecting", "closed"]


async def test_socket_without_inbound_messages_is_lost_after_the_liveness_timeout(
    page: Page, mesh: ScriptedMesh
) -> None:
    """The edge does not reply to heartbeats: its host is down, or the network is partitioned."""
    client = await opened(page, mesh, options={"timing": {**SOON, "heartbeat": 20, "silence": 200}})
    beat = await client.next(wire.ClientHeartbeat)
    assert beat.session_id == "s-1"
    again = await mesh.client()
    assert again.init.resume_token == TOKEN


async def test_heartbeat_replies_keep_the_connection_live(page: Page, mesh: ScriptedMesh) -> None:
    """The page's clock is simulated: three intervals, each shorter than the liveness timeout, are longer together."""
    await page.clock.install()
    await js(page, COUNT_MESSAGES)
    client = await opened(page, mesh, options={"timing": {**SOON, "heartbeat": 40_000, "silence": 60_000}})
    for count in range(1, 4):
        await page.clock.run_for(40_000)
        beat = await client.next(wire.ClientHeartbeat)
        await client.send("server_heartbeat", session_id="s-1", timestamp=beat.timestamp)
        await page.evaluate("(count) => received(count)", 1 + count)
    assert mesh.clients_pending == 0
    assert await recorded(page, "states") == ["opening", "open"]
