from __future__ import annotations

import types
from typing import Any

import pytest

from mesh import frames
from mesh.frames.base import BROKER, FRAME_VERSION, Frame, Head, Lane, Role
from tests.support.builders.golden_frames import plain


@pytest.mark.parametrize("arguments", [{}, {"to": Role.EDGE}, {"lane": Lane.WORK}])
def test_frame_without_receiver_or_lane_is_a_type_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="to= and lane="):
        types.new_class("Lost", (Frame,), {"frozen": True, **arguments})


def test_class_arguments_are_no_fields() -> None:
    assert frames.Credit.__struct_fields__ == ("consumed",)
    assert frames.Credit(1).to is Role.BROKER


def test_name_of_the_broker_is_no_identity() -> None:
    assert BROKER.startswith("@")
    assert FRAME_VERSION == 2


def test_bytes_of_head_match_the_record() -> None:
    """Brokers of another release read these bytes."""
    assert frames.encode(plain(Head)).hex() == "9601a2746f03a6736f757263650506"
