"""The edge as its own process: ready line, shared port, exit codes, backpressure from a full mesh."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from linguamesh.local.redis_server import free_port
from mesh.frames import Dispatch
from tests.support.conditions import DEADLINE_S
from tests.support.processes.edge import INIT, REGISTER, Talk, get, running, until
from tests.support.processes.running_mesh import ROOT, MeshProcess


async def test_two_processes_share_a_port_and_stop_cleanly(tmp: Path) -> None:
    async with running(tmp, edges=0) as rig:
        port = free_port()
        env = {"LINGUA_LINK_FRONTENDS": rig.front, "LINGUA_EDGE_PORT": str(port), "LINGUA_EDGE_DRAIN_MS": "10"}
        edges = [MeshProcess("edge", f"edge-{number}", tmp, env) for number in range(2)]
        try:
            ready = [await asyncio.to_thread(edge.wait_ready) for edge in edges]
            assert {line["kind"] for line in ready} == {"edge"} and len({line["url"] for line in ready}) == 2
            urls = [line["url"].replace("http", "ws") for line in ready]
            node = Talk(await connect(f"{urls[0]}/ws/node"))
            client = Talk(await connect(f"{urls[1]}/ws/session"))
            shared = Talk(await connect(f"ws://127.0.0.1:{port}/ws/session"))
            for talk in (client, shared):
                await talk.send(INIT)
                talk.id = (await talk.receive("session_init_ack"))["session_id"]
            await node.send(REGISTER)
            node.id = (await node.receive("node_register_ack"))["node_id"]
            for talk in (client, shared):
                await talk.utter(0)
                await node.answer(await node.receive("job_assign"))
                await talk.receive("translation_result", session_id=talk.id)
            page = await get(ready[1]["metrics_port"], "/metrics")
            assert "lingua_edge_utterances_total" in page and "lingua_link_brokers_live 1.0" in page
            codes = [await asyncio.to_thread(edge.stop) for edge in edges]
            assert codes == [0, 0]
            for talk in (node, client, shared):
                with pytest.raises(ConnectionClosed):
                    await talk.receive("anything")
                assert talk.socket.close_code == 1001
            await until(lambda: not rig.selector.nodes and not rig.selector.sessions, "the mesh knows")
        finally:
            for edge in edges:
                edge.kill()


@pytest.mark.parametrize(
    ("options", "env", "code", "text"),
    [
        (["--name", "e"], {}, 2, "link.frontends"),
        (["--name", "e{}"], {"LINGUA_LINK_FRONTENDS": "ipc:///nowhere"}, 2, "--name"),
        (["--name", "e"], {"LINGUA_LINK_FRONTENDS": "x", "LINGUA_EDGE_PORT": "many"}, 2, "port"),
        (["--name", "e"], {"LINGUA_LINK_FRONTENDS": "ipc:///tmp/none", "LINGUA_EDGE_HOST": "0.0.0.0"}, 2, "insecure"),
        (
            ["--name", "e"],
            {"LINGUA_LINK_FRONTENDS": "ipc:///tmp/none", "LINGUA_MODULES_TABLE": '{"a": {"modules": ["b"]}}'},
            2,
            "modules.table.a",
        ),
        (
            ["--name", "e"],
            {"LINGUA_LINK_FRONTENDS": "ipc:///tmp/lm-none", "LINGUA_EDGE_ANSWER_TIMEOUT_MS": "50"},
            69,
            "no broker answered",
        ),
    ],
)
def test_startup_error_is_one_line_and_an_exit_code(
    options: list[str], env: dict[str, str], code: int, text: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edge", *options],
        cwd=ROOT,
        env={"PATH": ""} | env,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    lines = done.stderr.decode().strip().splitlines()
    assert (done.returncode, len(lines)) == (code, 1), lines
    assert text in lines[0]


async def test_full_mesh_sends_backpressure_and_loses_no_utterance(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, client = await rig.node(), await rig.session()
        rig.selector.holds_credit = True
        count = 100
        for index in range(count):
            await client.utter(index, sound=b"12")
        slow = await client.receive("backpressure")
        assert slow["action"] == "SLOW_DOWN" and slow["resume_after_ms"] > 0
        rig.selector.give_credit()

        async def work() -> None:
            for _ in range(count):
                await node.answer(await node.receive("job_assign"))

        working = asyncio.create_task(work())
        for _ in range(count):
            await client.receive("translation_result")
        await working
        indices = [message["utterance_index"] for message in client.received if message["type"] == "translation_result"]
        assert sorted(indices) == list(range(count))
        assert len(rig.selector.seen_of(Dispatch)) >= count
