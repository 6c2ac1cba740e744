"""Metrics of an edge: labels that follow from tables and enums."""

from __future__ import annotations

from edge.audio.core.segment import FinalizeReason
from edge.metrics import CUT_REASONS, FRAME_NAMES, NO_PAGE, PAGE_KINDS
from edge.operators.core.routes import PAGES
from mesh.frames import Dispatch, JobDone


def test_every_page_of_the_http_api_has_its_label() -> None:
    assert {page.kind for page in PAGES} | {NO_PAGE} == set(PAGE_KINDS)


def test_every_finalize_reason_has_its_label() -> None:
    assert [reason.name.lower() for reason in FinalizeReason] == list(CUT_REASONS)


def test_frames_that_are_retried_have_a_label() -> None:
    assert {Dispatch.__name__, JobDone.__name__} <= set(FRAME_NAMES)
