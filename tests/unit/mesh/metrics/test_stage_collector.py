from __future__ import annotations

from prometheus_client import CollectorRegistry

from mesh.metrics import render
from mesh.metrics.stage_collector import StageCollector
from mesh.metrics.stage_counts import STAGES, StageCounts
from mesh.words import LatencyStage


def test_measured_stages_are_exported_as_one_histogram() -> None:
    counts = StageCounts([LatencyStage.QUEUE, LatencyStage.COMMIT])
    counts.observe(STAGES.index(LatencyStage.QUEUE), 150)
    counts.observe(STAGES.index(LatencyStage.QUEUE), 60)
    registry = CollectorRegistry()
    registry.register(StageCollector(counts))
    lines = render(registry).decode().splitlines()
    assert 'lingua_stage_seconds_bucket{le="0.0001",stage="queue"} 1.0' in lines
    assert 'lingua_stage_seconds_bucket{le="+Inf",stage="queue"} 2.0' in lines
    assert 'lingua_stage_seconds_count{stage="commit"} 0.0' in lines
    assert not any('stage="node"' in line for line in lines)
    [total] = [float(line.split()[1]) for line in lines if line.startswith('lingua_stage_seconds_sum{stage="queue"}')]
    assert abs(total - 210e-6) < 1e-9
