"""Facts about the whole deployment: weights and live processes. Plain values, no Redis: cores may import them."""

from __future__ import annotations

from typing import Final, NamedTuple

from mesh.config.weights import Weights

_NO_NUMBERS: Final[dict[str, int]] = {}


class StoredWeights(NamedTuple):
    """The weights in force. Version 0, None: never set, those of the configuration are in force."""

    version: int
    weights: Weights | None
    since_ms: int
    by: str


class Presence(NamedTuple):
    """Facts about a live process."""

    host: str
    pid: int
    version: str
    started_at_ms: int
    #: Of an edge: outcomes of its utterances.
    counts: dict[str, int] = _NO_NUMBERS
