"""Exports the counters of the broker's core to Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.core.counts import HOP_EDGES_US
from broker.core.credit import KIND_OF_SIDE, Peer, Side
from broker.core.switch import Switch
from mesh.frames import Lane
from mesh.words import BounceReason, DropReason

_US: Final = 1_000_000.0


class BrokerCollector(Collector):
    """Reads a switch at each scrape. The reader is another thread: it sees integers, each consistent on its own."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    def collect(self) -> Iterator[Metric]:
        """All metrics, from the current counters."""
        yield from self._traffic()
        yield from self._refusals()
        yield from self._peers()
        yield self._hops()

    def _traffic(self) -> Iterator[Metric]:
        counts = self._switch.counts
        frames = CounterMetricFamily("lingua_broker_frames", "Frames received and sent", labels=["direction", "lane"])
        size = CounterMetricFamily("lingua_broker_bytes", "Bytes received and sent", labels=["direction"])
        for lane in Lane:
            frames.add_metric(["in", lane.name.lower()], counts.frames_in[lane])
            frames.add_metric(["out", lane.name.lower()], counts.frames_out[lane])
        packets = CounterMetricFamily("lingua_broker_packets", "Packets received and sent", labels=["direction"])
        packets.add_metric(["in"], counts.packets_in)
        packets.add_metric(["out"], counts.packets_out)
        size.add_metric(["in"], counts.bytes_in)
        size.add_metric(["out"], counts.bytes_out)
        yield frames
        yield packets
        yield size
        yield CounterMetricFamily(
            "lingua_broker_spilled", "Frames not sent to their cell's first selector", counts.spilled
        )

    def _refusals(self) -> Iterator[Metric]:
        counts = self._switch.counts
        yield CounterMetricFamily("lingua_broker_busy", "Work refused because no selector had credit", counts.busy)
        bounced = CounterMetricFamily("lingua_broker_bounces", "Frames returned to their sender", labels=["reason"])
        for bounce in BounceReason:
            bounced.add_metric([bounce.value], counts.bounced[bounce])
        dropped = CounterMetricFamily("lingua_broker_dropped", "Frames dropped without a reply", labels=["reason"])
        for reason in (*BounceReason, *DropReason):
            dropped.add_metric([reason.value], counts.dropped[reason])
        yield bounced
        yield dropped

    def _peers(self) -> Iterator[Metric]:
        peers = list(self._switch.directory.peers.values())
        selectors = [peer for peer in peers if peer.side is Side.BACK]
        live = GaugeMetricFamily("lingua_broker_peers_live", "Live peers", labels=["kind"])
        live.add_metric([KIND_OF_SIDE[Side.FRONT]], len(peers) - len(selectors))
        live.add_metric([KIND_OF_SIDE[Side.BACK]], len(selectors))
        depth = GaugeMetricFamily("lingua_broker_queue_depth", "Frames queued for blocked peers", labels=["lane"])
        for lane in Lane:
            depth.add_metric([lane.name.lower()], sum(peer.queues.depth(lane) for peer in peers))
        yield live
        yield depth
        yield _gauge("stuck_peers", "Peers whose pipe is full", sum(peer.blocked for peer in peers))
        yield _gauge("credit", "Credit: work messages that selectors may still get", _credit(selectors))
        yield _gauge(
            "outstanding",
            "Work messages sent to selectors and not consumed yet",
            sum(p.window.outstanding() for p in selectors),
        )

    def _hops(self) -> Metric:
        counts = self._switch.counts
        running = 0
        buckets: list[tuple[str, float]] = []
        for edge_us, count in zip((*HOP_EDGES_US, None), list(counts.hops), strict=True):
            running += count
            buckets.append(("+Inf" if edge_us is None else str(edge_us / _US), running))
        text = "Time of a packet from the sender's clock to the broker's"
        return HistogramMetricFamily("lingua_broker_hop_seconds", text, buckets, counts.hops_us / _US)


def _gauge(name: str, text: str, value: int) -> Metric:
    return GaugeMetricFamily(f"lingua_broker_{name}", text, value)


def _credit(selectors: list[Peer]) -> int:
    return sum(max(0, peer.credit()) for peer in selectors)
