"""Facts about the whole deployment: weights and live processes. Plain values, no Redis: cores may import them."""

from __future__ import annotations

from typing import Final, NamedTuple

from mesh.config.weights import Weights

_NO_NUMBERS: Final[dict[str, int]] = {}


class StoredWeights(NamedTuple):
    """The weights in force. Version 0, None: nobody has set any, those of the configuration hold."""

    version: int
    weights: Weights | None
    since_ms: int
    by: str


class Presence(NamedTuple):
    """What a live process says of itself."""

    host: str
    pid: int
    version: str
    started_at_ms: int
    #: For an edge: what became of its utterances.
    counts: dict[str, int] = _NO_NUMBERS
