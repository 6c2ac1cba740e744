from __future__ import annotations

from mesh import frames
from mesh.frames.operators import EdgeReport, Query
from mesh.words import EdgeCount, QueryKind


def test_query_keeps_repeated_and_empty_parameters() -> None:
    query = Query("r", "edge:a", QueryKind.SIMULATE, {"required": ["asr", "tts"], "region": []})
    assert frames.decode_frame(frames.encode(query)) == query


def test_report_counts_by_plain_word() -> None:
    report = EdgeReport("edge:a", "host", 1, "1.0", 2, {EdgeCount.IN_FLIGHT: 3})
    again = frames.decode_frame(frames.encode(report))
    assert isinstance(again, EdgeReport)
    assert again.counts == {"in_flight": 3}
