from __future__ import annotations

from mesh.metrics.stage_counts import STAGE_EDGES_US, STAGES, StageCounts
from mesh.words import LatencyStage


def test_an_edge_belongs_to_its_own_bucket_and_the_last_bucket_has_none() -> None:
    counts = StageCounts(LatencyStage)
    for us in (0, STAGE_EDGES_US[0], STAGE_EDGES_US[0] + 1, STAGE_EDGES_US[-1] + 1):
        counts.observe(0, us)
    assert counts.buckets[0][:2] == [2, 1]
    assert counts.buckets[0][-1] == 1
    assert counts.sums_us[0] == 2 * STAGE_EDGES_US[0] + STAGE_EDGES_US[-1] + 2
    assert sum(map(sum, counts.buckets[1:])) == 0


def test_stages_have_the_order_of_the_frames() -> None:
    assert STAGES[:5] == ("edge_in", "broker", "queue", "select", "commit")
    assert sorted(STAGE_EDGES_US) == list(STAGE_EDGES_US)


def test_all_stages_of_a_passage_are_counted_as_one_by_one() -> None:
    together, single = StageCounts(LatencyStage), StageCounts(LatencyStage)
    us = [number * 700 for number in range(len(STAGES))]
    together.observe_all((0, 2, 5), us)
    for stage in (0, 2, 5):
        single.observe(stage, us[stage])
    assert (together.buckets, together.sums_us) == (single.buckets, single.sums_us)
