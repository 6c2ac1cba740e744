"""Settings of sessions: how audio becomes utterances, the order of results, resuming, rooms and pairing."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from mesh.config.base import Bytes, Count, MemoryBytes, Ms, Seconds, Section

#: Milliseconds; 0 switches the rule off.
MsOrNone = Annotated[int, Meta(ge=0, le=86_400_000)]


class SpeechConfig(Section, frozen=True):
    """How streamed audio is finalized into utterances, and the context of an utterance."""

    #: Pause that finalizes an utterance: time between two chunks with audio, or since the last one.
    pause_ms: Ms = 3_000
    #: Length of the audio at which an utterance is finalized in the middle of speech.
    max_duration_ms: Ms = 20_000
    #: Size of the audio beyond which an utterance is finalized in the middle of speech. Also bounds the chunks that
    #: wait for an earlier one.
    utterance_bytes_max: Bytes = 500 * 1024
    #: Time that a finalize by the client (is_final) waits for missing chunks. Then the utterance goes without them.
    hangover_manual_ms: MsOrNone = 200
    #: Time that a finalize after a pause waits for missing or late chunks. Then the utterance goes without them.
    hangover_auto_ms: MsOrNone = 150
    #: Silence that the node appends to an utterance that the client finalized.
    padding_manual_ms: MsOrNone = 280
    #: Silence that the node appends to an utterance that a pause or `max_duration_ms` finalized.
    padding_auto_ms: MsOrNone = 220
    #: Minimum utterance length: shorter audio before a pause waits `short_merge_wait_ms` to be merged with the next.
    short_merge_ms: MsOrNone = 400
    #: Additional time that audio shorter than `short_merge_ms` waits for more speech. Then it is finalized alone.
    short_merge_wait_ms: MsOrNone = 1_000
    #: Upper bound of one playback. Pauses do not count while the client plays a result; a client that reports no end
    #: counts as playing for this long.
    playing_ms_max: Ms = 60_000
    #: Messages in the inbound queue of one session. The client gets SLOW_DOWN from half of it, PAUSE from three
    #: quarters; beyond it a message is refused with BUSY.
    events_max: Annotated[int, Meta(ge=8, le=10_000)] = 200
    #: Bytes in the inbound queue of one session, with the same thresholds as `events_max`.
    events_bytes_max: Bytes = 4 * 1024 * 1024
    #: How far ahead of the expected chunk another may be and wait for it. One further ahead begins a new numbering.
    chunks_early_max: Annotated[int, Meta(ge=1, le=1_000)] = 64
    #: Time without any message but heartbeats after which the client gets session_idle. The session stays open.
    idle_ms: Ms = 60_000
    #: Time after the last result was played after which an utterance begins a new context group.
    group_window_ms: Ms = 2_000
    #: Results of a context group that are kept as context of the next utterance. Beyond it the oldest is evicted.
    group_parts_max: Annotated[int, Meta(ge=1, le=64)] = 8
    #: Characters of context (context_text) that a node gets with an utterance. Beyond it the oldest text is cut off.
    context_chars_max: Annotated[int, Meta(ge=1, le=65_536)] = 800


class SessionConfig(Section, frozen=True):
    """Life of a session, the order of its results, resuming and mail."""

    #: Life of a session's record and mail in Redis without a renewal. Then the session cannot be resumed.
    idle_ttl_seconds: Seconds = 3_600
    #: Time that a detached session waits for its client to resume. Then it is closed. Also the timeout of a message
    #: that is relayed between members of a room.
    resume_ms: Ms = 60_000
    #: Maximum detached sessions per edge; beyond it the oldest is evicted (resumable from Redis).
    away_max: Count = 10_000
    #: Time that a closing session waits for pending results. Then they are cancelled.
    close_ms: Ms = 10_000
    #: Head-of-line timeout: how long later results wait for a missing one before it is reported as
    #: missing_result(gap_timeout).
    gap_ms: Ms = 10_000
    #: Results of one session that wait for an earlier one. Beyond it the latest index is evicted and reported as
    #: missing_result(pending_overflow_evict). Also how far ahead an utterance index may be.
    pending_max: Count = 200
    #: Unacknowledged results of one client (resumable sessions). From it on the session's messages are not handled,
    #: and backpressure slows the client.
    unacked_max: Count = 200
    #: Unacknowledged results in bytes, with the same consequence as `unacked_max`. Beyond twice as much the session is
    #: closed with SESSION_CLOSED.
    unacked_bytes_max: Bytes = 8 * 1024 * 1024
    #: Entries in the mail of a detached session; beyond it the oldest is evicted, and session_init_ack reports `lost`
    #: at the resume. Also bounds an edge's relay queue per (sender, receiver); beyond it a message is dropped.
    mail_max: Count = 200
    #: Bytes in the mail of a detached session, and in an edge's relay queue per (sender, receiver), with the same
    #: consequences as `mail_max`.
    mail_bytes_max: MemoryBytes = 16 * 1024 * 1024
    #: Bytes of mail in one reply; the rest follows in further replies.
    mail_page_bytes_max: Bytes = 2 * 1024 * 1024


class RoomsConfig(Section, frozen=True):
    """Rooms."""

    #: Members of one room. Beyond it a session is refused with ROOM_FULL.
    members_max: Annotated[int, Meta(ge=2, le=1_000)] = 32
    #: Rooms of the deployment, spread evenly over the cells. Beyond it a room is refused with TOO_MANY_ROOMS.
    rooms_max: Count = 10_000
    #: Idle timeout: a room without speech for this long is closed, and its members get room_expired.
    silent_ms: Ms = 1_800_000
    #: Interval of the scan for idle rooms.
    scan_ms: Ms = 60_000
    #: Pending WebRTC signals of one member. Beyond it a signal is refused with SLOW_DOWN.
    signals_max: Count = 64
    #: Largest WebRTC signal. A larger one is refused with MESSAGE_TOO_LARGE.
    signal_bytes_max: Bytes = 64 * 1024
    #: Attempts to find a free random code. After as many the request for a room is refused.
    code_tries_max: Annotated[int, Meta(ge=1, le=100)] = 16


class PairingConfig(Section, frozen=True):
    """Pairing codes, by which a client chooses a node."""

    #: Life of a pairing code. Then it is refused with INVALID_PAIRING_CODE.
    ttl_ms: Ms = 300_000
    #: Codes that one node gets per window. Beyond it a request is refused with SLOW_DOWN.
    codes_per_node_max: Count = 6
    #: Wrong codes that one client may present per window. Beyond it every code is refused with SLOW_DOWN.
    wrong_per_client_max: Count = 10
    #: Length of the window of `codes_per_node_max` and `wrong_per_client_max`.
    window_ms: Ms = 60_000
