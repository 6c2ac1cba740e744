"""Settings of speaking: how audio becomes utterances, results in order, resuming, rooms and pairing."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from mesh.config.base import Bytes, Count, MemoryBytes, Ms, Seconds, Section

#: Milliseconds that may be none at all.
MsOrNone = Annotated[int, Meta(ge=0, le=86_400_000)]


class SpeechConfig(Section, frozen=True):
    """How streamed audio is cut into utterances."""

    #: So long without audio ends an utterance.
    pause_ms: Ms = 3_000
    #: More sound, or more bytes, than this in one utterance ends it in the middle of speech.
    max_duration_ms: Ms = 20_000
    utterance_bytes_max: Bytes = 500 * 1024
    #: A cut waits this long for chunks before it that are late: when the client asked for it, and otherwise.
    hangover_manual_ms: MsOrNone = 200
    hangover_auto_ms: MsOrNone = 150
    #: Silence that the node appends.
    padding_manual_ms: MsOrNone = 280
    padding_auto_ms: MsOrNone = 220
    #: Less sound than this before a pause is no utterance of its own: it waits so much longer for what follows.
    short_merge_ms: MsOrNone = 400
    short_merge_wait_ms: MsOrNone = 1_000
    #: A pause does not count while the client plays a result; longer than this nobody is believed to play one.
    playing_ms_max: Ms = 60_000
    #: Messages of one client that wait for their turn; the client is asked to slow down at half of it.
    events_max: Annotated[int, Meta(ge=8, le=10_000)] = 200
    #: The same in bytes.
    events_bytes_max: Bytes = 4 * 1024 * 1024
    #: Chunks that may come too early, while an earlier one is missing.
    chunks_early_max: Annotated[int, Meta(ge=1, le=1_000)] = 64
    #: A client from which only heartbeats came for so long is told that its session is idle.
    idle_ms: Ms = 60_000
    #: So long after the last result was played, the next utterance begins a new group.
    group_window_ms: Ms = 2_000
    group_parts_max: Annotated[int, Meta(ge=1, le=64)] = 8
    context_chars_max: Annotated[int, Meta(ge=1, le=65_536)] = 800


class SessionConfig(Section, frozen=True):
    """Life of a session, and the order of its results."""

    #: Of its record in Redis, without a sign of life.
    idle_ttl_seconds: Seconds = 3_600
    #: A session whose client can resume is kept so long after its connection was lost.
    resume_ms: Ms = 60_000
    #: So many at one edge; of more, the longest absent is left to its mail.
    away_max: Count = 10_000
    #: A session that its client closes waits so long for results that are under way.
    close_ms: Ms = 10_000
    #: A result that later ones wait for may take so long; then its index is missing.
    gap_ms: Ms = 10_000
    #: Results that wait for an earlier one; beyond that the farthest is given up. An index may not be further ahead.
    pending_max: Count = 200
    #: Results told to a client that acknowledges them and has not yet done so; beyond that it is asked to slow down.
    unacked_max: Count = 200
    #: The same in bytes. A client that lets twice as much gather is given up.
    unacked_bytes_max: Bytes = 8 * 1024 * 1024
    #: Entries in the mail of a session that is away, and their bytes; the oldest are dropped, and the client is told.
    mail_max: Count = 200
    mail_bytes_max: MemoryBytes = 16 * 1024 * 1024
    #: Bytes of mail that one answer carries.
    mail_page_bytes_max: Bytes = 2 * 1024 * 1024


class RoomsConfig(Section, frozen=True):
    """Rooms."""

    members_max: Annotated[int, Meta(ge=2, le=1_000)] = 32
    #: In the whole deployment; each cell has its part.
    rooms_max: Count = 10_000
    #: A room in which nobody spoke for so long is closed; looked for so often.
    silent_ms: Ms = 1_800_000
    scan_ms: Ms = 60_000
    #: Signals of one member that may be on their way to others, and the bytes of one.
    signals_max: Count = 64
    signal_bytes_max: Bytes = 64 * 1024
    #: Random codes tried before a request for a room is refused.
    code_tries_max: Annotated[int, Meta(ge=1, le=100)] = 16


class PairingConfig(Section, frozen=True):
    """Pairing codes."""

    ttl_ms: Ms = 300_000
    #: Codes that one node may ask for, and wrong ones that one client may try, in a window.
    codes_per_node_max: Count = 6
    wrong_per_client_max: Count = 10
    window_ms: Ms = 60_000
