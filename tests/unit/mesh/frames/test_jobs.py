from __future__ import annotations

import msgspec

from mesh import frames
from mesh.frames.jobs import Dispatch, Work, pair_of
from tests.support.builders.golden_frames import plain

#: Every field of Work, as `plain` fills it.
WORK = (
    "dc0017a87372635f6c616e67a87467745f6c616e67ac617564696f5f666f726d61740481a8706970656c696e65c3a8747261"
    "63655f6964a76469616c65637481a86665617475726573c3a46d6f6465a66c616e675f61a66c616e675f6291aa6175746f5f"
    "6c616e6773c30ea867726f75705f696410ac636f6e746578745f7465787412c3c3c3c3a77475726e5f6964"
)


def test_pair_is_directed() -> None:
    assert pair_of("zh", "en") == "zh>en"
    assert pair_of("en", "zh") != pair_of("zh", "en")


def test_bytes_of_work_match_the_record() -> None:
    """Edges of another release read these bytes."""
    assert frames.encode(plain(Work)).hex() == WORK


def test_dispatch_of_older_peer_is_no_hedge_and_excludes_no_node() -> None:
    required = sum(field.required for field in msgspec.structs.fields(Dispatch))
    array = msgspec.msgpack.decode(frames.encode(plain(Dispatch)))
    older = frames.decode_frame(msgspec.msgpack.encode(array[: 1 + required]))
    assert isinstance(older, Dispatch)
    assert (older.beside, older.excluded, older.preferred_node, older.models) == (False, [], "", [])
