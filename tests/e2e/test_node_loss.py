"""A node that goes away with a job: the job moves to another node, and a result of the first one changes nothing."""

from __future__ import annotations

import asyncio

from websockets.asyncio.client import connect

from linguamesh.session import Session
from tests.e2e.test_crossing import AUDIO, nodes_on
from tests.e2e.test_original import REGISTER, heartbeat, receive, send
from tests.running_mesh import RunningMesh


async def test_a_job_moves_when_its_node_stays_away(redis_server, mesh_dir) -> None:
    env = {"LINGUA_EDGE_RECONNECT_GRACE_MS": "200"}
    languages = {"asr_languages": ["en"], "semantic_languages": ["es"], "tts_languages": ["es"]}
    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        async with Session(mesh.url("edge-1"), src="en", tgt="es") as session:
            async with connect(f"{mesh.url('edge-0')}/ws/node") as doomed:
                await send(doomed, {**REGISTER, "language_capabilities": languages})
                ack = await receive(doomed, "node_register_ack")
                beat = {**heartbeat(ack["node_id"]), "language_capabilities": languages}
                await send(doomed, beat)
                waiting = asyncio.create_task(session.translate(AUDIO, timeout=30))
                first = await receive(doomed, "job_assign")
            async with nodes_on(mesh.url("edge-1"), 1):
                result = await waiting
    assert first["attempt_id"] == 1
    assert result.text_asr == f"{session.session_id}/0"
