from __future__ import annotations

import msgspec
import pytest

from mesh import frames
from mesh.frames.nodes import NodeCaps, NodeHeartbeat, NodeLoad
from tests.support.builders.golden_frames import plain


@pytest.mark.parametrize("jobs", [None, [], ["job-00-a#1"]])
def test_heartbeat_tells_unknown_jobs_from_none(jobs: list[str] | None) -> None:
    beat = NodeHeartbeat("n", "edge:a", 1, NodeLoad(), jobs=jobs)
    again = frames.decode_frame(frames.encode(beat))
    assert isinstance(again, NodeHeartbeat)
    assert again.jobs == jobs
    assert again.caps is None


def test_caps_of_older_edge_have_no_models_and_any_pair() -> None:
    required = sum(field.required for field in msgspec.structs.fields(NodeCaps))
    array = msgspec.msgpack.decode(frames.encode(plain(NodeCaps)))
    older = msgspec.msgpack.decode(msgspec.msgpack.encode(array[:required]), type=NodeCaps)
    assert (older.models, older.pairs, older.region, older.tenant_id) == ([], [], "", "")
