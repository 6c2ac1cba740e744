"""The sending side of an SDK, with a list in place of its connection."""

from __future__ import annotations

import json
from typing import Any

from linguamesh.websocket import Outbound
from mesh.messages import audio_frames, binary
from mesh.websocket import Payload


class RecordedOutbound(Outbound):
    """Records messages as they would be on the wire: texts, and bytes of binary frames. It can be lost, or full."""

    def __init__(self) -> None:
        super().__init__("ws://recorded")
        self.sent: list[str | bytes] = []
        self.is_lost = False
        self.has_no_capacity = False

    @property
    def is_full(self) -> bool:
        return self.has_no_capacity

    def put(self, *parts: Payload, text: bool = True) -> bool:
        if not self.is_lost:
            data = b"".join(parts)
            self.sent.append(data.decode() if text else data)
        return not self.is_lost

    def types(self) -> list[str]:
        """The message types, or the classes of binary messages and frames."""
        return [json.loads(data)["type"] if isinstance(data, str) else _binary_type(data) for data in self.sent]

    def texts(self) -> list[dict[str, Any]]:
        """The messages in JSON."""
        return [json.loads(data) for data in self.sent if isinstance(data, str)]


def _binary_type(data: bytes) -> str:
    message = binary.decode(data) if data[0] in binary.TYPES else audio_frames.decode(data)
    return type(message).__name__
