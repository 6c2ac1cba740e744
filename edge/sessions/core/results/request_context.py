"""Request context: the facts about a request that its result needs. Holds no rules."""

from __future__ import annotations

from edge.core.record import Record
from edge.sessions.core.utterances.groups import GroupPosition


class RequestContext(Record, frozen=True):
    """One request for one utterance."""

    index: int
    #: "" = for the client itself; in a room the language, whose listeners have an order of their own.
    language: str
    listeners: tuple[str, ...]
    trace_id: str
    #: The last chunk of a streamed one.
    last_seq: int | None = None
    #: Time of its first audio from the client to this edge.
    uplink_ms: int | None = None
    position: GroupPosition | None = None
    #: Of several requests for one utterance, the one whose progress the speaker sees.
    is_first: bool = True
    #: Audio of the request, until its outcome.
    audio_bytes: int = 0
