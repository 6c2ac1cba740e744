"""Metrics of an edge: labels that follow from tables and enums."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from edge.audio.core.segment import FinalizeReason
from edge.metrics import CUT_REASONS, FRAME_NAMES, NO_PAGE, PAGE_KINDS, STAGES_AT_EDGE, EdgeMetrics
from edge.operators.core.routes import PAGES
from mesh.frames import Dispatch, Finished, JobDone
from mesh.metrics.stage_counts import STAGES


def test_every_page_of_the_http_api_has_its_label() -> None:
    assert {page.kind for page in PAGES} | {NO_PAGE} == set(PAGE_KINDS)


def test_every_finalize_reason_has_its_label() -> None:
    assert [reason.name.lower() for reason in FinalizeReason] == list(CUT_REASONS)


def test_frames_that_are_retried_have_a_label() -> None:
    assert {Dispatch.__name__, JobDone.__name__, Finished.__name__} <= set(FRAME_NAMES)


def test_edge_counts_the_stages_that_end_at_an_edge() -> None:
    assert [STAGES[place] for place in STAGES_AT_EDGE] == ["edge_in", "deliver", "node", "back", "order"]
    registry = CollectorRegistry()
    metrics = EdgeMetrics(registry)
    metrics.stages.observe(STAGES_AT_EDGE[0], 100)
    assert registry.get_sample_value("lingua_stage_seconds_count", {"stage": "edge_in"}) == 1
    assert EdgeMetrics(registry).stages is metrics.stages, "one per registry"
