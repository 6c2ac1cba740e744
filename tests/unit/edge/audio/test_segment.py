"""Segment: its flags follow from its reason; its limits from the configuration."""

from __future__ import annotations

import pytest

from edge.audio.core.segment import FinalizeReason, Segment, SegmentLimits
from mesh.config.sessions import SpeechConfig


@pytest.mark.parametrize("reason", FinalizeReason)
def test_at_most_one_flag_is_set_and_it_is_that_of_the_reason(reason: FinalizeReason) -> None:
    segment = Segment(0, b"", 0, reason, 0, 0, "turn", 0, None, 0)
    flags = {
        FinalizeReason.MANUAL: segment.is_manual_cut,
        FinalizeReason.PAUSE: segment.is_pause_triggered,
        FinalizeReason.TIMEOUT: segment.is_timeout_triggered,
        FinalizeReason.MAX_DURATION: segment.is_max_duration_triggered,
    }
    assert [flagged for flagged, is_set in flags.items() if is_set] == [reason] * (reason in flags)


def test_every_limit_is_the_setting_of_its_name() -> None:
    config = SpeechConfig()
    limits = SegmentLimits.of(config)
    assert limits._asdict() == {name: getattr(config, name) for name in SegmentLimits._fields}
