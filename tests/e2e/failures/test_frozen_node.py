"""A node that is frozen with a job and resumes after its lease: the client gets one result, the late one is dropped."""

from __future__ import annotations

import asyncio
import time

from mesh.messages import client
from tests.support.clients.sdk import AUDIO, Worker, at_once, sessions, workers
from tests.support.conditions import until
from tests.support.processes.fleet import events_of
from tests.support.processes.running_mesh import PATIENT, RunningMesh

LEASE_MS = 1_500
ENV = {
    **PATIENT,
    "LINGUA_JOB_LEASE_MS": str(LEASE_MS),
    # Its socket stays open, so only this moves the job.
    "LINGUA_JOB_DISPATCHED_TIMEOUT_MS": "3000",
    "LINGUA_EDGE_RECONNECT_GRACE_MS": "60000",
}


async def test_a_frozen_nodes_late_result_is_counted_and_dropped(redis_server, mesh_dir) -> None:
    events, gate = mesh_dir / "events", mesh_dir / "gate"
    events_received: list[client.ServerMessage] = []
    other = Worker("node-b", at_once)
    with RunningMesh(mesh_dir, redis_server.url, env=ENV) as mesh:
        options = ("--events", str(events), "--gate", str(gate))
        frozen = mesh.start_json_node("node-a", mesh.url("edge-0"), *options)
        frozen.wait_ready()
        async with sessions(1, mesh.url("edge-1"), on_event=events_received.append) as [session]:
            waiting = asyncio.create_task(session.translate(AUDIO))
            await until(lambda: events_of(events, "assigned"), "node-a has the job")
            frozen.freeze()
            frozen_s = time.monotonic()
            gate.touch()  # its job ends as soon as it runs again
            async with workers(mesh.url("edge-1"), other):
                result = await waiting
                assert result.text_asr == "node-b#2"
                await until(lambda: time.monotonic() - frozen_s > 2 * LEASE_MS / 1_000, "the lease is over")
                dropped = late(mesh)
                frozen.thaw()
                await until(lambda: events_of(events, "answered"), "node-a resumes and sends its result")
                await until(lambda: late(mesh) > dropped, "the late result is counted")
                # The session still works, and the late result did not reach it.
                again = await session.translate(AUDIO)
                results = mesh.metric("lingua_edge_messages_total", 'direction="out"', 'type="translation_result"')
    assert results == 2
    assert again.utterance_index == 1
    assert not [message for message in events_received if isinstance(message, client.ErrorMessage)]
    assert other.jobs[0].attempt == 2


def late(mesh: RunningMesh) -> float:
    """Results of abandoned attempts, as the mesh counts them."""
    return mesh.metric("lingua_edge_dropped_results_total", 'reason="fenced"')
