"""Events that rooms raise for a session: replies to its calls, and messages from and to other members. No rules."""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.core.record import Record
from edge.rooms.core.relay_queue import RelayMessage
from mesh.frames import Failed, Post, Posted, RoomState

#: Outcome of a relay that no frame carries: the listener left this edge before it acknowledged.
MOVED: Final = "moved"


class RoomCall(NamedTuple):
    """A call to the cell of a room (RoomRequest), as data: its reply comes back with it."""

    action: str
    code: str
    #: On behalf of this member; "" = the session itself.
    member: str = ""
    display_name: str = ""
    preferred_lang: str = ""
    #: prefer: whose voice, and whether.
    target: str = ""
    wanted: bool = True


class RoomReplied(Record, frozen=True):
    """The reply to a call; None: none came in time."""

    call: RoomCall
    reply: RoomState | Failed | None


class SignalReplied(Record, frozen=True):
    """The reply to a webrtc_* signal; None: none came in time."""

    reply: Posted | Failed | None


class RelayReceived(Record, frozen=True):
    """A message of another session for this one's client, as JSON text in `body`.

    `queue`: the local queue that waits for the outcome; "" = it came through the mesh, or from the mail, whose
    `post.edge` is "".
    """

    post: Post
    body: bytes
    queue: str = ""


class RelayCompleted(Record, frozen=True):
    """The outcome of a message to another session: a verdict of Posted, "no_answer" or "dropped"."""

    message: RelayMessage
    verdict: str


def numbered_key(of: str, number: int) -> str:
    """The deduplication key of a numbered message: a speaker's results by index, a room's member lists by version."""
    return f"{of}/{number}"


def read_key(key: str) -> tuple[str, int]:
    """The two parts of a `numbered_key`."""
    of, _, number = key.rpartition("/")
    return of, int(number)
