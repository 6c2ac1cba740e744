"""A broker's ROUTER: no packet is left in the socket because its signal was taken, and sends report their outcome."""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from broker.core.courier import Outcome
from broker.router import RouterSocket
from mesh.config.network import LinkConfig
from mesh.link.sockets import open_dealer, sender
from tests.support.conditions import DEADLINE_S

CONFIG = LinkConfig(drain_max=2, high_water=2)
PEER = "edge:a:1"


class Pair:
    """A router and one connected peer."""

    def __init__(self) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.router = RouterSocket(self.context, CONFIG)
        self.dealer = open_dealer(self.context, LinkConfig(), PEER)
        self.dealer.connect(self.router.bind("tcp://127.0.0.1:*"))
        assert self.dealer.poll(DEADLINE_S * 1_000, zmq.POLLOUT)

    def send(self, *tables: bytes) -> None:
        for table in tables:
            sender(self.dealer)([table])

    def receive(self, count: int) -> list[bytes]:
        """As the loop does it: never asks a socket that neither its descriptor nor itself announces."""
        descriptor, tables = select.poll(), []
        descriptor.register(self.router.fd, select.POLLIN)
        while len(tables) < count:
            if self.router.has_unannounced() or descriptor.poll(DEADLINE_S * 1_000):
                tables += [bytes(parts[1]) for parts in self.router.receive()]
        return tables

    def close(self) -> None:
        self.dealer.close(linger=0)
        self.router.close(0)
        self.context.term()


@pytest.fixture
def pair() -> Iterator[Pair]:
    opened = Pair()
    yield opened
    opened.close()


def test_all_packets_are_received_although_a_pass_takes_few(pair: Pair) -> None:
    sent = [b"%d" % number for number in range(5)]
    pair.send(*sent)
    assert pair.receive(5) == sent
    assert not pair.router.has_unannounced()


def test_socket_is_unannounced_only_while_packets_wait_after_a_use(pair: Pair) -> None:
    pair.send(b"hello")
    pair.receive(1)
    assert not pair.router.has_unannounced()
    assert pair.router.try_send(PEER.encode(), b"table", []) is Outcome.SENT
    assert not pair.router.has_unannounced()
    pair.send(b"again")
    assert pair.receive(1) == [b"again"]


def test_packet_whose_signal_a_check_has_taken_is_received(pair: Pair) -> None:
    pair.send(b"hello")
    pair.receive(1)
    pair.send(b"next")
    descriptor = select.poll()
    descriptor.register(pair.router.fd, select.POLLIN)
    assert descriptor.poll(DEADLINE_S * 1_000)
    pair.router.try_send(PEER.encode(), b"table", [])
    assert pair.router.has_unannounced()  # reads the events: the descriptor is silent from here on
    assert not descriptor.poll(0)
    assert pair.router.has_unannounced()
    assert pair.receive(1) == [b"next"]


def test_send_reports_absent_and_full_peers(pair: Pair) -> None:
    pair.send(b"hello")
    pair.receive(1)
    assert pair.router.try_send(b"nobody", b"table", []) is Outcome.UNREACHABLE
    outcomes = {pair.router.try_send(PEER.encode(), bytes(1 << 20), [b"blob"]) for _ in range(100)}
    assert outcomes == {Outcome.SENT, Outcome.PIPE_FULL}
