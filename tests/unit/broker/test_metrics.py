from __future__ import annotations

from prometheus_client import CollectorRegistry

from broker.core.counts import HOP_EDGES_US
from broker.metrics import BrokerCollector
from mesh import metrics
from mesh.frames import BROKER, Beat
from tests.support.builders.broker import EDGE, WALL_US, WORK, Bench, message


def test_every_counter_of_the_switch_is_exported() -> None:
    bench = Bench()
    bench.edge()
    bench.selector(window=1)
    bench.front(message(EDGE, "", WORK), message(EDGE, "", WORK), message(EDGE, "edge:nobody:1", WORK))
    bench.front([b"x", b"y"])
    bench.wall_us += 700
    bench.front(message(EDGE, BROKER, Beat("edge", 0, 0)))
    registry = CollectorRegistry()
    registry.register(BrokerCollector(bench.switch))
    shown = set(metrics.render(registry).decode().splitlines())
    assert {
        'lingua_broker_frames_total{direction="in",lane="work"} 3.0',
        'lingua_broker_frames_total{direction="out",lane="work"} 1.0',
        'lingua_broker_packets_total{direction="in"} 7.0',
        'lingua_broker_packets_total{direction="out"} 0.0',
        "lingua_broker_busy_total 1.0",
        'lingua_broker_bounces_total{reason="unroutable"} 1.0',
        'lingua_broker_dropped_total{reason="malformed"} 1.0',
        'lingua_broker_peers_live{kind="edge"} 1.0',
        'lingua_broker_peers_live{kind="selector"} 1.0',
        'lingua_broker_queue_depth{lane="work"} 0.0',
        "lingua_broker_credit 0.0",
        "lingua_broker_outstanding 1.0",
        'lingua_broker_hop_seconds_bucket{le="0.0005"} 6.0',
        'lingua_broker_hop_seconds_bucket{le="0.001"} 7.0',
        "lingua_broker_hop_seconds_sum 0.0007",
    } <= shown


def test_hop_is_exported_in_the_bucket_of_its_upper_edge() -> None:
    bench = Bench()
    for hop_us in (-5, 50, 51, 10**9):
        bench.wall_us = WALL_US + hop_us
        bench.front(message(EDGE, BROKER, Beat("edge", 0, 0)))
    hops = bench.switch.counts.hops
    assert hops[:2] == [2, 1]
    assert hops[-1] == 1
    assert len(hops) == len(HOP_EDGES_US) + 1
