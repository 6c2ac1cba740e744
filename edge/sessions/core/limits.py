"""SessionLimits: the bounds of a session's core. One object for all sessions of an edge."""

from __future__ import annotations

from typing import NamedTuple

from edge.audio.core import segment
from edge.sessions.core.lifetime import LifetimeLimits
from edge.sessions.core.results import result_order
from edge.sessions.core.utterances import groups


class SessionLimits(NamedTuple):
    """From the configuration."""

    order: result_order.ResultOrderLimits
    groups: groups.GroupLimits
    segments: segment.SegmentLimits
    lifetime: LifetimeLimits
    #: Bounds of the inbound queue.
    inbound_max: int
    inbound_bytes_max: int
    #: Requests of the session without a result, and the audio of all such requests: of the session, of the edge.
    pending_max: int
    audio_per_session_bytes_max: int
    audio_bytes_max: int
    #: Results that the client has not acknowledged. At twice the bytes the session is ended.
    unacked_max: int
    unacked_bytes_max: int
    signals_max: int
    signal_bytes_max: int
    #: Timeouts: of a closing session for its results, of a request for its outcome.
    close_ms: int
    deadline_ms: int
