"""What an operator and an edge say to one another on /ws/control: what changes things, and is no GET therefore."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, get_args

from mesh.messages.base import Codec, Id, Line, Message, Whole, Word


class Drain(Message, frozen=True, kw_only=True):
    """Give the node no more work, and hand over what it has not finished `deadline_ms` from now; or take that back."""

    node_id: Id
    deadline_ms: Whole | None = None
    reason: Line | None = None
    resume: bool = False


class Pair(Message, frozen=True, kw_only=True):
    """A code by which a client can choose this node; the code that the node had before ends."""

    node_id: Id


class WeightsSet(Message, frozen=True, kw_only=True):
    """Put these weights in force, if the version in force is the expected one."""

    weights: dict[Word, Any]
    expected_version: Whole | None = None
    by: Word | None = None


class Done(Message, frozen=True, kw_only=True):
    """The command was carried out."""

    status: int
    answer: Any


class ControlError(Message, frozen=True, kw_only=True, tag="error"):
    """It was not, or nobody can tell; `status` as in HTTP."""

    status: int
    code: Word
    message: Line


Command: TypeAlias = Drain | Pair | WeightsSet
ControlAnswer: TypeAlias = Done | ControlError
FROM_OPERATOR: Final[Codec[Command]] = Codec(Command, get_args(Command))


def decode_command(text: str | bytes) -> Command:
    """The operator's command in `text`; PeerError(INVALID_MESSAGE) if it is malformed."""
    return FROM_OPERATOR.decode(text)
