from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh import frames
from mesh.frames import AnyFrame, Frame, Head, Lane, Role, Work
from tests.support.builders.golden_frames import plain

FRAMES: tuple[type[Frame], ...] = get_args(AnyFrame)
STRUCTS: tuple[type[msgspec.Struct], ...] = (Head, Work, frames.NodeCaps, frames.NodeLoad, frames.RoomMember, *FRAMES)
#: Frames with audio or a result, or that may wait behind them without harm.
WORK_FRAMES = {
    frames.NodeRegister,
    frames.NodeRegistered,
    frames.NodeHeartbeat,
    frames.Failed,
    frames.SessionClaim,
    frames.SessionClaimed,
    frames.Dispatch,
    frames.Assign,
    frames.Notice,
    frames.JobDone,
    frames.Push,
    frames.Query,
    frames.QueryAnswer,
    frames.MailAsk,
    frames.Mail,
    frames.Post,
    frames.RoomRequest,
    frames.RoomState,
    frames.RoomSignal,
    frames.PairingAsk,
    frames.PairingCode,
    frames.PairingUse,
    frames.Paired,
}


#: Frame name -> its sample in hex.
GOLDEN = dict(line.split() for line in Path(__file__).with_name("golden_frames.txt").read_text().splitlines())


def name_of(cls: type) -> str:
    return cls.__name__


#: Values at the edges of each type; a sample takes them in turn.
POOLS: dict[Any, list[Any]] = {
    int: [0, 1, 2**63 - 1, -(2**63), 1_767_225_600_000],
    float: [0.0, -1.5, 99.999, 1e300],
    str: ["", "edge:a:0011aabb", "\u00fcn\u00efc\u00f6d\u00e9 \U0001f600", "x" * 300],
    bool: [True, False],
    list[str]: [[], ["en", "zh"], ["a"] * 100],
    list[int]: [[], [0], [2**63 - 1] * 9],
    list[frames.ResultAck]: [[], [frames.ResultAck("n", "job-00-1", 1, "delivered")] * 2],
    list[frames.FinishedJob]: [[], [frames.FinishedJob("n", "job-00-1", 1)] * 64],
    dict[str, int]: [{}, {"slot": 3, "language": 0}],
    dict[str, list[str]]: [{}, {"required": ["asr", "tts"], "session_id": []}],
    dict[str, bool]: [{}, {"use_asr": True, "use_tts": False}],
    list[frames.RoomMember]: [[], [frames.RoomMember("s-1", "Ann", "en", 1, {"s-2": False})]],
}


def sample(kind: type[msgspec.Struct], turn: int) -> Any:
    """A `kind` whose values are picked by `turn`."""
    hints = get_type_hints(kind)
    fields = msgspec.structs.fields(kind)
    return kind(*[_value(hints[field.name], turn + place) for place, field in enumerate(fields)])


def _value(hint: Any, turn: int) -> Any:
    members = [member for member in get_args(hint) if member is not type(None)]
    if type(None) in get_args(hint):
        return None if turn % 3 == 0 else _value(members[0], turn)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return sample(hint, turn)
    pool = POOLS[hint]
    return pool[turn % len(pool)]


@pytest.mark.parametrize("turn", range(7))
@pytest.mark.parametrize("kind", FRAMES, ids=name_of)
def test_frame_round_trips(kind: type[Frame], turn: int) -> None:
    frame = sample(kind, turn)
    again = frames.decode_frame(frames.encode(frame))
    assert type(again) is kind
    assert again == frame


@pytest.mark.parametrize("turn", range(7))
def test_head_and_work_round_trip(turn: int) -> None:
    head, work = msgspec.structs.replace(sample(Head, turn), lane=turn % 2), sample(Work, turn)
    assert frames.decode_head(frames.encode(head)) == head
    assert frames.decode_work(frames.encode(work)) == work


def test_union_lists_every_frame_class_once() -> None:
    declared = {
        value
        for value in vars(frames).values()
        if isinstance(value, type) and issubclass(value, Frame) and value is not Frame
    }
    assert declared == set(FRAMES)
    assert len(FRAMES) == len(set(FRAMES))


def test_facade_exports_every_frame_struct_and_function() -> None:
    modules = (frames.base, frames.jobs, frames.link, frames.nodes, frames.operators, frames.sessions)
    public = {
        name
        for module in modules
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    }
    assert public - {"FrameMeta"} <= set(frames.__all__)
    assert all(hasattr(frames, name) for name in frames.__all__)


def test_every_frame_has_its_lane() -> None:
    assert {frame for frame in FRAMES if frame.lane is Lane.WORK} == WORK_FRAMES
    assert {frame.lane for frame in set(FRAMES) - WORK_FRAMES} == {Lane.CONTROL}
    assert frames.lane_of(frames.Goodbye()) is Lane.CONTROL
    assert frames.lane_of(frames.SessionClaimed(ref="r", session_id="s", epoch=1)) is Lane.WORK


def test_every_frame_has_receivers() -> None:
    assert frames.frames_to(Role.BROKER) == {frames.Beat, frames.Credit, frames.Goodbye}
    assert frames.frames_to(Role.LINK) == {frames.BrokerBeat}
    assert frames.frames_to(Role.EDGE) & frames.frames_to(Role.SELECTOR) == {frames.Bounce, frames.Post}
    assert set(FRAMES) == frozenset().union(*(frames.frames_to(role) for role in Role))


@pytest.mark.parametrize("kind", FRAMES, ids=name_of)
def test_bytes_of_frame_match_the_record(kind: type[Frame]) -> None:
    """A peer of another release reads these bytes. New fields go last: append to the record, change nothing in it."""
    assert frames.encode(plain(kind)).hex() == GOLDEN[kind.__name__]
    assert frames.decode_frame(bytes.fromhex(GOLDEN[kind.__name__])) == plain(kind)


@pytest.mark.parametrize("kind", STRUCTS, ids=name_of)
def test_fields_with_defaults_come_last(kind: type[msgspec.Struct]) -> None:
    required = [field.required for field in msgspec.structs.fields(kind)]
    assert required == sorted(required, reverse=True)


@pytest.mark.parametrize("kind", FRAMES, ids=name_of)
def test_decoder_ignores_field_appended_by_newer_peer(kind: type[Frame]) -> None:
    frame = sample(kind, 1)
    array = msgspec.msgpack.decode(frames.encode(frame))
    assert frames.decode_frame(msgspec.msgpack.encode([*array, "from the future", 1])) == frame


@pytest.mark.parametrize("kind", FRAMES, ids=name_of)
def test_decoder_accepts_frame_of_older_peer_without_defaulted_fields(kind: type[Frame]) -> None:
    required = sum(field.required for field in msgspec.structs.fields(kind))
    frame = sample(kind, 1)
    array = msgspec.msgpack.decode(frames.encode(frame))
    older = frames.decode_frame(msgspec.msgpack.encode(array[: 1 + required]))
    assert msgspec.structs.astuple(older)[:required] == msgspec.structs.astuple(frame)[:required]


def is_garbage(content: bytes) -> bool:
    """True unless `content` is an array that could be a frame, a head or a Work."""
    try:
        tree = msgspec.msgpack.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return not isinstance(tree, list) or (len(tree) < 6 and tree[:1] != ["Goodbye"])


@given(st.binary(max_size=100).filter(is_garbage))
@settings(max_examples=200, deadline=None)
def test_decoders_refuse_arbitrary_bytes(content: bytes) -> None:
    for decode in (frames.decode_frame, frames.decode_head, frames.decode_work):
        with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
            decode(content)


@pytest.mark.parametrize("kind", FRAMES, ids=name_of)
def test_decoder_refuses_every_truncated_frame(kind: type[Frame]) -> None:
    content = bytes.fromhex(GOLDEN[kind.__name__])
    for size in range(len(content)):
        with pytest.raises(msgspec.DecodeError):
            frames.decode_frame(content[:size])


@pytest.mark.parametrize(
    "content", [b"", b"\xc1", msgspec.msgpack.encode(["Nonsense"]), msgspec.msgpack.encode({}), b"\x91" * 50_000]
)
def test_decoder_refuses_malformed_frame_with_a_catchable_error(content: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        frames.decode_frame(content)
