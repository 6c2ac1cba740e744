"""Status, commands and pairing codes of a node."""

from __future__ import annotations

import asyncio

import pytest

from linguamesh.errors import NodeRefused, Unreachable
from linguamesh.node.control import Control, ControlState, PairingRequests
from mesh.messages import node as wire


def command(name: str) -> wire.NodeControl:
    return wire.NodeControl(command=name, reason="update", deadline_ms=5_000)


def test_drain_and_resume_call_the_user_once_each() -> None:
    calls: list[Control] = []
    state = ControlState(calls.append)
    state.on_control(command("drain"))
    assert state.draining
    state.on_control(command("resume"))
    assert not state.draining
    assert calls == [Control("drain", "update", 5_000), Control("resume", "update", 5_000)]


def test_failing_callback_does_not_stop_the_node() -> None:
    def fail(control: Control) -> None:
        raise ValueError("a defect of the user's code")

    state = ControlState(fail)
    state.on_control(command("drain"))
    assert state.draining


def test_degraded_status_does_not_end_a_drain() -> None:
    state = ControlState(None)
    state.on_control(command("drain"))
    state.on_status(wire.NodeStatus(node_id="n-1", status="degraded", reason=None, timestamp=1))
    assert (state.status, state.draining) == ("degraded", True)
    state.on_status(wire.NodeStatus(node_id="n-1", status="ready", reason=None, timestamp=1))
    assert not state.draining


class Pairing:
    """Pairing requests over a connection that accepts or drops texts."""

    def __init__(self, *, online: bool = True) -> None:
        self.sent: asyncio.Queue[str] = asyncio.Queue()
        self.online = online
        self.requests = PairingRequests(self._send)

    async def _send(self, text: str) -> bool:
        await self.sent.put(text)
        return self.online


async def test_code_is_requested_one_at_a_time() -> None:
    pairing = Pairing()
    first, second = (asyncio.create_task(pairing.requests.code("n-1")) for _ in range(2))
    await pairing.sent.get()
    assert pairing.sent.empty()
    pairing.requests.on_code(wire.PairingCodeMessage(node_id="n-1", code="111111", expires_in_ms=60_000))
    assert await first == ("111111", 60.0)
    await pairing.sent.get()
    pairing.requests.on_error(NodeRefused("SLOW_DOWN", "later"))
    with pytest.raises(NodeRefused, match="SLOW_DOWN"):
        await second


async def test_lost_connection_fails_the_request() -> None:
    pairing = Pairing()
    requesting = asyncio.create_task(pairing.requests.code("n-1"))
    await pairing.sent.get()
    pairing.requests.on_disconnected()
    with pytest.raises(Unreachable, match="the connection is lost"):
        await requesting
    pairing.requests.on_disconnected()  # without a request: no effect


async def test_request_without_a_connection_fails_at_once() -> None:
    with pytest.raises(Unreachable, match="no connection now"):
        await Pairing(online=False).requests.code("n-1")
