"""What a selector asks of the store and what it gets back: plain values, no Redis."""

from __future__ import annotations

from typing import Literal, NamedTuple

from lua.view import NodeView
from mesh.frames import NodeLoad


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
    status: str


class Beaten(NamedTuple):
    """Answer to a heartbeat. `used` and `version` are 0 unless the verdict is "ok"."""

    verdict: Literal["ok", "superseded", "unknown"]
    used: int
    version: int


class ChangedNode(NamedTuple):
    """One row of a delta. `view` is None when only `used` changed, or when the node is gone (`used` -1)."""

    node_id: str
    used: int
    last_seen_ms: int
    view: NodeView | None
    #: Of this row: an answer that carries a higher version for the node is newer.
    version: int


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


class Committed(NamedTuple):
    """What became of a CommitRequest.

    "new": this call placed it. "bound": it was placed before, perhaps by a higher `attempt`; `state` and `finished`
    tell how far it is. "full": no candidate had room; `reasons` has a word for each (gone | not_ready | stale | full).
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


class Presence(NamedTuple):
    """What a live process says of itself."""

    host: str
    pid: int
    version: str
    started_at_ms: int
