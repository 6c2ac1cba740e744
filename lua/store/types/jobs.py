"""Requests and results of the scripts that change jobs. Plain values, no Redis: cores may import them."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from mesh.states.speed import Speed

_NO_SPEEDS: Final[dict[str, Speed]] = {}
#: Also the label values of a metric.
AdvanceVerdict = Literal["moved", "same", "fenced", "unknown"]


class Advance(NamedTuple):
    """One or more events of a job (mesh.states.job), as in "finish release"."""

    job_id: str
    attempt: int
    node_id: str
    events: str
    #: Recorded by finish.
    success: bool = True
    #: Speed measured by a finished job: language pair, length of its audio, processing time (-1: unknown).
    pair: str = ""
    audio_ms: int = 0
    took_ms: int = -1


class Advanced(NamedTuple):
    """Result of an Advance. `leased` is False if the lease expired and no slot was free to renew it.

    `edge`, `session_id` and `request_id` are the job's own. `used` is the node's load afterwards, -1 if it cannot have
    changed.
    """

    verdict: AdvanceVerdict
    state: str = ""
    finished: bool = False
    edge: str = ""
    session_id: str = ""
    request_id: str = ""
    #: "ok" | "failed" | ""
    outcome: str = ""
    leased: bool = False
    used: int = -1
    version: int = 0
    #: Updated speeds, for the pair and for ANY_PAIR.
    speeds: dict[str, Speed] = _NO_SPEEDS


class Release(NamedTuple):
    """A slot to release. With an `epoch` only if the node is not live on a later connection."""

    job_id: str
    attempt: int
    node_id: str
    reason: str
    epoch: int = 0


class Released(NamedTuple):
    """Result of a Release. `used`: the node's slots in use, -1 if unchanged. "kept": the node reconnected."""

    verdict: Literal["released", "same", "fenced", "kept", "unknown"]
    used: int
    version: int
