from __future__ import annotations

from lua.view import NodeView, pack_caps, pack_load, unpack_view
from mesh.frames import NodeCaps, NodeLoad


def test_a_view_survives_packing() -> None:
    caps = NodeCaps("1", "linux", 8, 16.5, 1, 8.0, ["asr"], [], ["en"], ["es", "zh"], [], True, 4, "eu", "a", "t")
    load = NodeLoad(12.5, 0.0, 32.0, 3)  # 32.0 and others pack to bytes that may look like blanks
    now = b"1794800272565 ready edge:a:0001 " + pack_load(load)
    view = unpack_view("node-1", pack_caps(caps), now)
    assert view == NodeView("node-1", "edge:a:0001", 1794800272565, "ready", caps, load)
