"""What careless, slow and hostile peers can do to an edge: nothing that costs anybody else anything."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from mesh.frames import NodeHeartbeat, NodeOffline, NodeRegister
from tests.support.processes.edge import INIT, REGISTER, Rig, Talk, get, running, until

BEAT: dict[str, Any] = {
    "type": "node_heartbeat",
    "timestamp": 1,
    "resource_usage": {"cpu_percent": 1.0, "mem_percent": 1.0, "running_jobs": 0},
    "installed_services": [],
    "capability_by_type": [{"type": "asr", "ready": True}],
}
IDS = {"attempt_id": 1, "node_id": "n", "session_id": "s", "trace_id": "t"}
RESULT: dict[str, Any] = {"type": "job_result", **IDS, "utterance_index": 0, "success": True}

#: What a client may send before session_init, and the code it gets.
BAD_FROM_CLIENTS: list[tuple[str | bytes, str]] = [
    ("", "INVALID_MESSAGE"),
    ("{", "INVALID_MESSAGE"),
    ("[]", "INVALID_MESSAGE"),
    ("null", "INVALID_MESSAGE"),
    ('"text"', "INVALID_MESSAGE"),
    ("{}", "INVALID_MESSAGE"),
    ('{"type": 7}', "INVALID_MESSAGE"),
    ('{"type": "nonsense"}', "INVALID_MESSAGE"),
    ('{"type": "session_init"}', "INVALID_MESSAGE"),
    ('{"type": "utterance", "session_id": 3}', "INVALID_MESSAGE"),
    ("[" * 5_000, "INVALID_MESSAGE"),
    ('{"type": "client_heartbeat", "session_id": "x", "timestamp": 1e400}', "INVALID_MESSAGE"),
    (b"\x01\x02\x03", "INVALID_MESSAGE"),
    (b"\x01\x03" + bytes(10) + b"s-0" + bytes(4), "INVALID_SESSION"),
    (json.dumps({**INIT, "tgt_lang": "{c01}"}), "INVALID_MESSAGE"),
    (json.dumps({**INIT, "tenant_id": "a{b}"}), "INVALID_ID"),
    ('{"type": "client_heartbeat", "session_id": "s-0", "timestamp": 1}', "INVALID_SESSION"),
    ('{"type": "session_close", "session_id": "s-0", "reason": "x"}', "INVALID_SESSION"),
    ('{"type": "audio_chunk", "session_id": "s-0", "seq": 0, "is_final": true}', "INVALID_SESSION"),
    ('{"type": "result_ack", "session_id": "s-0", "utterance_index": 0}', "INVALID_SESSION"),
    ('{"type": "room_create", "client_ts": 1}', "INVALID_SESSION"),
    ('{"type": "webrtc_offer", "room_code": "1", "to": "s", "sdp": {}}', "INVALID_SESSION"),
]

#: What a node may send before node_register, and the code it gets.
BAD_FROM_NODES: list[tuple[str | bytes, str]] = [
    ("nothing", "INVALID_MESSAGE"),
    (b"\xff\xfe", "INVALID_MESSAGE"),
    ('{"type": "node_register"}', "INVALID_MESSAGE"),
    (json.dumps({**REGISTER, "node_id": "a b"}), "INVALID_ID"),
    (json.dumps({**REGISTER, "node_id": "{c00}"}), "INVALID_ID"),
    (json.dumps({**REGISTER, "node_id": "n" * 65}), "INVALID_ID"),
    (json.dumps({**REGISTER, "hardware": {"cpu_cores": 1, "memory_gb": 1, "gpus": []}}), "NO_GPU_AVAILABLE"),
    (json.dumps({**REGISTER, "capability_schema_version": "1.0"}), "INVALID_CAPABILITY_SCHEMA"),
    (json.dumps({**REGISTER, "language_capabilities": {"asr_languages": []}}), "MISSING_LANG_CAPABILITIES"),
    (json.dumps({**BEAT, "node_id": "n"}), "NOT_REGISTERED"),
    (json.dumps({**RESULT, "job_id": "job-00-1"}), "NOT_REGISTERED"),
    (json.dumps({"type": "job_ack", **IDS, "job_id": "job-00-1"}), "NOT_REGISTERED"),
]


async def test_bad_input_of_clients_gets_a_typed_error_and_the_connection_stays_open(tmp: Path) -> None:
    async with running(tmp) as rig:
        talk = await rig.talk("/ws/session")
        for message, code in BAD_FROM_CLIENTS:
            await talk.send(message)
            error = await talk.receive("error")
            assert error["code"] == code, (message[:60], error)
            assert error["message"] and error["details"]["number"]
        await talk.send(INIT)
        talk.id = (await talk.receive("session_init_ack"))["session_id"]
        for fields, code in (
            ({"session_id": "s-other"}, "ID_MISMATCH"),
            ({"audio": "not base64!"}, "INVALID_AUDIO"),
            ({"audio": ""}, "INVALID_AUDIO"),
            ({"tgt_lang": "e n"}, "INVALID_MESSAGE"),
        ):
            await talk.utter(0, **fields)
            error = await talk.receive("error")
            assert error["code"] == code and error["details"]["utterance_index"] == 0
        await talk.send(
            {"type": "tts_play_ended", "session_id": talk.id, "trace_id": "t", "group_id": "g", "ts_end_ms": 1}
        )
        await talk.send({"type": "client_heartbeat", "session_id": talk.id, "timestamp": 1})
        await talk.receive("server_heartbeat", session_id=talk.id)
        assert talk.received[-1] is not talk.received[-2] and talk.received[-2]["type"] == "error"
        await talk.send({"type": "session_close", "session_id": talk.id, "reason": "done"})
        await talk.receive("session_close_ack", session_id=talk.id)
        await talk.utter(1)
        assert (await talk.receive("error"))["code"] == "SESSION_CLOSED"
        await until(lambda: rig.selector.sessions == {}, "the session is released")


async def test_bad_input_of_nodes_gets_a_typed_error_and_the_connection_stays_open(tmp: Path) -> None:
    async with running(tmp) as rig:
        talk = await rig.talk("/ws/node")
        for message, code in BAD_FROM_NODES:
            await talk.send(message)
            error = await talk.receive("error")
            assert error["code"] == code, (message[:60], error)
        assert rig.selector.seen_of(NodeRegister) == []
        await talk.send(REGISTER)
        talk.id = (await talk.receive("node_register_ack"))["node_id"]
        for message, code in (
            ({**BEAT, "node_id": "node-OTHER"}, "ID_MISMATCH"),
            ({**REGISTER, "node_id": "node-OTHER"}, "ID_MISMATCH"),
            ({**RESULT, "job_id": "job-00-1"}, "ID_MISMATCH"),
            ({**RESULT, "job_id": "other", "node_id": talk.id}, "INVALID_ID"),
            ({**RESULT, "job_id": "job-99-1", "node_id": talk.id}, "INVALID_ID"),
            ({**RESULT, "job_id": "job-xx-1", "node_id": talk.id}, "INVALID_ID"),
            ({**RESULT, "job_id": "job-00-1", "node_id": talk.id, "session_id": "a{b"}, "INVALID_ID"),
        ):
            await talk.send(message)
            assert (await talk.receive("error"))["code"] == code, message
        await talk.send({"type": "node_error", "node_id": talk.id, "code": "X", "message": "m"})
        await talk.send({**BEAT, "node_id": talk.id})
        await until(lambda: len(rig.selector.seen_of(NodeHeartbeat)) == 1, "the good heartbeat arrives")


async def test_second_init_releases_the_first_session(tmp: Path) -> None:
    async with running(tmp) as rig:
        client = await rig.session()
        first = client.id
        await client.send(INIT)
        client.id = (await client.receive("session_init_ack"))["session_id"]
        assert client.id != first
        await until(lambda: list(rig.selector.sessions) == [client.id], "only the second session is left")
        await client.send({"type": "client_heartbeat", "session_id": first, "timestamp": 1})
        assert (await client.receive("error"))["code"] == "ID_MISMATCH"


@pytest.mark.parametrize("other_edge", [0, 1])
async def test_superseded_socket_of_a_node_does_not_affect_the_new_one(tmp: Path, other_edge: int) -> None:
    async with running(tmp, edges=2) as rig:
        old = await rig.node(edge=0, node_id="node-1")
        new = await rig.node(edge=other_edge, node_id="node-1")
        epoch = rig.selector.nodes["node-1"][1]
        if other_edge:
            await old.send({**BEAT, "node_id": "node-1"})  # the mesh answers that it is superseded
        assert (await old.receive("error"))["code"] == "NODE_SUPERSEDED"
        with pytest.raises(ConnectionClosed):
            await old.receive("anything")
        assert old.socket.close_code == 4009
        client = await rig.session()
        await client.utter(0)
        await new.answer(await new.receive("job_assign"))
        await client.receive("translation_result")
        assert rig.selector.nodes["node-1"][1] == epoch
        assert all(frame.epoch < epoch for frame in rig.selector.seen_of(NodeOffline))


async def test_late_close_of_the_old_socket_carries_its_own_epoch_only(tmp: Path) -> None:
    async with running(tmp, edges=2) as rig:
        old = await rig.node(edge=0, node_id="node-1")
        new = await rig.node(edge=1, node_id="node-1")
        await old.close()
        await until(lambda: rig.selector.seen_of(NodeOffline) != [], "the old edge says that its socket closed")
        assert "node-1" in rig.selector.nodes
        await new.send({**BEAT, "node_id": "node-1"})
        client = await rig.session()
        await client.utter(0)
        await new.answer(await new.receive("job_assign"))
        await client.receive("translation_result")


async def test_node_whose_record_expired_is_registered_again_by_the_edge(tmp: Path) -> None:
    async with running(tmp) as rig:
        node = await rig.node()
        rig.selector.nodes.clear()
        await node.send({**BEAT, "node_id": node.id})
        await until(lambda: node.id in rig.selector.nodes, "the node is registered again")
        client = await rig.session()
        await client.utter(0)
        await node.answer(await node.receive("job_assign"))
        await client.receive("translation_result")


async def test_flood_of_heartbeats_is_throttled_to_the_latest(tmp: Path) -> None:
    async with running(tmp, heartbeat_min_ms=200) as rig:
        node = await rig.node()
        for number in range(100):
            usage = {**BEAT["resource_usage"], "cpu_percent": number}
            await node.send({**BEAT, "node_id": node.id, "resource_usage": usage})

        def told() -> list[float]:
            return [frame.load.cpu_percent for frame in rig.selector.seen_of(NodeHeartbeat)]

        await until(lambda: told()[-1:] == [99.0], "the last heartbeat is passed on")
        assert told()[0] == 0.0 and len(told()) < 100


async def test_mesh_without_a_reply_is_a_typed_error(tmp: Path) -> None:
    async with running(tmp, answer_timeout_ms=300) as rig:
        rig.selector.mute = lambda frame: True
        client, node = await rig.talk("/ws/session"), await rig.talk("/ws/node")
        await client.send(INIT)
        await node.send(REGISTER)
        assert (await client.receive("error"))["code"] == "SCHEDULER_DEPENDENCY_DOWN"
        assert (await node.receive("error"))["code"] == "SCHEDULER_DEPENDENCY_DOWN"
        rig.selector.mute = lambda frame: False
        await client.send(INIT)
        await node.send(REGISTER)
        await client.receive("session_init_ack")
        await node.receive("node_register_ack")


async def test_too_many_utterances_and_too_much_audio_are_refused(tmp: Path) -> None:
    async with running(tmp, utterances_per_session_max=2, audio_kept_bytes_max=100_000) as rig:
        await rig.node()
        client = await rig.session()
        for index in range(3):
            await client.utter(index)
        assert (await client.receive("error"))["code"] == "TOO_MANY_UTTERANCES"
        other = await rig.session()
        await other.utter(0, sound=bytes(90_000))
        assert (await other.receive("error"))["code"] == "SLOW_DOWN"


async def test_oversize_messages_are_closed_with_1009(tmp: Path) -> None:
    async with running(tmp, session_message_bytes_max=10_000, node_message_bytes_max=50_000) as rig:
        for path, size in (("/ws/session", 10_001), ("/ws/node", 50_001)):
            talk = await rig.talk(path)
            await talk.send(" " * (size - 100))
            await talk.receive("error")
            await talk.send(" " * size)
            with pytest.raises(ConnectionClosed):
                await talk.receive("anything")
            assert talk.socket.close_code == 1009


async def test_paths_and_limits_of_the_listener(tmp: Path) -> None:
    async with running(tmp, connections_max=2) as rig:
        port = rig.edges[0].server.own_port
        assert (await get(port, "/health")).endswith("\r\n\r\nOK")
        assert (await get(port, "/metrics")).startswith("HTTP/1.1 200")
        for path in ("/", "/ws", "/ws/other", "/api/v1/stats", "/ws/session/"):
            assert (await get(port, path)).startswith("HTTP/1.1 404")
        assert (await get(port, "/ws/session")).startswith("HTTP/1.1 426")
        assert (await get(rig.edges[0].server.port, "/health")).startswith("HTTP/1.1 200")
        talks = [await rig.talk("/ws/session"), await rig.talk("/ws/node")]
        with pytest.raises(InvalidStatus) as refused:
            await connect(rig.url("/ws/session"))
        assert refused.value.response.status_code == 503
        await talks[0].close()
        await until(lambda: rig.edges[0].server.connections == 1, "one left")
        await rig.talk("/ws/session")


async def test_idle_sockets_are_closed(tmp: Path) -> None:
    # Long enough for a busy machine to let the other session beat.
    async with running(tmp, idle_timeout_seconds=4) as rig:
        idle, busy = await rig.session(), await rig.session()

        async def beat() -> None:
            while True:
                await busy.send({"type": "client_heartbeat", "session_id": busy.id, "timestamp": 1})
                await busy.receive("server_heartbeat")
                await asyncio.sleep(0.1)

        beating = asyncio.create_task(beat())
        with pytest.raises(ConnectionClosed):
            await idle.receive("anything")
        assert idle.socket.close_code == 1001
        await until(lambda: list(rig.selector.sessions) == [busy.id], "only the idle session is released")
        beating.cancel()
        await asyncio.wait([beating])


async def test_stuck_reader_is_aborted_while_others_go_on(tmp: Path) -> None:
    async with running(tmp, send_timeout_ms=500, send_buffer_bytes_max=2 * 1024 * 1024) as rig:
        node, client = await rig.node(), await rig.session()
        stuck = await raw_session(rig)
        big = "A" * 1_000_000

        async def work() -> None:
            while True:
                job = await node.receive("job_assign")
                await node.answer(job, tts_audio=big if job["session_id"] == stuck.session_id else "QUJD")

        working = asyncio.create_task(work())
        sockets = rig.edges[0].sessions.sockets
        for index in range(12):
            await stuck.utter(index)
        for index in range(20):
            await client.utter(index)
            await client.receive("translation_result", utterance_index=index)
        await until(lambda: len(sockets) == 1, "the stuck reader is cut off")
        await until(lambda: list(rig.selector.sessions) == [client.id], "its session is released")
        await client.utter(20)
        await client.receive("translation_result", utterance_index=20)
        working.cancel()
        await asyncio.wait([working])
        stuck.close()


async def test_stopping_edge_notifies_its_peers_and_the_mesh(tmp: Path) -> None:
    async with running(tmp) as rig:
        edge = await rig.start_edge("leaving")
        rig.edges.append(edge)
        node, client = await rig.node(edge=1), await rig.session(edge=1)
        await edge.stop()
        rig.edges.remove(edge)
        for talk in (node, client):
            with pytest.raises(ConnectionClosed):
                await talk.receive("anything")
            assert talk.socket.close_code == 1001
        await until(lambda: not rig.selector.sessions and not rig.selector.nodes, "the mesh knows")


class RawSession:
    """A client that writes but, after its session is open, never reads; with a small receive buffer."""

    def __init__(self, plain: socket.socket, talk: Talk) -> None:
        self._plain = plain
        self._talk = talk
        self.session_id = talk.id

    async def utter(self, index: int) -> None:
        """One utterance."""
        await self._talk.utter(index)

    def close(self) -> None:
        """Drop the connection."""
        self._talk.socket.transport.abort()


async def raw_session(rig: Rig) -> RawSession:
    """A client that stops reading."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    plain.connect(("127.0.0.1", rig.edges[0].server.own_port))
    plain.setblocking(False)
    talk = await rig.talk("/ws/session", sock=plain, max_queue=1)
    await talk.send(INIT)
    talk.id = (await talk.receive("session_init_ack"))["session_id"]
    talk.socket.transport.pause_reading()
    return RawSession(plain, talk)
