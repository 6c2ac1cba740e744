from __future__ import annotations

import pytest

from broker.core.counts import HOP_EDGES_US, Counts
from mesh.frames import BROKER, Beat
from mesh.words import BounceReason
from tests.support.builders.broker import EDGE, WALL_US, Bench, message


@pytest.mark.parametrize(
    ("hop_us", "bucket"),
    [(-5, 0), (0, 0), (50, 0), (51, 1), (1_000_000, len(HOP_EDGES_US) - 1), (1_000_001, len(HOP_EDGES_US))],
)
def test_hop_counts_in_the_bucket_of_its_upper_edge(hop_us: int, bucket: int) -> None:
    bench = Bench()
    bench.wall_us = WALL_US + hop_us
    bench.front(message(EDGE, BROKER, Beat("edge", 0, 0)))
    counts = bench.switch.counts
    assert [index for index, count in enumerate(counts.hops) if count] == [bucket]
    assert counts.hops_us == max(0, hop_us), "clocks of two hosts may disagree"


def test_hop_edges_increase() -> None:
    assert list(HOP_EDGES_US) == sorted(set(HOP_EDGES_US))


def test_frame_is_accounted_for_when_sent_queued_consumed_or_returned() -> None:
    counts = Counts()
    counts.frames_in = [3, 4]
    assert counts.unaccounted(queued=0) == 7
    counts.frames_out = [1, 1]
    counts.for_broker, counts.busy = 1, 1
    counts.bounced[BounceReason.EXPIRED] += 2
    assert counts.unaccounted(queued=0) == 1
    assert counts.unaccounted(queued=1) == 0
