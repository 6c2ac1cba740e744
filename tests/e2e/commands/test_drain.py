"""Draining a node by the command: no new work, a deadline, what is left goes elsewhere, and back again."""

from __future__ import annotations

import asyncio
import json
import subprocess

from websockets.asyncio.client import connect

from tests.support.clients.sdk import AUDIO, Worker, at_once, held_by, sessions, status_of, workers
from tests.support.conditions import until
from tests.support.fakes.original_node import receive, register_node
from tests.support.processes.lingua_command import lingua
from tests.support.processes.running_mesh import PATIENT, RunningMesh


async def drain(mesh: RunningMesh, node_id: str, *options: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(lingua, "node", "drain", node_id, "--url", mesh.url("edge-1"), *options)


async def test_draining_node_finishes_its_job_and_gets_no_new_one(redis_server, mesh_dir) -> None:
    gate = asyncio.Event()
    leaving, staying = Worker("node-a", held_by(gate)), Worker("node-b", at_once)
    env = {**PATIENT, "LINGUA_EDGE_RECONNECT_GRACE_MS": "300"}
    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        async with workers(mesh.url("edge-0"), leaving) as [node], sessions(4, mesh.url("edge-1")) as speakers:
            first = asyncio.create_task(speakers[0].translate(AUDIO))
            await until(lambda: leaving.jobs, "node-a has a job")
            async with workers(mesh.url("edge-0"), staying):
                draining = asyncio.create_task(drain(mesh, "node-a", "--deadline", "60", "--reason", "update"))
                await until(lambda: is_status(mesh, "node-a", "draining"), "node-a is draining")
                results = await asyncio.gather(*(s.translate(AUDIO) for s in speakers[1:] for _ in range(5)))
                assert {result.text_asr for result in results} == {"node-b#1"}
                gate.set()
                assert (await first).text_asr == "node-a#1"
                done = await draining
                assert (done.returncode, done.stderr) == (0, "")
                assert done.stdout.splitlines()[-1] == "node-a: draining, empty"
                assert "node-a: draining, 1 job left ..." in done.stdout.splitlines()
                assert node.is_registered
                resumed = await drain(mesh, "node-a", "--resume")
                assert (resumed.returncode, resumed.stdout) == (0, "node-a: ready, takes work again\n")
            # Alone again: while the other is there it need not be chosen, because its first job took so long.
            await until(lambda: gets_work(speakers, leaving), "node-a gets work again")
    assert len(leaving.jobs) > 1


async def test_jobs_left_at_the_deadline_move_to_other_nodes(redis_server, mesh_dir) -> None:
    """Nothing but the drain's deadline can explain that the job moves: all other timeouts are ten minutes."""
    env = {**PATIENT, "LINGUA_EDGE_RECONNECT_GRACE_MS": "600000", "LINGUA_JOB_DISPATCHED_TIMEOUT_MS": "600000"}
    leaving, staying = Worker("node-a", held_by(asyncio.Event())), Worker("node-b", at_once)
    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        async with workers(mesh.url("edge-0"), leaving), sessions(1, mesh.url("edge-1")) as [session]:
            waiting = asyncio.create_task(session.translate(AUDIO))
            await until(lambda: leaving.jobs, "node-a has the job")
            async with workers(mesh.url("edge-1"), staying):
                done = await drain(mesh, "node-a", "--deadline", "1", "--json")
                result = await waiting
                await until(lambda: leaving.cancelled, "the attempt of node-a is cancelled")
    assert result.text_asr == "node-b#2"
    assert (done.returncode, json.loads(done.stdout)["used"]) == (0, 0)


async def test_drained_node_receives_node_control(redis_server, mesh_dir) -> None:
    with RunningMesh(mesh_dir, redis_server.url) as mesh:
        async with connect(f"{mesh.url('edge-0')}/ws/node") as socket:
            node_id = await register_node(socket)
            await until(lambda: is_status(mesh, node_id, "ready"), "the node is ready")
            done = await drain(mesh, node_id, "--reason", "update")
            control = await receive(socket, "node_control")
            assert (control["command"], control["reason"]) == ("drain", "update")
            while (await receive(socket, "node_status"))["status"] != "draining":
                pass
            await drain(mesh, node_id, "--resume")
            assert (await receive(socket, "node_control"))["command"] == "resume"
    assert done.returncode == 0


async def test_unknown_node_cannot_be_drained(redis_server, mesh_dir) -> None:
    with RunningMesh(mesh_dir, redis_server.url, edges=2, selectors=1) as mesh:
        done = await drain(mesh, "node-none")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: the mesh knows no node node-none\n"


async def is_status(mesh: RunningMesh, node_id: str, status: str) -> bool:
    return await status_of(mesh.operator(), node_id) == status


async def gets_work(speakers: list, worker: Worker) -> bool:
    """Speak once in each session; True once the worker had one more job than its first."""
    await asyncio.gather(*(session.translate(AUDIO) for session in speakers))
    return len(worker.jobs) > 1
