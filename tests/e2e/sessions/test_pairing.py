"""A client that presents a node's code: its speech goes to that node, as long as it can."""

from __future__ import annotations

import asyncio

import pytest

from linguamesh.errors import SessionError
from linguamesh.session import Session
from tests.support.clients.sdk import AUDIO, Worker, at_once, workers
from tests.support.conditions import DEADLINE_S, until
from tests.support.processes.running_mesh import RunningMesh


async def test_paired_session_prefers_its_node_and_a_code_is_used_once(redis_server, mesh_dir) -> None:
    of = [Worker(f"n-{number}", at_once) for number in range(4)]
    with RunningMesh(mesh_dir, redis_server.url, edges=2) as mesh:
        async with workers(mesh.url("edge-0"), *of) as nodes:
            code, seconds = await nodes[2].pairing_code()
            assert len(code) == 6 and code.isdigit() and seconds > 200
            options = {"src": "en", "tgt": "es", "pairing_code": code}
            async with Session(mesh.url("edge-1"), **options) as session:
                assert session.assigned_node_id == "n-2"
                for _ in range(6):
                    await session.translate(AUDIO)
                assert [len(worker.jobs) for worker in of] == [0, 0, 6, 0]
                with pytest.raises(SessionError) as error:
                    async with Session(mesh.url("edge-0"), **options):
                        pass
                assert error.value.code == "INVALID_PAIRING_CODE", "it was used"
                await nodes[2].close()
                await asyncio.wait_for(session.translate(AUDIO), DEADLINE_S)
                assert await until(lambda: sum(len(worker.jobs) for worker in of) == 7, "another node takes over")
