from __future__ import annotations

from mesh.frames import Assign, Beat, Bounce, BrokerBeat, Busy, Dispatch, JobDone, Post, Push
from selector.app import HANDLED


def test_a_selector_handles_exactly_the_frames_addressed_to_selectors() -> None:
    assert {Dispatch, JobDone, Bounce, Post} <= HANDLED
    assert not HANDLED & {Assign, Push, Busy, BrokerBeat}


def test_beats_have_no_lane_because_the_link_handles_them() -> None:
    assert Beat not in HANDLED
