"""SessionLimits: the bounds that a session's core obeys. One object for all sessions of an edge."""

from __future__ import annotations

from typing import NamedTuple

from edge.audio.core import segment
from edge.sessions.core import lifetime
from edge.sessions.core.results import result_order
from edge.sessions.core.utterances import groups


class SessionLimits(NamedTuple):
    """From the configuration."""

    order: result_order.ResultOrderLimits
    groups: groups.GroupLimits
    segments: segment.SegmentLimits
    life: lifetime.LifetimeLimits
    #: Messages of the client that wait for their turn.
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
    #: How long a session that is closing waits for its results, and a request for its own.
    close_ms: int
    deadline_ms: int
