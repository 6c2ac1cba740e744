"""Operators' commands by /ws/control: carried out by a selector, once, and only from this machine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from mesh.frames import Query
from mesh.loopback import is_loopback
from tests.support.conditions import DEADLINE_S
from tests.support.processes.edge import Talk, running


@pytest.mark.parametrize(
    ("command", "kind", "params"),
    [
        ({"type": "drain", "node_id": "n"}, "drain", {"node_id": ["n"], "resume": ["false"]}),
        (
            {"type": "drain", "node_id": "n", "deadline_ms": 5_000, "reason": "update"},
            "drain",
            {"node_id": ["n"], "resume": ["false"], "deadline_ms": ["5000"], "reason": ["update"]},
        ),
        ({"type": "drain", "node_id": "n", "resume": True}, "drain", {"node_id": ["n"], "resume": ["true"]}),
        ({"type": "pair", "node_id": "n"}, "pair", {"node_id": ["n"]}),
        (
            {"type": "weights_set", "weights": {"busy": 0.5}, "expected_version": 3, "by": "me"},
            "weights_set",
            {"weights": ['{"busy":0.5}'], "expected_version": ["3"], "by": ["me"]},
        ),
    ],
)
async def test_command_is_sent_to_a_selector(
    tmp: Path, command: dict[str, Any], kind: str, params: dict[str, list[str]]
) -> None:
    async with running(tmp) as rig:
        rig.selector.answers[kind] = (200, {"version": 4})
        operator = await rig.talk("/ws/control")
        await operator.send(command)
        assert await operator.receive("done") == {"type": "done", "status": 200, "answer": {"version": 4}}
        (asked,) = rig.selector.seen_of(Query)
        assert (asked.kind, asked.params) == (kind, params)
        rig.selector.answers[kind] = (409, {"code": "INVALID_MESSAGE", "message": "another version"})
        await operator.send(command)
        error = await operator.receive("error")
        assert (error["status"], error["code"], error["message"]) == (409, "INVALID_MESSAGE", "another version")


@pytest.mark.parametrize(
    "text",
    ["", "no json", "[]", "{}", '{"type":"reboot"}', '{"type":"drain"}', '{"type":"drain","node_id":7}',
     '{"type":"drain","node_id":"n","deadline_ms":-1}', '{"type":"weights_set","weights":[]}', b"bytes"],
)  # fmt: skip
async def test_malformed_command_is_refused_and_the_socket_stays_open(tmp: Path, text: str | bytes) -> None:
    async with running(tmp) as rig:
        rig.selector.answers["drain"] = (200, {"status": "draining"})
        operator = await rig.talk("/ws/control")
        await operator.send(text)
        error = await operator.receive("error")
        assert (error["status"], error["code"]) == (400, "INVALID_MESSAGE")
        await operator.send({"type": "drain", "node_id": "n"})
        await operator.receive("done")


async def test_command_is_not_retried_without_a_reply(tmp: Path) -> None:
    async with running(tmp, page_timeout_ms=1_000) as rig:
        rig.selector.mute = lambda frame: isinstance(frame, Query)
        operator = await rig.talk("/ws/control")
        await operator.send({"type": "weights_set", "weights": {}})
        error = await operator.receive("error")
        assert (error["status"], error["code"]) == (504, "SCHEDULER_DEPENDENCY_DOWN")
        assert len(rig.selector.seen_of(Query)) == 1, "it may have taken effect"


async def test_command_returned_by_a_broker_is_retried(tmp: Path) -> None:
    async with running(tmp) as rig:
        rig.selector.answers["drain"] = (200, {"status": "draining"})
        operator = await rig.talk("/ws/control")
        client = await rig.session()
        rig.selector.holds_credit = True
        rig.selector.mute = lambda frame: not isinstance(frame, Query)
        for index in range(80):  # fill the selector's window
            await client.utter(index, sound=b"12")
        await client.receive("backpressure")
        await operator.send({"type": "drain", "node_id": "n"})
        rig.selector.mute = lambda frame: False
        rig.selector.give_credit()
        await operator.receive("done")
        assert len(rig.selector.seen_of(Query)) == 1


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://127.0.0.1"}, {"X-Forwarded-For": "10.0.0.1"}, {"Forwarded": "for=10.0.0.1"}],
)
async def test_command_of_a_browser_or_proxy_is_refused(tmp: Path, headers: dict[str, str]) -> None:
    async with running(tmp) as rig:
        with pytest.raises(InvalidStatus) as refused:
            await rig.talk("/ws/control", additional_headers=headers)
        assert refused.value.response.status_code == 403


@pytest.mark.parametrize(
    ("host", "allowed"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False),
     ("::ffff:10.0.0.1", False), ("fe80::1", False), ("", False)],
)  # fmt: skip
def test_only_loopback_addresses_may_command(host: str, allowed: bool) -> None:
    assert is_loopback(host) is allowed


async def test_operators_and_their_messages_are_bounded(tmp: Path) -> None:
    async with running(tmp, control_sockets_max=1, control_message_bytes_max=2_048) as rig:
        operator = await rig.talk("/ws/control")
        await operator.send({"type": "drain", "node_id": "n"})
        await operator.receive("error", status=400)
        with pytest.raises(InvalidStatus) as refused:
            await rig.talk("/ws/control")
        assert refused.value.response.status_code == 503
        await operator.send(json.dumps({"type": "drain", "node_id": "n" * 4_096}))
        with pytest.raises(ConnectionClosed):
            await operator.receive("anything")
        assert operator.socket.close_code == 1009


async def test_operator_socket_is_closed_when_the_edge_stops(tmp: Path) -> None:
    async with running(tmp, edges=0) as rig:
        edge = await rig.start_edge("going")
        operator = Talk(await connect(f"ws://127.0.0.1:{edge.server.own_port}/ws/control"))
        await asyncio.wait_for(edge.stop(), DEADLINE_S)
        with pytest.raises(ConnectionClosed):
            await operator.receive("anything")
        assert operator.socket.close_code == 1001
