"""SessionContext: the dependencies of actors, to run effects. One object for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from edge.audio.core import segment
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.requests.runner import RequestRunner
from edge.rooms.relay import Relay
from edge.rooms.rooms import RoomCalls
from edge.sessions.core import lifetime
from edge.sessions.core.limits import SessionLimits
from edge.sessions.core.results import result_order
from edge.sessions.core.utterances import groups
from mesh.config import Config

if TYPE_CHECKING:
    from edge.sessions.actor import Actor, ClientSocket


class Registry(Protocol):
    """The table of sessions of this edge."""

    def arm(self, actor: Actor, due_ms: int) -> None:
        """Tick the session then."""

    def end(self, actor: Actor, reason: str, pending: int) -> None:
        """Forget a session that is over, and release its ownership."""

    def move(self, actor: Actor, owner: str) -> None:
        """Forget a session that moves to another edge."""

    def close_superseded(self, socket: ClientSocket) -> None:
        """Close a connection whose session has a newer one."""


class SessionContext(NamedTuple):
    """The same for every actor."""

    link: EdgeLink
    metrics: EdgeMetrics
    requests: RequestRunner
    relay: Relay
    rooms: RoomCalls
    registry: Registry


def limits_of(config: Config) -> SessionLimits:
    """The bounds of all sessions, from the configuration."""
    session, speech, edge = config.session, config.speech, config.edge
    return SessionLimits(
        order=result_order.ResultOrderLimits.of(session),
        groups=groups.GroupLimits.of(speech),
        segments=segment.SegmentLimits.of(speech),
        lifetime=lifetime.LifetimeLimits.of(speech, session),
        inbound_max=speech.events_max,
        inbound_bytes_max=speech.events_bytes_max,
        pending_max=edge.utterances_per_session_max,
        audio_per_session_bytes_max=edge.audio_kept_per_session_bytes_max,
        audio_bytes_max=edge.audio_kept_bytes_max,
        unacked_max=session.unacked_max,
        unacked_bytes_max=session.unacked_bytes_max,
        signals_max=config.rooms.signals_max,
        signal_bytes_max=config.rooms.signal_bytes_max,
        close_ms=session.close_ms,
        deadline_ms=config.job.deadline_ms,
    )
