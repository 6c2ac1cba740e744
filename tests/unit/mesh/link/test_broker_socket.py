"""Socket of one broker: a packet is sent whole, or not at all when no broker is connected."""

from __future__ import annotations

from pathlib import Path

import zmq

from mesh.config.network import LinkConfig
from mesh.frames import Goodbye, Head
from mesh.frames.packets import read_sealed, seal
from mesh.link.broker_socket import BrokerSocket
from mesh.link.credit import LinkCredit
from mesh.link.sockets import open_dealer
from mesh.words import ProcessKind
from tests.support.conditions import DEADLINE_S


def test_packet_reaches_the_broker_once_it_is_connected(tmp_path: Path) -> None:
    endpoint, config = f"ipc://{tmp_path}/b", LinkConfig()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        dealer = open_dealer(context, config, "edge:a:1")
        credit = LinkCredit(kind=ProcessKind.EDGE, window=0, dead_ms=1_000)
        broker = BrokerSocket(endpoint, dealer, credit, config)
        dealer.connect(endpoint)
        broker.outbox.add(seal(Head(0, "", 0, "edge:a:1", 0), Goodbye()), 10)
        batch = broker.outbox.take()
        assert not broker.try_send(batch) and not broker.writable and broker.needs_read()
        router.bind(endpoint)
        assert dealer.poll(DEADLINE_S * 1_000, zmq.POLLOUT)
        assert broker.try_send(batch)
        assert router.poll(DEADLINE_S * 1_000)
        identity, table = router.recv_multipart()
        assert identity == b"edge:a:1" and len(read_sealed(table)[0]) == 1
        dealer.close(linger=0)
        router.close(linger=0)
