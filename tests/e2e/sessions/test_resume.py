"""A session resumes: on another connection, on another edge, after its edge died. Real processes, raw sockets."""

from __future__ import annotations

import asyncio

from lua.store.sessions import PAGE_MAX
from tests.support.clients.raw_sessions import PIECES, abort, ended, opened
from tests.support.clients.sdk import Worker, at_once, held_by, workers
from tests.support.conditions import until
from tests.support.processes.running_mesh import RunningMesh

#: More than one page of mail holds.
LETTERS = 2 * PAGE_MAX + 1


async def test_session_resumes_at_another_edge_while_its_job_runs(redis_server, mesh_dir) -> None:
    gate = asyncio.Event()
    worker = Worker("n-1", held_by(gate))
    with RunningMesh(mesh_dir, redis_server.url, edges=3) as mesh:
        async with workers(mesh.url("edge-2"), worker):
            client, ack = await opened(mesh.url("edge-0"))
            await client.chunk(0, PIECES[0], is_final=True)
            await until(lambda: worker.jobs, "the job is at its node")
            abort(client)
            resumed = {"resume_token": ack["resume_token"], "last_index": -1, "last_seq": -1}
            client, again = await opened(mesh.url("edge-1"), **resumed)
            assert (again["session_id"], again["resumed"], again["lost"]) == (ack["session_id"], True, False)
            assert (again["next_utterance_index"], again["resend_from_seq"]) == (0, 0)
            assert again["trace_id"] == ack["trace_id"]
            await client.chunk(0, PIECES[0], is_final=True)
            await client.chunk(1, PIECES[1], is_final=True)
            await until(lambda: len(worker.jobs) == 2, "the second one is there too")
            gate.set()
            assert [(await ended(client, index))["utterance_index"] for index in (0, 1)] == [0, 1]
            assert [job.utterance_index for job in worker.jobs] == [0, 1], "no job was made twice"
            await client.close()


async def test_results_of_a_detached_session_are_in_its_mail(redis_server, mesh_dir) -> None:
    gate = asyncio.Event()
    worker = Worker("n-1", held_by(gate))
    with RunningMesh(mesh_dir, redis_server.url, edges=3) as mesh:
        async with workers(mesh.url("edge-2"), worker, max_jobs=32):
            client, ack = await opened(mesh.url("edge-0"))
            for seq in range(LETTERS):
                await client.chunk(seq, PIECES[seq], is_final=True)
            await until(lambda: len(worker.jobs) == LETTERS, "the jobs are at their node")
            mesh.kill("edge-0")
            gate.set()

            async def parked() -> bool:
                return mesh.metric("lingua_selector_parked_total", "result") >= LETTERS

            await until(parked, "the results are in the mail")
            resumed = {"resume_token": ack["resume_token"], "last_index": -1, "last_seq": -1}
            client, again = await opened(mesh.url("edge-1"), **resumed)
            assert (again["next_utterance_index"], again["resend_from_seq"]) == (LETTERS, LETTERS) and again["resumed"]
            results = [await ended(client, index) for index in range(LETTERS)]
            assert [result["last_seq"] for result in results] == list(range(LETTERS))
            await client.chunk(LETTERS, PIECES[LETTERS], is_final=True)
            await ended(client, LETTERS)
            assert len(worker.jobs) == LETTERS + 1
            await client.close()


async def test_second_connection_takes_over_at_this_and_another_edge(redis_server, mesh_dir) -> None:
    worker = Worker("n-1", at_once)
    with RunningMesh(mesh_dir, redis_server.url, edges=2) as mesh:
        async with workers(mesh.url("edge-1"), worker):
            first, ack = await opened(mesh.url("edge-0"))
            await first.chunk(0, PIECES[0], is_final=True)
            await ended(first, 0)
            await first.chunk(1, PIECES[1])  # half an utterance
            resumed = {"resume_token": ack["resume_token"], "last_index": 0, "last_seq": 0}
            second, again = await opened(mesh.url("edge-0"), **resumed)
            assert again["resumed"] and again["next_utterance_index"] == 1
            assert again["resend_from_seq"] == 2, "this edge has the half still"
            assert (await first.receive("error"))["code"] == "SESSION_SUPERSEDED"
            await first.socket.wait_closed()
            assert first.socket.close_code == 4009
            await second.chunk(2, PIECES[2], is_final=True)
            await ended(second, 1)
            assert worker.jobs[1].audio == PIECES[1] + PIECES[2]
            resumed = {**resumed, "last_index": 1, "last_seq": 2}
            third, again = await opened(mesh.url("edge-1"), **resumed)
            assert again["resumed"] and (again["next_utterance_index"], again["resend_from_seq"]) == (2, 3)
            assert (await second.receive("error"))["code"] == "SESSION_SUPERSEDED"
            await second.socket.wait_closed()
            await third.chunk(3, PIECES[3], is_final=True)
            await ended(third, 2)
            await third.close()


async def test_unknown_token_opens_a_new_session_marked_as_lost(redis_server, mesh_dir) -> None:
    with RunningMesh(mesh_dir, redis_server.url, edges=1) as mesh:
        client, ack = await opened(mesh.url("edge-0"))
        for token in (ack["resume_token"] + "x", "s-0000000000.secret", "nonsense", "{c01}.x"):
            other, again = await opened(mesh.url("edge-0"), resume_token=token, last_index=4, last_seq=40)
            assert (again["resumed"], again["lost"]) == (False, True)
            assert again["session_id"] != client.id and "next_utterance_index" not in again
            await other.close()
        await client.send({"type": "client_heartbeat", "session_id": client.id, "timestamp": 1})
        await client.receive("server_heartbeat")
        await client.close()


async def test_unacknowledged_result_is_redelivered(redis_server, mesh_dir) -> None:
    """The client never acknowledged it, so it may never have arrived: here, and at another edge."""
    worker = Worker("n-1", at_once)
    with RunningMesh(mesh_dir, redis_server.url, edges=2) as mesh:
        async with workers(mesh.url("edge-1"), worker):
            client, ack = await opened(mesh.url("edge-0"))
            await client.chunk(0, PIECES[0], is_final=True)
            await client.receive("translation_result", utterance_index=0)  # not acknowledged
            resumed = {"resume_token": ack["resume_token"], "last_index": -1, "last_seq": -1}
            for edge in ("edge-0", "edge-1"):
                abort(client)
                client, again = await opened(mesh.url(edge), **resumed)
                if again["next_utterance_index"] == 0:
                    await client.chunk(0, PIECES[0], is_final=True)  # the mesh asks for it
                again = await client.receive("translation_result", utterance_index=0)
                assert again["text_translated"] == f"{client.id}/0"
            assert len(worker.jobs) == 1, "it was done once"
            await client.close()
