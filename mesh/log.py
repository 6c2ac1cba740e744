"""Structured logs on stderr: one event name and its ids per line, JSON or text.

Event names are stable words ("node_registered"); everything that varies is a field. Audio, text and secrets are never
logged: fields that may contain them are redacted by name, and long values are truncated. Repeated events are
rate-limited per event name; the next line names the number of suppressed ones.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, cast

import structlog
from structlog.contextvars import bound_contextvars as bound  # with bound(job_id=...): adds the id to every line inside
from structlog.typing import FilteringBoundLogger, Processor

from mesh.clock import now_ms
from mesh.config.network import LogConfig

__all__ = ["RepeatLimit", "bound", "configure", "get_logger"]

VALUE_CHARS_MAX: Final = 500
TRACEBACK_CHARS_MAX: Final = 8_000
#: Distinct event names with a rate limit of their own; further ones share one.
EVENTS_MAX: Final = 1_024
_DEPTH_MAX: Final = 3
_ITEMS_MAX: Final = 50

#: Names of fields that are always redacted.
FORBIDDEN: Final = frozenset(
    {"audio", "payload", "text", "text_asr", "text_translated", "tts_audio", "context_text", "sdp", "candidate"}
    | {"token", "resume_token", "authorization", "password", "secret", "pairing_code"}
)
_CREDENTIALS: Final = re.compile(r"://[^/@\s]*@")

Fields = MutableMapping[str, Any]


def configure(config: LogConfig, role: str, identity: str) -> None:
    """Send all logs of this process and its libraries to stderr, in the form of `config`."""
    as_json = config.format == "json" or (config.format == "auto" and not sys.stderr.isatty())
    level = logging.getLevelNamesMapping()[config.level.upper()]
    limit = RepeatLimit(config.repeats_max, config.repeat_window_ms)
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        limit,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _AddProcess(role, identity),
        structlog.processors.format_exc_info,
        redact,
        structlog.processors.JSONRenderer(default=str) if as_json else structlog.dev.ConsoleRenderer(colors=False),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Stderr(),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _FromLibraries)]:
        root.removeHandler(old)
    root.addHandler(_FromLibraries())
    # Libraries log every connection at INFO; our own events cover that, with ids.
    root.setLevel(max(level, logging.WARNING))


def get_logger(**ids: Any) -> FilteringBoundLogger:
    """A logger; `.bind(job_id=...)` returns one that adds the id to each line."""
    return cast(FilteringBoundLogger, structlog.get_logger(**ids))


class RepeatLimit:
    """Rate limit: `repeats_max` lines of one event per window; the next window's first line has `suppressed`."""

    def __init__(self, repeats_max: int, window_ms: int, now: Callable[[], int] = now_ms) -> None:
        self._repeats_max = repeats_max
        self._window_ms = window_ms
        self._now = now
        self._seen: dict[str, tuple[int, int]] = {}  # event -> (start of its window, lines in it)

    def __call__(self, logger: Any, method: str, fields: Fields) -> Fields:
        """A structlog processor."""
        event = str(fields.get("event", ""))[:VALUE_CHARS_MAX]
        if event not in self._seen and len(self._seen) >= EVENTS_MAX:
            event = ""
        now = self._now()
        start, count = self._seen.get(event, (now, 0))
        if now - start >= self._window_ms:
            if count > self._repeats_max:
                fields["suppressed"] = count - self._repeats_max
            start, count = now, 0
        self._seen[event] = (start, count + 1)
        if count >= self._repeats_max:
            raise structlog.DropEvent
        return fields


def redact(logger: Any, method: str, fields: Fields) -> Fields:
    """A structlog processor: redacts private fields and truncates long values."""
    return {name: _clean(name, value, 0) for name, value in fields.items()}


def _clean(name: str, value: Any, depth: int) -> Any:
    if name.lower() in FORBIDDEN:
        return "[redacted]"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping) and depth < _DEPTH_MAX:
        items = list(value.items())[:_ITEMS_MAX]
        return {str(key): _clean(str(key), item, depth + 1) for key, item in items}
    if isinstance(value, list | tuple | set | frozenset) and depth < _DEPTH_MAX:
        return [_clean("", item, depth + 1) for item in list(value)[:_ITEMS_MAX]]
    if depth >= _DEPTH_MAX:
        return f"[{type(value).__name__}]"
    text = _CREDENTIALS.sub("://***@", str(value))
    longest = TRACEBACK_CHARS_MAX if name == "exception" else VALUE_CHARS_MAX
    return text if len(text) <= longest else f"{text[:longest]}... [{len(text)} chars]"


class _AddProcess:
    """Adds role and identity of the process."""

    def __init__(self, role: str, identity: str) -> None:
        self._fields = {"role": role, "identity": identity}

    def __call__(self, logger: Any, method: str, fields: Fields) -> Fields:
        fields.update(self._fields)
        return fields


class _Stderr:
    """Writes whole lines to the current sys.stderr."""

    def msg(self, message: str) -> None:
        try:
            sys.stderr.write(message + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            # The reader of stderr is gone; that must not stop the process.
            pass

    debug = info = warning = warn = error = critical = fatal = exception = log = msg


class _FromLibraries(logging.Handler):
    """Forwards records of `logging`. Their text is no stable name, so the logger's name is the event."""

    def emit(self, record: logging.LogRecord) -> None:
        get_logger().log(
            max(record.levelno, logging.DEBUG),
            f"log.{record.name}",
            message=record.getMessage(),
            exc_info=record.exc_info or None,
        )
