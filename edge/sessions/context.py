"""Tools: what all actors of an edge share, and what each may ask of those around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from edge.audio.core.segment import Segment
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.sessions.core.result_order import Missing, Release
from edge.sessions.core.session import FinalizedUtterance
from mesh.config import Config
from mesh.frames import Push
from mesh.messages.base import Message

if TYPE_CHECKING:
    from edge.sessions.actor import Actor


class Unposted(NamedTuple):
    """A message of another member, whose senders wait until the client has it: more than one, if the member moved."""

    body: bytes
    #: By the edge that sent it.
    answers: dict[str, Callable[[str], None]]


class Speak(Protocol):
    """Sends what was spoken on its way, and knows what becomes of it."""

    def has_room(self, actor: Actor, spoken: FinalizedUtterance) -> bool:
        """False while the mesh takes no more of this session."""

    def accept(self, actor: Actor, spoken: FinalizedUtterance) -> None:
        """Find nodes for it."""

    def refused(self, actor: Actor, cut: Segment, trace_id: str) -> None:
        """It can never be sent."""

    def told(self, actor: Actor, lane: str, turns: list[Release | Missing]) -> None:
        """Whose turn it is."""


class SessionContext(NamedTuple):
    """Given to every actor."""

    config: Config
    link: EdgeLink
    metrics: EdgeMetrics
    speak: Speak
    #: What is done with each kind of message that is not audio.
    handlers: dict[type[Message], Callable[[Actor, Any], None]]
    #: Tells the keeper of a result that it is in good hands.
    acknowledge: Callable[[Push], None]
    #: Called after anything that may have moved a due time.
    arm: Callable[[Actor], None]
    #: Called for a session whose client takes its results and never says so.
    give_up: Callable[[Actor, str], None]
    #: Called when everything that a closing session waited for is done, or its time is up.
    closed: Callable[[Actor], None]
