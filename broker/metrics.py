"""Shows the broker's counters to Prometheus. The counters themselves are the core's."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.core.counts import HOP_EDGES_US
from broker.core.credit import KIND_OF_SIDE, Side
from broker.core.switch import Switch
from mesh.frames import Lane

_US: float = 1_000_000.0


class BrokerCollector(Collector):
    """Reads a switch when asked. The reader is another thread: it sees integers, each right on its own."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    def collect(self) -> Iterator[Metric]:
        """Everything, from the counters as they are now."""
        yield from self._traffic()
        yield from self._refusals()
        yield from self._peers()
        yield self._hops()

    def _traffic(self) -> Iterator[Metric]:
        counts = self._switch.counts
        frames = CounterMetricFamily("lingua_broker_frames", "Messages taken in.", labels=["side", "lane"])
        size = CounterMetricFamily("lingua_broker_bytes", "Bytes taken in.", labels=["side"])
        for side in Side:
            for lane in Lane:
                frames.add_metric([KIND_OF_SIDE[side], lane.name.lower()], counts.arrived[side][lane])
            size.add_metric([KIND_OF_SIDE[side]], counts.bytes_arrived[side])
        out = CounterMetricFamily("lingua_broker_frames_out", "Messages handed on.", labels=["lane"])
        for lane in Lane:
            out.add_metric([lane.name.lower()], counts.forwarded[lane])
        yield frames
        yield size
        yield out
        yield CounterMetricFamily(
            "lingua_broker_spilled", "Work not sent to its cell's first selector.", counts.spilled
        )

    def _refusals(self) -> Iterator[Metric]:
        counts = self._switch.counts
        yield CounterMetricFamily("lingua_broker_busy", "Work refused: no selector had credit.", counts.busy)
        bounced = CounterMetricFamily("lingua_broker_bounces", "Messages sent back.", labels=["reason"])
        for reason, count in list(counts.bounced.items()):
            bounced.add_metric([reason], count)
        dropped = CounterMetricFamily("lingua_broker_dropped", "Messages dropped unanswered.", labels=["reason"])
        for reason, count in list(counts.dropped.items()):
            dropped.add_metric([reason], count)
        yield bounced
        yield dropped

    def _peers(self) -> Iterator[Metric]:
        peers = list(self._switch.peers.values())
        live = GaugeMetricFamily("lingua_broker_peers", "Peers heard lately.", labels=["kind"])
        for side in Side:
            live.add_metric([KIND_OF_SIDE[side]], sum(peer.side == side for peer in peers))
        queued = GaugeMetricFamily("lingua_broker_queue_depth", "Messages waiting.", labels=["lane"])
        for lane in Lane:
            queued.add_metric([lane.name.lower()], sum(peer.lanes.depth(lane) for peer in peers))
        selectors = [peer for peer in peers if peer.side == Side.BACK]
        yield live
        yield queued
        yield GaugeMetricFamily(
            "lingua_broker_credit", "Work that selectors may still get.", sum(peer.credit() for peer in selectors)
        )
        yield GaugeMetricFamily(
            "lingua_broker_outstanding", "Work at selectors.", sum(peer.window.outstanding() for peer in selectors)
        )
        yield GaugeMetricFamily(
            "lingua_broker_blocked_peers", "Peers whose pipe is full.", sum(p.blocked for p in peers)
        )

    def _hops(self) -> Metric:
        hop = self._switch.counts.hop
        counts, total_us = list(hop.counts), hop.total
        running = 0
        buckets: list[tuple[str, float]] = []
        for edge_us, count in zip((*HOP_EDGES_US, None), counts, strict=True):
            running += count
            buckets.append(("+Inf" if edge_us is None else str(edge_us / _US), running))
        family = HistogramMetricFamily("lingua_broker_hop_seconds", "From a sender's clock to this broker.")
        family.add_metric([], buckets, total_us / _US)
        return family
