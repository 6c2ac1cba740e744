from __future__ import annotations

from lua.store.types.nodes import Drained, HeartbeatReply
from mesh.frames import ControlNode, NodeHeartbeat, NodeLoad, NodeStale, StatusChanged
from selector.fleet.core import node_replies


def test_a_change_of_status_and_a_drain_go_to_the_edge_that_has_the_node() -> None:
    changed = node_replies.on_status("n", "edge:b:1", 7, "degraded", "unhealthy")
    assert changed == ("edge:b:1", StatusChanged("n", 7, "degraded", "unhealthy"))
    assert node_replies.on_status("n", "", 7, "offline", "closed") is None
    drained = Drained(True, "draining", "edge:b:1", 7, 99)
    assert node_replies.on_drained("n", drained, "update", 5_000) == (
        "edge:b:1",
        ControlNode("n", 7, "drain", "update", 5_000),
    )
    assert node_replies.on_drained("n", drained, "update", 0).frame == ControlNode("n", 7, "resume", "update", 0)


def test_a_heartbeat_is_answered_only_if_its_connection_is_not_in_force() -> None:
    beat = NodeHeartbeat("n", "edge:b:1", 7, NodeLoad())
    assert node_replies.on_beaten(beat, HeartbeatReply("ok", 1, 1)) is None
    for verdict in ("superseded", "unknown"):
        answer = node_replies.on_beaten(beat, HeartbeatReply(verdict, 0, 0))  # type: ignore[arg-type]
        assert answer == ("edge:b:1", NodeStale("n", 7, verdict))


def test_the_edge_of_a_node_that_redis_lost_registers_it_again() -> None:
    assert node_replies.on_lost("n", "edge:b:1", 7) == ("edge:b:1", NodeStale("n", 7, "unknown"))
