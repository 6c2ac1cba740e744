"""What a selector asks of the store and what it gets back: plain values, no Redis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from lua.view import NodeView
from mesh.frames import NodeLoad
from mesh.speeds import Speed
from mesh.weights import Weights

_NO_SPEEDS: Final[dict[str, Speed]] = {}
_NO_NUMBERS: Final[dict[str, int]] = {}


class Registered(NamedTuple):
    """The connection's epoch, and the status that the record has now; the node's load and its version."""

    epoch: int
    status: str
    used: int
    version: int
    #: False: a copy of a registration that was made before.
    is_new: bool = True


class Heartbeat(NamedTuple):
    """A node lives. Its capabilities stay as they are stored."""

    node_id: str
    edge: str
    epoch: int
    load: NodeLoad
    healthy: bool
    #: What runs there, as mesh.keys.lease_member spells it; None: not said, so nothing is compared.
    jobs: tuple[str, ...] | None = None


class Beaten(NamedTuple):
    """Answer to a heartbeat. All that follows the verdict is empty unless that is "ok".

    `status` and `status_before` differ in exactly one answer per change. `leaked`: slots that were held for nobody and
    are free again. `missing`: jobs that ran without a slot and have one again.
    """

    verdict: Literal["ok", "superseded", "unknown"]
    used: int = 0
    version: int = 0
    status: str = ""
    status_before: str = ""
    reason: str = ""
    leaked: int = 0
    missing: int = 0


class Scanned(NamedTuple):
    """A node that the passing of time gave another status. Each change is told once, to one scanner."""

    node_id: str
    edge: str
    epoch: int
    status: str
    reason: str


class Drained(NamedTuple):
    """What an operator's command did. All but `known` is empty for a node that is not on the lists."""

    known: bool
    status: str = ""
    edge: str = ""
    epoch: int = 0
    #: When the drain ends, by Redis's clock; 0 after a resume.
    drain_until_ms: int = 0


class ChangedNode(NamedTuple):
    """One row of a delta. `view`, `speeds` and `marks` are None while unchanged; a node that is gone has `used` -1."""

    node_id: str
    used: int
    last_seen_ms: int
    view: NodeView | None
    #: Of this row: an answer that carries a higher version for the node is newer.
    version: int
    #: Language pair, or mesh.speeds.ANY_PAIR -> speed.
    speeds: dict[str, Speed] | None = None
    #: Service that the node said it lacks -> until when that holds, by Redis's clock.
    marks: dict[str, int] | None = None
    #: Slots that did not match its running jobs at its last audit.
    drift: int = 0


class Changes(NamedTuple):
    """What changed in a cell. Ask again with `version`; at once if `more`.

    `reset`: the cell went back in time (Redis lost something), so the rows start from the beginning.
    `unreadable`: rows left out, because what lies in Redis is no view.
    """

    version: int
    now_ms: int
    more: bool
    rows: list[ChangedNode]
    reset: bool
    unreadable: int


class CommitRequest(NamedTuple):
    """One utterance to be placed on the first candidate that has room. `unique` is from mesh.ids.new_job_unique."""

    request_id: str
    session_id: str
    edge: str
    utterance_index: int
    attempt: int
    unique: str
    candidates: list[str]
    deadline_ms: int
    trace_id: str
    #: Per candidate: slots in use that the choice assumed, -1 = any. One with more is passed over. Empty: any.
    expected: Sequence[int] = ()


class Committed(NamedTuple):
    """What became of a CommitRequest.

    "new": this call placed it. "bound": it was placed before, perhaps by a higher `attempt`; `state` and `finished`
    tell how far it is. "full": no candidate was taken; `reasons` has a word for each (gone | not_ready | draining |
    stale | full | moved: more slots are in use than expected).
    "unknown": Redis could not be used; repeat with the same request id.
    `used` and `version` are the node's after a "new".
    """

    verdict: Literal["new", "bound", "full", "unknown"]
    job_id: str = ""
    node_id: str = ""
    node_edge: str = ""
    node_epoch: int = 0
    attempt: int = 0
    state: str = ""
    finished: bool = False
    used: int = 0
    version: int = 0
    reasons: tuple[str, ...] = ()
    #: Node, slots in use and version of candidates that were passed over because of those.
    seen: tuple[tuple[str, int, int], ...] = ()


class Bound(NamedTuple):
    """Where a request is bound."""

    attempt: int
    job_id: str
    node_id: str
    node_edge: str
    node_epoch: int


class Advance(NamedTuple):
    """Something happened to a job: one or more events of mesh.jobs, as in "finish release"."""

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


class Release(NamedTuple):
    """A slot to give back. With an `epoch` only if the node does not live by a later connection than that."""

    job_id: str
    attempt: int
    node_id: str
    reason: str
    epoch: int = 0


class Advanced(NamedTuple):
    """What an event did to a job. `leased` is False when its slot had lapsed and none was free to take again.

    `edge`, `session_id` and `request_id` are the job's own. `used` is the node's load afterwards, -1 if it cannot have
    changed.
    """

    verdict: Literal["moved", "same", "fenced", "unknown"]
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


class JobRecord(NamedTuple):
    """All that is kept of a job."""

    state: str
    attempt: int
    node_id: str
    request_id: str
    session_id: str
    edge: str
    #: "ok" | "failed" | ""
    outcome: str
    #: Of a release.
    reason: str
    #: `created`, and every event of mesh.jobs that happened -> when, by Redis's clock.
    times: dict[str, int]


class Released(NamedTuple):
    """What a release did. `used` is the node's load afterwards, -1 if untouched. "kept": the node came back."""

    verdict: Literal["released", "same", "fenced", "kept", "unknown"]
    used: int
    version: int


class Claimed(NamedTuple):
    """Who owns the session now, and whether that is the caller."""

    ok: bool
    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A node said, `count` times, that it lacks a model of a service."""

    node_id: str
    epoch: int
    #: Service type; "" if nobody knows, then its id is marked.
    service: str
    service_id: str
    count: int = 1


class Marked(NamedTuple):
    """What became of a Mark. "limited": the node says so too often. "unknown": not on the lists by that connection."""

    verdict: Literal["marked", "limited", "unknown"]
    version: int = 0
    #: All that the node lacks -> until when, by Redis's clock.
    marks: dict[str, int] = _NO_NUMBERS


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
