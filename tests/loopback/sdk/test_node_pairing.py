"""Pairing codes and the newer fields of a job in the node SDK, against a scripted scheduler."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from linguamesh.cli import node as demo
from linguamesh.cli.main import build_parser
from linguamesh.node import Job, Node, NodeRefused, Result, Unreachable
from tests.support.conditions import DEADLINE_S
from tests.support.fakes.scripted_server import Peer, ScriptedServer, scripted_server


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as scripted:
        yield scripted


async def accept(server: ScriptedServer) -> Peer:
    peer = await server.peer()
    register = await peer.recv("node_register")
    await peer.send("node_register_ack", node_id=register.get("node_id") or "node-1")
    return peer


async def registered(server: ScriptedServer, handler: Any = None) -> tuple[Node, Peer]:
    node = Node(server.url, handler, asr=["en"], semantic=["es"])
    entering = asyncio.create_task(node.__aenter__())
    peer = await accept(server)
    return await entering, peer


async def test_node_gets_a_pairing_code(server: ScriptedServer) -> None:
    node, peer = await registered(server)
    requesting = [asyncio.create_task(node.pairing_code()) for _ in range(2)]
    for code in ("111111", "222222"):
        assert (await peer.recv("pairing_code_request"))["node_id"] == "node-1"
        await peer.send("pairing_code", node_id="node-1", code=code, expires_in_ms=1_500)
    assert await asyncio.gather(*requesting) == [("111111", 1.5), ("222222", 1.5)]
    await node.close()


async def test_refused_pairing_code_raises_and_the_node_serves_on(server: ScriptedServer) -> None:
    node, peer = await registered(server)
    requesting = asyncio.create_task(node.pairing_code())
    await peer.recv("pairing_code_request")
    await peer.send("error", code="SLOW_DOWN", message="too many codes")
    with pytest.raises(NodeRefused, match="SLOW_DOWN: too many codes"):
        await requesting
    assert node.is_registered
    await node.close()


async def test_pairing_code_without_a_connection_is_unreachable(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, peer = await registered(server)
    requesting = asyncio.create_task(node.pairing_code())
    await peer.recv("pairing_code_request")
    peer.connection.transport.abort()
    with pytest.raises(Unreachable, match="the connection is lost"):
        await requesting
    with pytest.raises(Unreachable, match="no connection now"):
        await node.pairing_code()
    await accept(server)
    await node.registered()
    monkeypatch.setattr("linguamesh.node.control.PAIRING_TIMEOUT_S", 0.05)
    with pytest.raises(Unreachable, match=r"within 0.05 s"):
        await node.pairing_code()
    await node.close()


async def test_job_has_its_finalize_reason_and_context(server: ScriptedServer) -> None:
    seen: asyncio.Queue[Job] = asyncio.Queue()

    async def handler(job: Job) -> Result:
        await seen.put(job)
        return Result()

    node, peer = await registered(server, handler)
    job = {
        "attempt_id": 1,
        "session_id": "s-1",
        "utterance_index": 3,
        "src_lang": "en",
        "tgt_lang": "es",
        "pipeline": {},
        "audio": "",
        "audio_format": "pcm16",
        "sample_rate": 16_000,
        "trace_id": "t-1",
    }
    more = {"group_id": "g", "part_index": 2, "context_text": "User: hi", "turn_id": "turn", "padding_ms": 280}
    flags = ["is_manual_cut", "is_pause_triggered", "is_timeout_triggered", "is_max_duration_triggered"]
    await peer.send("job_assign", job_id="job-00-1", **job)
    await peer.send("job_assign", job_id="job-00-2", **job, **more, **dict.fromkeys(flags, True))
    plain, full = await seen.get(), await seen.get()
    assert {name: getattr(full, name) for name in more} == more
    assert [getattr(full, name) for name in flags] == [True] * 4
    assert [getattr(plain, name) for name in flags] == [False] * 4
    assert (plain.group_id, plain.part_index, plain.context_text, plain.turn_id, plain.padding_ms) == (
        None,
        None,
        None,
        None,
        0,
    )
    await node.close()


def options(server: ScriptedServer, *arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(["node", "--url", server.url, "--count", "2", "--name", "n", "--pair", *arguments])


@pytest.mark.parametrize("as_json", [False, True])
async def test_demo_nodes_print_their_pairing_codes(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    stop = asyncio.Event()
    serving = asyncio.create_task(demo._serve(options(server, *(["--json"] if as_json else [])), stop))
    peers = [await accept(server) for _ in range(2)]

    async def answer(peer: Peer) -> None:
        node_id = (await peer.recv("pairing_code_request"))["node_id"]
        if node_id == "n-0":
            await peer.send("pairing_code", node_id=node_id, code="123456", expires_in_ms=300_000)
        else:
            await peer.send("error", code="SLOW_DOWN", message="later")

    await asyncio.gather(*(answer(peer) for peer in peers))
    out = ""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            out += capsys.readouterr().out
            if ("n-1: none" in out) if not as_json else out.endswith("\n"):
                break
            await asyncio.sleep(0)
    if as_json:
        assert json.loads(out)["pairing_codes"] == {"n-0": "123456", "n-1": ""}
    else:
        assert out.splitlines()[-2:] == ["Pairing code of n-0: 123456", "Pairing code of n-1: none, see the log"]
    stop.set()
    await serving
