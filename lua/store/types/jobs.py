"""Requests and results of the scripts that change jobs. Plain values, no Redis: cores may import them."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from mesh.states.speed import Speed

_NO_SPEEDS: Final[dict[str, Speed]] = {}
#: Also the label values of a metric.
AdvanceVerdict = Literal["moved", "same", "fenced", "unknown"]


class Advance(NamedTuple):
    """Something happened to a job: one or more events of mesh.states.job, as in "finish release"."""

    job_id: str
    attempt: int
    node_id: str
    events: str
    #: Recorded by finish.
    success: bool = True
    #: What a finished job says of its node's speed: pair, length of its audio, time it took (-1: not known).
    pair: str = ""
    audio_ms: int = 0
    took_ms: int = -1


class Advanced(NamedTuple):
    """What an event did to a job. `leased` is False when its slot had lapsed and none was free to take again.

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
    #: What was learned: the new speeds for the pair and for ANY_PAIR.
    speeds: dict[str, Speed] = _NO_SPEEDS


class Release(NamedTuple):
    """A slot to give back. With an `epoch` only if the node does not live by a later connection than that."""

    job_id: str
    attempt: int
    node_id: str
    reason: str
    epoch: int = 0


class Released(NamedTuple):
    """What a release did. `used` is the node's load afterwards, -1 if untouched. "kept": the node came back."""

    verdict: Literal["released", "same", "fenced", "kept", "unknown"]
    used: int
    version: int
