"""ZeroMQ sockets of the mesh: the only place that sets their options."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast
from urllib.parse import urlsplit

import zmq
import zmq.backend

from mesh.config.network import LinkConfig
from mesh.errors import ConfigError
from mesh.loopback import is_loopback

#: Seconds of idleness before the kernel probes a TCP connection; ZeroMQ's own heartbeats are much quicker.
_TCP_KEEPALIVE_SECONDS = 30


# Plain integers: an operation on members of these enums costs as much as a send.
_LAST: Final = int(zmq.DONTWAIT)
_MORE: Final = int(zmq.DONTWAIT) | int(zmq.SNDMORE)
_EVENTS: Final = int(zmq.EVENTS)
POLLIN: Final = int(zmq.POLLIN)
POLLOUT: Final = int(zmq.POLLOUT)


def events_reader(socket: zmq.Socket[bytes]) -> Callable[[], int]:
    """A function that returns the socket's EVENTS, a sum of POLLIN and POLLOUT."""
    return partial(cast(Callable[[int], int], socket.getsockopt), _EVENTS)


def drainer(socket: zmq.Socket[bytes], messages_max: int) -> Callable[[], list[list[Any]]]:
    """A function that receives the messages that have arrived, at most `messages_max`, without waiting.

    The parts of a message are zmq.Frame; an identity (on a ROUTER) is bytes. If it returns less than `messages_max`
    messages, none was left, and the socket's descriptor becomes readable for the next one.

    A zmq.Frame knows whether another follows; RCVMORE, as recv_multipart uses it, costs twice a recv. Frames are also
    forwarded without a copy, and msgspec decodes from them directly.
    """
    recv = socket.recv
    is_router = socket.type == zmq.ROUTER
    events = events_reader(socket)

    def drain() -> list[list[Any]]:
        batch: list[list[Any]] = []
        try:
            while len(batch) < messages_max:
                parts: list[Any] = [recv(_LAST)] if is_router else []
                frame = recv(_LAST, False)
                parts.append(frame)
                while frame.more:
                    frame = recv(_LAST, False)
                    parts.append(frame)
                batch.append(parts)
                # Mostly there is one message: reading EVENTS costs half of a recv that raises.
                if len(batch) == 1 and not events() & POLLIN:
                    break
        except zmq.Again:
            pass
        return batch

    return drain


def sender(socket: zmq.Socket[bytes]) -> Callable[[Sequence[Any]], None]:
    """A function that sends one message without waiting. zmq.Again if the pipe is full; all parts are sent or none.

    A zmq.Frame is sent by reference, any other buffer is copied: without a copy it would need pyzmq's garbage thread,
    which costs more than copying an utterance.
    """
    # The backend's own method: the wrapper above it only handles options that are never passed here.
    send = zmq.backend.Socket.send.__get__(socket)

    def send_parts(parts: Sequence[Any]) -> None:
        for part in parts[:-1]:
            send(part, _MORE)
        send(parts[-1], _LAST)

    return send_parts


def open_router(context: zmq.Context[Any], config: LinkConfig) -> zmq.Socket[bytes]:
    """A broker's socket: a send to an absent or full peer is an error, and an identity in use cannot be taken over."""
    socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    _set_common(socket, config)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
    return socket


def open_dealer(context: zmq.Context[Any], config: LinkConfig, identity: str) -> zmq.Socket[bytes]:
    """A peer's socket to one broker: queues nothing for a broker that is not connected."""
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    _set_common(socket, config)
    socket.setsockopt(zmq.ROUTING_ID, identity.encode())
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, config.reconnect_ms)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, config.reconnect_ms_max)
    return socket


def bind(socket: zmq.Socket[bytes], endpoint: str) -> str:
    """Listen; returns the actual endpoint (`tcp://127.0.0.1:*` picks a port). ConfigError if impossible or exposed."""
    _refuse_exposed(endpoint)
    try:
        if endpoint.startswith("ipc://"):
            # Access to the file is the only authentication, so the directory is its owner's alone.
            os.makedirs(os.path.dirname(endpoint.removeprefix("ipc://")) or ".", mode=0o700, exist_ok=True)
        socket.bind(endpoint)
    except (zmq.ZMQError, OSError) as error:
        raise ConfigError(f"cannot listen on {endpoint}: {error.strerror}") from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def _set_common(socket: zmq.Socket[bytes], config: LinkConfig) -> None:
    socket.setsockopt(zmq.SNDHWM, config.high_water)
    socket.setsockopt(zmq.RCVHWM, config.high_water)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, config.message_bytes_max)
    socket.setsockopt(zmq.HEARTBEAT_IVL, config.beat_ms)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, config.dead_ms)
    socket.setsockopt(zmq.HEARTBEAT_TTL, config.dead_ms)
    socket.setsockopt(zmq.HANDSHAKE_IVL, config.handshake_ms)
    # Ignored by ipc://.
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, _TCP_KEEPALIVE_SECONDS)


def _refuse_exposed(endpoint: str) -> None:
    """ConfigError unless only this host can reach the endpoint: links are not authenticated (NULL mechanism)."""
    if endpoint.startswith("ipc://"):
        return
    host = (urlsplit(endpoint).hostname or "") if endpoint.startswith("tcp://") else ""
    if not is_loopback(host):
        raise ConfigError(
            f"refusing to listen on {endpoint}: broker links are not authenticated, so they may use only "
            "ipc://<path> or tcp://127.0.0.1:<port>"
        )
