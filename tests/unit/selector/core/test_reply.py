from __future__ import annotations

from mesh.frames import Failed
from selector.core.reply import store_down


def test_an_edge_gets_an_error_at_once_when_redis_is_unavailable() -> None:
    down = store_down("ref", "edge:a:1")
    assert isinstance(down.frame, Failed) and (down.to, down.frame.ref) == ("edge:a:1", "ref")
    assert down.frame.code == "SCHEDULER_DEPENDENCY_DOWN"
