"""Error isolation: a fault of one message is counted and logged with its ids, and costs no other message."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

import msgspec

from mesh.errors import StoreError
from mesh.frames import Frame
from mesh.link.link import Received
from mesh.log import get_logger
from selector.metrics import SelectorMetrics

#: Exceptions that a peer's bad message may cause in a handler; any other but StoreError is a bug of ours.
PEER_FAULTS: Final = (msgspec.DecodeError, UnicodeDecodeError, IndexError, ValueError)
#: Fields of a frame that are logged.
_IDS: Final = ("request_id", "job_id", "session_id", "node_id", "attempt", "trace_id")

log = get_logger()


class FrameGuard:
    """Logs and counts messages that failed."""

    def __init__(self, metrics: SelectorMetrics) -> None:
        self._metrics = metrics

    def note(self, message: Received, error: Exception) -> None:
        """A StoreError gets no reply: the sender retries, or the lease expires."""
        name = type(message.frame).__name__
        if isinstance(error, StoreError):
            self._metrics.store_errors_total.labels(name).inc()
            log.warning("store_failed", frame=name, error=str(error), **_ids(message.frame))
        elif isinstance(error, PEER_FAULTS):
            log.warning("bad_frame", frame=name, error=str(error), **_ids(message.frame))
        else:
            log.error("handler_failed", frame=name, exc_info=error, **_ids(message.frame))

    async def run(self, message: Received, work: Awaitable[None]) -> None:
        """Await the handler of one message; never raises."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - gateway: a bug in one handler costs that message, not the selector
            self.note(message, error)


def _ids(frame: Frame) -> dict[str, Any]:
    return {name: getattr(frame, name) for name in _IDS if hasattr(frame, name)}
