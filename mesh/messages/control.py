"""Messages between operators and edges on /ws/control: commands, which change state and are therefore no HTTP GET."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, get_args

from mesh.messages.base import Codec, Id, Line, Message, Whole, Word


class Drain(Message, frozen=True, kw_only=True):
    """Drain the node: no more jobs; unfinished ones go to other nodes after `deadline_ms`. `resume` cancels a drain."""

    node_id: Id
    deadline_ms: Whole | None = None
    reason: Line | None = None
    resume: bool = False


class Pair(Message, frozen=True, kw_only=True):
    """Issue a code by which a client can choose this node; revokes the node's previous code."""

    node_id: Id


class WeightsSet(Message, frozen=True, kw_only=True):
    """Replace the weights of the deployment, if their version is the expected one."""

    weights: dict[Word, Any]
    expected_version: Whole | None = None
    by: Word | None = None


class Done(Message, frozen=True, kw_only=True):
    """The command was executed."""

    status: int
    answer: Any


class ControlError(Message, frozen=True, kw_only=True, tag="error"):
    """The command failed, or its effect is unknown; `status` as in HTTP."""

    status: int
    code: Word
    message: Line


Command: TypeAlias = Drain | Pair | WeightsSet
ControlAnswer: TypeAlias = Done | ControlError
FROM_OPERATOR: Final[Codec[Command]] = Codec(Command, get_args(Command))


def decode_command(text: str | bytes) -> Command:
    """The operator's command in `text`; PeerError(INVALID_MESSAGE) if it is malformed."""
    return FROM_OPERATOR.decode(text)
