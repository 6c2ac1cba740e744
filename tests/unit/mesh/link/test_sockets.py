from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from mesh.config.network import LinkConfig
from mesh.errors import ConfigError
from mesh.link.sockets import bind, drainer, open_dealer, open_router, sender

CONFIG = LinkConfig(high_water=7, beat_ms=500, dead_ms=1_500, handshake_ms=900, message_bytes_max=2_048)


class Sockets:
    """Opens sockets and closes them all at the end."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._open: list[zmq.Socket[bytes]] = []

    def router(self) -> zmq.Socket[bytes]:
        self._open.append(open_router(self._context, CONFIG))
        return self._open[-1]

    def dealer(self, identity: str) -> zmq.Socket[bytes]:
        self._open.append(open_dealer(self._context, CONFIG, identity))
        return self._open[-1]

    def close(self) -> None:
        for socket in self._open:
            socket.close(linger=0)
        self._context.term()


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    opened = Sockets()
    yield opened
    opened.close()


def test_every_option_is_set(sockets: Sockets) -> None:
    router, dealer = sockets.router(), sockets.dealer("edge:a:1")
    for socket in (router, dealer):
        options = {
            zmq.SNDHWM: 7,
            zmq.RCVHWM: 7,
            zmq.LINGER: 0,
            zmq.MAXMSGSIZE: 2_048,
            zmq.HEARTBEAT_IVL: 500,
            zmq.HEARTBEAT_TIMEOUT: 1_500,
            zmq.HEARTBEAT_TTL: 1_500,
            zmq.HANDSHAKE_IVL: 900,
            zmq.TCP_KEEPALIVE: 1,
        }
        assert {option: socket.getsockopt(option) for option in options} == options
    assert dealer.getsockopt(zmq.IMMEDIATE) == 1
    assert dealer.getsockopt(zmq.RECONNECT_IVL) == CONFIG.reconnect_ms
    assert dealer.getsockopt(zmq.RECONNECT_IVL_MAX) == CONFIG.reconnect_ms_max
    assert dealer.getsockopt(zmq.ROUTING_ID) == b"edge:a:1"
    with pytest.raises(zmq.ZMQError) as error:  # ROUTER_MANDATORY cannot be read, but shows
        sender(router)([b"nobody", b"x"])
    assert error.value.errno == zmq.EHOSTUNREACH


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://*:5555", "tcp://0.0.0.0:5555", "tcp://10.1.2.3:5555", "tcp://[::]:5555", "inproc://x", "tcp://eth0:1"],
)
def test_listening_beyond_this_host_is_refused(sockets: Sockets, endpoint: str) -> None:
    with pytest.raises(ConfigError, match="refusing to listen"):
        bind(sockets.router(), endpoint)


def test_loopback_and_ipc_are_allowed(sockets: Sockets, tmp: Path) -> None:
    assert bind(sockets.router(), "tcp://127.0.0.1:*").startswith("tcp://127.0.0.1:")
    endpoint = f"ipc://{tmp}/inner/front"
    assert bind(sockets.router(), endpoint) == endpoint
    assert stat.S_IMODE((tmp / "inner").stat().st_mode) == 0o700


@pytest.mark.parametrize("endpoint", ["ipc:///proc/nowhere/front", "ipc://" + "/tmp/" + "x" * 200])
def test_unusable_endpoint_is_a_configuration_error(sockets: Sockets, endpoint: str) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        bind(sockets.router(), endpoint)


def test_messages_of_any_parts_cross_unchanged(sockets: Sockets) -> None:
    router, dealer = sockets.router(), sockets.dealer("edge:a:1")
    dealer.connect(bind(router, "tcp://127.0.0.1:*"))
    assert dealer.poll(5_000, zmq.POLLOUT)
    for parts in ([b"one"], [b"", b""], [b"head", b"frame", b"x" * 1_500, b""]):
        sender(dealer)(parts)
        assert router.poll(5_000)
        (there,) = drainer(router, 9)()
        assert there[0] == b"edge:a:1"
        assert [part.bytes for part in there[1:]] == parts
        sender(router)(there)
        assert dealer.poll(5_000)
        (back,) = drainer(dealer, 9)()
        assert [part.bytes for part in back] == parts
    assert drainer(router, 9)() == []


def test_drain_stops_at_its_bound_and_leaves_the_rest(sockets: Sockets) -> None:
    router, dealer = sockets.router(), sockets.dealer("edge:a:1")
    dealer.connect(bind(router, "tcp://127.0.0.1:*"))
    assert dealer.poll(5_000, zmq.POLLOUT)
    for number in range(3):
        sender(dealer)([b"%d" % number, b"last"])
    drain, batches = drainer(router, 2), []
    while sum(map(len, batches)) < 3:
        assert router.poll(5_000)
        batches.append(drain())
    assert max(map(len, batches)) <= 2
    assert [parts[1].bytes for batch in batches for parts in batch] == [b"0", b"1", b"2"]
