from __future__ import annotations

from broker.core.courier import Courier, Outcome
from broker.core.queues import Envelope
from mesh.frames import Bounce, Busy, decode_frame
from tests.support.builders.broker import EDGE, EDGE_B, PUSH, WALL_US, WORK, Bench, message


class Sockets:
    """Pipes that are full or gone by name; remembers what went through."""

    def __init__(self) -> None:
        self.outcome: dict[str, Outcome] = {}
        self.sent: list[tuple[str, object]] = []

    def __call__(self, envelope: Envelope) -> Outcome:
        assert envelope.receiver is not None
        name = envelope.receiver.name
        outcome = self.outcome.get(name, Outcome.SENT)
        if outcome is Outcome.SENT:
            self.sent.append((name, decode_frame(envelope.parts[2])))
        return outcome


def test_full_pipe_is_tried_once_and_no_message_overtakes() -> None:
    bench, sockets = Bench(), Sockets()
    courier = Courier(bench.switch, sockets)
    bench.edge(EDGE)
    bench.edge(EDGE_B)
    sockets.outcome[EDGE_B] = Outcome.PIPE_FULL
    courier.send_all(bench.front(message(EDGE, EDGE_B, PUSH), message(EDGE, EDGE_B, PUSH)))
    assert sockets.sent == []
    courier.flush(WALL_US)
    assert len(bench.peer(EDGE_B).queues) == 2
    del sockets.outcome[EDGE_B]
    courier.flush(WALL_US)
    assert sockets.sent == [(EDGE_B, PUSH)] * 2
    bench.switch.check()


def test_work_for_unreachable_selectors_is_rerouted_until_it_bounces() -> None:
    bench, sockets = Bench(), Sockets()
    courier = Courier(bench.switch, sockets)
    bench.edge()
    for number in range(3):
        bench.selector(f"selector:s{number}:1")
        sockets.outcome[f"selector:s{number}:1"] = Outcome.UNREACHABLE
    courier.send_all(bench.front(message(EDGE, "", WORK)))
    assert sockets.sent == [(EDGE, Bounce("no_selector"))]
    assert set(bench.switch.directory.by_name) == {EDGE}
    bench.switch.check()


def test_work_is_refused_when_all_selectors_are_blocked_and_their_queues_full() -> None:
    bench, sockets = Bench(), Sockets()
    courier = Courier(bench.switch, sockets)
    bench.edge()
    for name in ("selector:a:1", "selector:b:1"):
        bench.selector(name, window=2)
        sockets.outcome[name] = Outcome.PIPE_FULL
    courier.send_all(bench.front(*[message(EDGE, "", WORK) for _ in range(6)]))
    assert [type(frame) for _, frame in sockets.sent] == [Busy, Busy]
    bench.switch.check()


def test_messages_of_a_peer_lost_during_its_flush_are_redirected() -> None:
    bench, sockets = Bench(), Sockets()
    courier = Courier(bench.switch, sockets)
    bench.edge(EDGE)
    bench.switch.directory.block(bench.edge(EDGE_B))
    courier.send_all(bench.front(message(EDGE, EDGE_B, PUSH), message(EDGE, EDGE_B, PUSH, deadline_ms=1)))
    sockets.outcome[EDGE_B] = Outcome.UNREACHABLE
    courier.flush(WALL_US)
    assert sockets.sent == [(EDGE, Bounce("expired")), (EDGE, Bounce("unroutable"))]
    bench.switch.check()
