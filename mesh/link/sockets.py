"""ZeroMQ sockets of the mesh, with every option that matters set in one place."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import zmq
import zmq.backend

from mesh.config.network import LinkConfig
from mesh.errors import ConfigError
from mesh.loopback import is_loopback

#: Seconds of idleness before the kernel probes a TCP connection; ZeroMQ's own heartbeats are much quicker.
_TCP_KEEPALIVE_SECONDS = 30


# Plain integers: `zmq.SNDMORE | zmq.DONTWAIT` on the enums costs as much as the send itself.
_LAST: Final = int(zmq.DONTWAIT)
_MORE: Final = int(zmq.DONTWAIT) | int(zmq.SNDMORE)


def receiver(socket: zmq.Socket[bytes]) -> Callable[[], list[Any]]:
    """A function that takes one message: its parts as zmq.Frame, an identity (on a ROUTER) as bytes. zmq.Again if none.

    Frames know whether more follows; asking the socket (RCVMORE), as recv_multipart does, costs twice a recv. They are
    also passed on without a copy, and msgspec decodes straight from them.
    """
    recv = socket.recv
    is_router = socket.type == zmq.ROUTER

    def receive() -> list[Any]:
        parts: list[Any] = [recv(_LAST)] if is_router else []
        frame = recv(_LAST, False)
        parts.append(frame)
        while frame.more:
            frame = recv(_LAST, False)
            parts.append(frame)
        return parts

    return receive


def sender(socket: zmq.Socket[bytes], *, copy: bool) -> Callable[[Sequence[Any]], None]:
    """A function that sends one message without waiting. zmq.Again if the pipe is full; nothing is sent by halves.

    copy=False passes zmq.Frame parts on by reference. For bytes it would need pyzmq's garbage thread, which costs more
    than copying an utterance.
    """
    # The backend's own method: the wrapper above it only looks at options that we never pass.
    send = zmq.backend.Socket.send.__get__(socket)

    def send_parts(parts: Sequence[Any]) -> None:
        for part in parts[:-1]:
            send(part, _MORE, copy)
        send(parts[-1], _LAST, copy)

    return send_parts


def open_router(context: zmq.Context[Any], config: LinkConfig) -> zmq.Socket[bytes]:
    """A broker's socket: it says so when a peer is gone or full, and nobody can take over an identity in use."""
    socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    _set_common(socket, config)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
    return socket


def open_dealer(context: zmq.Context[Any], config: LinkConfig, identity: str) -> zmq.Socket[bytes]:
    """A peer's socket to one broker: it queues nothing for a broker that is not there."""
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    _set_common(socket, config)
    socket.setsockopt(zmq.ROUTING_ID, identity.encode())
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, config.reconnect_ms)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, config.reconnect_ms_max)
    return socket


def bind(socket: zmq.Socket[bytes], endpoint: str) -> str:
    """Listen; the endpoint in use, for `tcp://127.0.0.1:*` picks a port. ConfigError if that cannot or must not be."""
    _refuse_exposed(endpoint)
    try:
        if endpoint.startswith("ipc://"):
            # Whoever can open the file is trusted, so only its owner may reach it.
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
    """The links are not authenticated (NULL mechanism), so only this host may reach them."""
    if endpoint.startswith("ipc://"):
        return
    host = (urlsplit(endpoint).hostname or "") if endpoint.startswith("tcp://") else ""
    if not is_loopback(host):
        raise ConfigError(
            f"refusing to listen on {endpoint}: broker links are not authenticated, so they may use only "
            "ipc://<path> or tcp://127.0.0.1:<port>"
        )
