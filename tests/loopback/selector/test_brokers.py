"""A selector with several brokers: what it answers, and by which of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from linguamesh.local.redis_server import RedisServer
from mesh.frames import (
    Assign,
    AssignFailed,
    Cancel,
    CancelJob,
    Frame,
    JobDone,
    NodeHeartbeat,
    NodeLoad,
    NodeRegister,
    NodeRegistered,
    NodeStale,
    Push,
    Refused,
    ResultAcks,
    SessionClaim,
    SessionClaimed,
    Undone,
)
from mesh.link.link import Received
from tests.support.builders.selector import CAPS, job
from tests.support.conditions import DEADLINE_S
from tests.support.processes.selector import FakeEdge, Rig

BROKERS = 3


async def ask(edge: FakeEdge, front: str, question: Frame, kind: type[Frame]) -> Received:
    """Ask by one broker, again and again, until there is an answer of this kind."""
    edge.received.clear()
    async with asyncio.timeout(DEADLINE_S):
        for tick in range(10**6):
            if tick % 25 == 0:
                assert edge.link.send("", 0, question, b"work", b"audio", prefer=front) == front
            for message in edge.received:
                if isinstance(message.frame, kind):
                    return message
            await asyncio.sleep(0.01)
    raise AssertionError("unreachable")


async def until_all_are_linked(edge: FakeEdge, fronts: list[str]) -> None:
    """Every broker lives in the eyes of the edge and of the selector."""
    async with asyncio.timeout(DEADLINE_S):
        while edge.link.brokers_live() < len(fronts):  # noqa: ASYNC110 - the link has no event for it
            await asyncio.sleep(0.01)
    claim = SessionClaim("c", "s-0", edge.identity, 0, "", "en", "es")
    for front in fronts:
        await ask(edge, front, claim, SessionClaimed)


async def test_answers_go_by_the_broker_that_brought_the_question(tmp: Path, redis_server: RedisServer) -> None:
    rig = Rig(tmp, redis_server)
    fronts, backs = ([f"ipc://{tmp}/{side}{number}" for number in range(BROKERS)] for side in ("f", "b"))
    try:
        for number in range(BROKERS):
            environ = {"LINGUA_LINK_FRONTENDS": fronts[number], "LINGUA_LINK_BACKENDS": backs[number]}
            rig.spawn("broker", f"b{number}", **environ)
        rig.spawn("selector", "s1", LINGUA_LINK_BACKENDS=",".join(backs))
        edge = FakeEdge("a", fronts, rig.config.mesh.cells)
        rig.edges.append(edge)
        await edge.start()
        await until_all_are_linked(edge, fronts)
        for number, front in enumerate(fronts):
            await converse(edge, front, number)
    finally:
        await rig.close_edges()
        rig.end(list(rig.processes))


async def converse(edge: FakeEdge, front: str, number: int) -> None:
    """Every question that a selector answers."""
    me, node_id = edge.identity, f"node-{number}"

    async def asked(question: Frame, kind: type[Frame]) -> Frame:
        message = await ask(edge, front, question, kind)
        assert message.broker == front, kind.__name__
        return message.frame

    await asked(SessionClaim("c", f"s-{number}", me, 0, "", "en", "es"), SessionClaimed)
    registered = await asked(NodeRegister(f"n{number}", node_id, me, CAPS), NodeRegistered)
    assert isinstance(registered, NodeRegistered)
    await asked(NodeHeartbeat(node_id, me, 1, NodeLoad()), NodeStale)
    edge.send_record(node_id, NodeHeartbeat(node_id, me, registered.epoch, NodeLoad()))
    first = job(request_id=f"r-{number}", edge=me, session_id=f"s-{number}")
    await asked(msgspec.structs.replace(first, request_id=f"x-{number}", src_lang="xx"), Refused)
    assign = await asked(first, Assign)
    assert isinstance(assign, Assign)
    done = JobDone(assign.job_id, 1, assign.node_id, me, assign.request_id, assign.session_id, 0, "", True)
    await asked(done, Push)
    await asked(msgspec.structs.replace(done, attempt=2), ResultAcks)
    second = await asked(msgspec.structs.replace(first, request_id=f"q-{number}"), Assign)
    assert isinstance(second, Assign)
    await asked(Cancel(second.request_id, second.job_id, 1, second.node_id, second.session_id, "closed"), CancelJob)
    third = await asked(msgspec.structs.replace(first, request_id=f"p-{number}"), Assign)
    assert isinstance(third, Assign)
    await asked(AssignFailed(third.job_id, 1, third.node_id, 0, third.request_id, me, "job_lost"), Undone)
