from __future__ import annotations

import msgspec

from mesh import frames
from mesh.frames.base import Lane
from mesh.frames.link import Beat, Bounce, BrokerBeat, Busy, Credit, Goodbye
from mesh.words import ProcessKind


def test_frames_of_a_link_overtake_work() -> None:
    for kind in (Beat, BrokerBeat, Credit, Busy, Bounce, Goodbye):
        assert kind.lane is Lane.CONTROL


def test_beat_of_older_peer_is_not_draining() -> None:
    beat = frames.decode_frame(msgspec.msgpack.encode(["Beat", "selector", 8, 3]))
    assert beat == Beat(ProcessKind.SELECTOR, 8, 3, draining=False)
