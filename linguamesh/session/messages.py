"""Builds the messages of a session from the user's arguments. Pure but for the time of a heartbeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from linguamesh.errors import SessionError
from linguamesh.session.results import Translation
from mesh.clock import wall_ms
from mesh.messages import client as wire
from mesh.messages.base import encode_utf8
from mesh.random_ids import new_trace_id

CLIENT_VERSION: Final = "linguamesh-0.1.0"
PLATFORM: Final = "api-gateway"


def session_init(
    src: str,
    tgt: str,
    sample_rate: int,
    audio_formats: Sequence[str],
    binary_frames: bool,
    resume: bool,
    options: dict[str, Any],
) -> wire.SessionInit:
    """session_init of a new session."""
    return wire.SessionInit(
        client_version=CLIENT_VERSION,
        platform=PLATFORM,
        src_lang=src,
        tgt_lang=tgt,
        sample_rate=sample_rate,
        audio_formats=list(audio_formats),
        binary_frames=binary_frames,
        resumable=resume,
        **options,
    )


def codec_of(init: wire.SessionInit, ack: wire.SessionInitAck | None) -> str:
    """The codec of streamed audio: the negotiated one, or the first offer."""
    negotiated = (ack.negotiated_codec or ack.negotiated_audio_format) if ack else None
    return (negotiated or (init.audio_formats or ["pcm16"])[0]).lower()


def utterance(audio_format: str, sample_rate: int, src: str, tgt: str, options: dict[str, Any]) -> wire.Utterance:
    """utterance without its audio; session and index are set when it is sent. The trace id makes a retry the same
    job. TypeError or ValueError if an option is no JSON."""
    message = wire.Utterance(
        session_id="",
        utterance_index=0,
        manual_cut=options.pop("manual_cut", True),
        src_lang=src,
        tgt_lang=tgt,
        audio_format=audio_format,
        sample_rate=sample_rate,
        trace_id=options.pop("trace_id", None) or new_trace_id(),
        **options,
    )
    if options:
        encode_utf8(message)  # now, where its caller sees the error
    return message


def error_from(message: wire.ErrorMessage) -> SessionError:
    """`error` as the user sees it."""
    return SessionError(message.code, message.message, message.details if isinstance(message.details, dict) else None)


def heartbeat(session_id: str) -> wire.ClientHeartbeat:
    """client_heartbeat."""
    return wire.ClientHeartbeat(session_id=session_id, timestamp=wall_ms())


def session_close(session_id: str) -> wire.SessionClose:
    """session_close."""
    return wire.SessionClose(session_id=session_id, reason="client closed")


def tts_started(session_id: str, translation: Translation, now_ms: int) -> wire.TtsStarted:
    """tts_started of a result."""
    return wire.TtsStarted(
        session_id=session_id, trace_id=translation.trace_id, group_id=_group(translation), ts_start_ms=now_ms
    )


def tts_ended(session_id: str, translation: Translation, now_ms: int) -> wire.TtsPlayEnded:
    """tts_play_ended of a result."""
    return wire.TtsPlayEnded(
        session_id=session_id, trace_id=translation.trace_id, group_id=_group(translation), ts_end_ms=now_ms
    )


def _group(translation: Translation) -> str:
    return (translation.message.group_id if translation.message else None) or ""
