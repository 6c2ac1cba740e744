"""Pairing through real sockets: nodes that request codes, and codes that a client redeems."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edge.pairing import PairingClient, client_digest
from mesh.errors import ErrorCode, PeerError
from mesh.frames import PairingAsk, PairingUse
from mesh.ids import is_id
from tests.support.processes.edge import Rig, Talk, running, until

CLIENT = client_digest("127.0.0.1")
#: No call is retried meanwhile.
LONG_MS = 4_000


def request(node: Talk, **fields: Any) -> dict[str, Any]:
    return {"type": "pairing_code_request", "node_id": node.id, **fields}


# --- nodes ----------------------------------------------------------------------------------------


async def test_node_gets_a_code(tmp: Path) -> None:
    async with running(tmp, resend_ms=LONG_MS) as rig:
        node = await rig.node(node_id="node-1")
        for number in (1, 2):
            await node.send(request(node))
            code = await node.receive("pairing_code")
            assert (code["node_id"], code["code"], code["expires_in_ms"]) == ("node-1", f"10000{number}", 300_000)
        first, second = rig.selector.seen_of(PairingAsk)
        assert (first.edge, first.node_id) == (rig.edges[0].link.identity, "node-1")
        assert int(second.ref) > int(first.ref), "by which a late copy of the first is known"


async def test_node_gets_codes_for_itself_only(tmp: Path) -> None:
    async with running(tmp) as rig:
        stranger = await rig.talk("/ws/node")
        await stranger.send({"type": "pairing_code_request", "node_id": "node-1"})
        await stranger.receive("error", code="NOT_REGISTERED")
        node = await rig.node(node_id="node-1")
        await node.send(request(node, node_id="node-2"))
        await node.receive("error", code="ID_MISMATCH")
        await node.send({"type": "pairing_code_request"})
        await node.receive("error", code="INVALID_MESSAGE")
        assert rig.selector.seen_of(PairingAsk) == []
        await node.send(request(node))
        await node.receive("pairing_code", node_id="node-1")


@pytest.mark.parametrize("fault", [ErrorCode.SLOW_DOWN, ErrorCode.NOT_REGISTERED])
async def test_refused_code_request_is_an_error_and_may_be_sent_again(tmp: Path, fault: ErrorCode) -> None:
    async with running(tmp) as rig:
        node = await rig.node()
        rig.selector.fault = fault
        await node.send(request(node))
        error = await node.receive("error")
        assert (error["code"], error["message"]) == (fault.name, f"refused: {fault.name}")
        rig.selector.fault = None
        await node.send(request(node))
        await node.receive("pairing_code")


async def test_node_has_one_pending_code_request(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, other = await rig.node(), await rig.node()
        rig.selector.mute = lambda frame: isinstance(frame, PairingAsk)
        await node.send(request(node))
        await until(lambda: rig.selector.seen_of(PairingAsk) != [], "the first request is pending")
        await node.send(request(node))
        await node.receive("error", code="SLOW_DOWN")
        await other.send(request(other))
        await until(
            lambda: {ask.node_id for ask in rig.selector.seen_of(PairingAsk)} == {node.id, other.id}, "both ask"
        )
        rig.selector.mute = lambda frame: False
        await node.receive("pairing_code", node_id=node.id)
        await other.receive("pairing_code", node_id=other.id)
        refs = {ask.ref for ask in rig.selector.seen_of(PairingAsk)}
        assert len(refs) == 2, "a question that is repeated is the same question"
        await node.send(request(node))
        await node.receive("pairing_code")


async def test_code_request_without_a_reply_is_an_error(tmp: Path) -> None:
    async with running(tmp, answer_timeout_ms=300) as rig:
        node = await rig.node()
        rig.selector.mute = lambda frame: isinstance(frame, PairingAsk)
        await node.send(request(node))
        await node.receive("error", code="SCHEDULER_DEPENDENCY_DOWN")
        rig.selector.mute = lambda frame: False
        await node.send(request(node))
        await node.receive("pairing_code")


async def test_reply_for_a_disconnected_node_is_dropped(tmp: Path) -> None:
    async with running(tmp) as rig:
        node = await rig.node(node_id="node-1")
        rig.selector.mute = lambda frame: isinstance(frame, PairingAsk)
        await node.send(request(node))
        await until(lambda: rig.selector.seen_of(PairingAsk) != [], "the request is pending")
        await node.close()
        rig.selector.mute = lambda frame: False
        again = await rig.node(node_id="node-1")
        await again.send(request(again))
        await again.receive("pairing_code", node_id="node-1")


# --- clients --------------------------------------------------------------------------------------


async def a_code(rig: Rig) -> str:
    node = await rig.node(node_id="node-1")
    await node.send(request(node))
    return str((await node.receive("pairing_code"))["code"])


async def test_redeemed_code_names_its_node(tmp: Path) -> None:
    async with running(tmp, resend_ms=LONG_MS) as rig:
        pairing, code = PairingClient(rig.edges[0].link), await a_code(rig)
        assert await pairing.use(code, CLIENT) == "node-1"
        with pytest.raises(PeerError) as refused:
            await pairing.use(code, CLIENT)
        assert refused.value.code is ErrorCode.INVALID_PAIRING_CODE
        first, second = rig.selector.seen_of(PairingUse)
        assert (first.code, first.client, first.edge) == (code, CLIENT, rig.edges[0].link.identity)
        assert first.use != second.use and is_id(first.use), "each is a use of its own"


async def test_use_whose_reply_is_lost_is_retried_as_the_same_use(tmp: Path) -> None:
    async with running(tmp) as rig:
        pairing, code = PairingClient(rig.edges[0].link), await a_code(rig)
        rig.selector.mute = lambda frame: isinstance(frame, PairingUse)
        using = asyncio.create_task(pairing.use(code, CLIENT))
        await until(lambda: len(rig.selector.seen_of(PairingUse)) >= 2, "it is repeated")
        rig.selector.mute = lambda frame: False
        assert await using == "node-1"
        assert len({(frame.ref, frame.use) for frame in rig.selector.seen_of(PairingUse)}) == 1


@pytest.mark.parametrize("fault", [ErrorCode.SLOW_DOWN, ErrorCode.SCHEDULER_DEPENDENCY_DOWN])
async def test_refused_code_is_an_error_for_the_client(tmp: Path, fault: ErrorCode) -> None:
    async with running(tmp) as rig:
        rig.selector.fault = fault
        with pytest.raises(PeerError) as refused:
            await PairingClient(rig.edges[0].link).use("123456", CLIENT)
        assert refused.value.code is fault


async def test_code_without_a_reply_is_an_error_for_the_client(tmp: Path) -> None:
    async with running(tmp, answer_timeout_ms=300) as rig:
        rig.selector.mute = lambda frame: isinstance(frame, PairingUse)
        with pytest.raises(PeerError) as refused:
            await PairingClient(rig.edges[0].link).use("123456", CLIENT)
        assert refused.value.code is ErrorCode.SCHEDULER_DEPENDENCY_DOWN
