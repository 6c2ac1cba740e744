"""The floor of our shape: the same libraries, processes and hops as the mesh, without its logic. Each is a process:

    floor.py broker ENDPOINT | selector ENDPOINT REDIS SLOTS | edge NAME ENDPOINT PORT

An utterance goes client, edge "a", broker, selector (commit by EVALSHA), broker, edge "b", node; its result returns
from "b" to "a" directly, and the slot is released by a second EVALSHA off that path. All that one turn of a loop sends
to one broker is one message. What the mesh costs above this is its own work: no reliability is here.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pybase64
import redis.asyncio as aioredis
import uvloop
import zmq
from websockets.asyncio.server import ServerConnection, broadcast, serve

READS_MAX: Final = 128
SELECTOR: Final = b"selector"
NODE_EDGE: Final = b"b"

#: As many commands as a commit and a release of the mesh have at least: binding, lease, job, load.
COMMIT: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('HSET', KEYS[3], 'state', 'dispatched', 'request', ARGV[1], 'slot', ARGV[2])
redis.call('PEXPIRE', KEYS[3], 90000)
redis.call('SET', KEYS[1], ARGV[2], 'PX', 90000)
return redis.call('ZCARD', KEYS[2])
"""
RELEASE: Final = """
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[2], 'state', 'finished')
return redis.call('ZCARD', KEYS[1])
"""

_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode
_to_json, _from_json = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode


class Link:
    """A DEALER on the event loop. A message is triples (receiver or sender, head, payload)."""

    def __init__(self, name: bytes, endpoint: str, handle: Callable[[bytes, list[Any], bytes], None]) -> None:
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.ROUTING_ID, name)
        self._socket.connect(endpoint)
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._outbound: list[bytes] = []
        self._is_read_due = False
        self._loop.add_reader(self._socket.getsockopt(zmq.FD), self._read)
        self._socket.send_multipart([b"", b"", b""])  # makes the broker know the identity

    def send(self, to: bytes, head: list[Any], payload: bytes = b"") -> None:
        if not self._outbound:
            self._loop.call_soon(self._flush)
        self._outbound += (to, _pack(head), payload)

    def _flush(self) -> None:
        parts, self._outbound = self._outbound, []
        self._socket.send_multipart(parts)
        self._read_soon()

    def _read_soon(self) -> None:
        # The descriptor signals edges: after a send or a full read it may stay silent though messages wait.
        if not self._is_read_due:
            self._is_read_due = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_read_due = False
        for _ in range(READS_MAX):
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            for at in range(0, len(parts), 3):
                self._handle(parts[at], _unpack(parts[at + 1]), parts[at + 2])
        self._read_soon()


def broker(endpoint: str) -> None:
    """Everything that one poll has for one peer is one message."""
    router = zmq.Context.instance().socket(zmq.ROUTER)
    router.bind(endpoint)
    print("ready", flush=True)
    while True:
        router.poll()
        outbound: dict[bytes, list[bytes]] = {}
        for _ in range(READS_MAX):
            try:
                sender, *parts = router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            for at in range(0, len(parts), 3):
                if parts[at]:
                    outbound.setdefault(parts[at], []).extend((sender, parts[at + 1], parts[at + 2]))
        for receiver, parts in outbound.items():
            router.send_multipart([receiver, *parts])


async def selector(endpoint: str, redis_url: str, slots: int) -> None:
    """Requests take a slot or wait in a queue; what came since the last commit is one pipeline."""
    store = aioredis.Redis.from_url(redis_url)
    commit, release = await store.script_load(COMMIT), await store.script_load(RELEASE)
    inbox: list[tuple[bytes, list[Any], bytes]] = []
    waiting: deque[tuple[bytes, list[Any], bytes]] = deque()
    free = deque(range(slots))
    arrived = asyncio.Event()

    def on_message(sender: bytes, head: list[Any], payload: bytes) -> None:
        inbox.append((sender, head, payload))
        arrived.set()

    link = Link(SELECTOR, endpoint, on_message)
    print("ready", flush=True)
    while True:
        await arrived.wait()
        arrived.clear()
        batch, inbox[:] = inbox[:], []
        pipeline, assigned = store.pipeline(transaction=False), []
        for message in batch:
            kind, key, *slot = message[1]
            if kind == "dispatch":
                waiting.append(message)
                continue
            pipeline.evalsha(release, 2, f"lease:{slot[0]}", f"job:{key}", key)
            free.append(slot[0])
        while waiting and free:
            sender, (_, key), payload = waiting.popleft()
            slot_number = free.popleft()
            keys = (f"bound:{key}", f"lease:{slot_number}", f"job:{key}")
            pipeline.evalsha(commit, len(keys), *keys, key, slot_number)
            assigned.append((["assign", key, sender, slot_number], payload))
        if len(pipeline):
            await pipeline.execute()
        for head, payload in assigned:
            link.send(NODE_EDGE, head, payload)


class Edge:
    """Clients and nodes on WebSockets, with the messages of the mesh as far as the bench uses them."""

    def __init__(self, name: str, endpoint: str) -> None:
        self._name = name
        self._requests: dict[str, tuple[ServerConnection, int]] = {}
        self._jobs: dict[str, list[Any]] = {}
        self._nodes: deque[ServerConnection] = deque()
        self._sent = 0
        self._link = Link(name.encode(), endpoint, self._on_frame)

    def _on_frame(self, sender: bytes, head: list[Any], payload: bytes) -> None:
        kind, key = head[:2]
        if kind == "assign":
            self._jobs[key] = head
            message = {"type": "job_assign", "job_id": key, "attempt_id": 1, "session_id": "s", "utterance_index": 0}
            message |= {"trace_id": "t", "audio": pybase64.b64encode_as_string(payload)}
            self._nodes.rotate()
            broadcast([self._nodes[0]], _to_json(message).decode())
        else:
            socket, index = self._requests.pop(key)
            message = {"type": "translation_result", "utterance_index": index, "tts_audio": payload.decode()}
            broadcast([socket], _to_json(message).decode())

    async def serve(self, socket: ServerConnection) -> None:
        async for text in socket:
            message = _from_json(text)
            kind = message["type"]
            if kind == "utterance":
                self._sent += 1
                key = f"{self._name}{self._sent}"
                self._requests[key] = (socket, message["utterance_index"])
                self._link.send(SELECTOR, ["dispatch", key], pybase64.b64decode(message["audio"]))
            elif kind == "job_result":
                _, key, owner, slot = self._jobs.pop(message["job_id"])
                self._link.send(owner, ["result", key], message["tts_audio"].encode())
                self._link.send(SELECTOR, ["finished", key, slot])
            elif kind == "session_init":
                await socket.send('{"type":"session_init_ack","session_id":"s"}')
            elif kind == "node_register":
                self._nodes.append(socket)
                await socket.send('{"type":"node_register_ack"}')


async def edge(name: str, endpoint: str, port: int) -> None:
    """One edge."""
    server = Edge(name, endpoint)
    async with serve(server.serve, "127.0.0.1", port, compression=None, max_size=None):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == "broker":
        broker(arguments[0])
    elif role == "selector":
        uvloop.run(selector(arguments[0], arguments[1], int(arguments[2])))
    else:
        uvloop.run(edge(arguments[0], arguments[1], int(arguments[2])))
