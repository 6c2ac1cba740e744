"""What a selector asks of the store and what it gets back: plain values, no Redis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from lua.store.node_view import NodeView
from mesh.config.weights import Weights
from mesh.frames import NodeLoad, RoomMember
from mesh.states.speed import Speed

_NO_SPEEDS: Final[dict[str, Speed]] = {}
_NO_NUMBERS: Final[dict[str, int]] = {}


#: Verdicts that are labels of metrics too.
CommitVerdict = Literal["new", "bound", "full", "unavailable", "unknown"]
AdvanceVerdict = Literal["moved", "same", "fenced", "unknown"]
ClaimVerdict = Literal["ok", "held", "gone", "wrong_token"]


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


class HeartbeatReply(NamedTuple):
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


class StatusChange(NamedTuple):
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
    #: Language pair, or mesh.states.speed.ANY_PAIR -> speed.
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
    tell how far it is. "full": no candidate was taken, at least one for lack of a free slot. "unavailable": none was
    taken, and slots are not the reason: there was no candidate, or Redis lost their records. `reasons` has a word for
    each candidate (gone: no record | not_ready | draining | stale | full | moved: more slots are in use than expected).
    "unknown": Redis could not be used; repeat with the same request id.
    `used` and `version` are the node's after a "new".
    """

    verdict: CommitVerdict
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
    #: Of a "bound" one: time since it finished, by Redis's clock (-1: not known), and the edge that it was placed for.
    ended_for_ms: int = -1
    asked_by: str = ""

    @property
    def is_passed_over(self) -> bool:
        """True if Redis was asked and no candidate was taken."""
        return self.verdict in ("full", "unavailable")


class Bound(NamedTuple):
    """Where a request is bound."""

    attempt: int
    job_id: str
    node_id: str
    node_edge: str
    node_epoch: int


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
    #: `created`, and every event of mesh.states.job that happened -> when, by Redis's clock.
    times: dict[str, int]


class Released(NamedTuple):
    """What a release did. `used` is the node's load afterwards, -1 if untouched. "kept": the node came back."""

    verdict: Literal["released", "same", "fenced", "kept", "unknown"]
    used: int
    version: int


class Claim(NamedTuple):
    """An edge wants to own a session. What the fields mean: mesh.frames.SessionClaim."""

    session_id: str
    edge: str
    epoch: int
    tenant_id: str
    src_lang: str
    tgt_lang: str
    #: A repeat is recognised by it; "": it is not.
    ref: str = ""
    token: str = ""
    resume: bool = False
    trace_id: str = ""
    preferred_node: str = ""
    resumable: bool = False


class Claimed(NamedTuple):
    """Who owns the session now, and whether that is the caller; then, what the record holds."""

    ok: bool
    owner: str
    epoch: int
    #: "held": another epoch is in force. "gone", "wrong_token": it cannot be resumed.
    verdict: ClaimVerdict = "ok"
    #: The edge that lost it by this claim; "" if none did.
    before: str = ""
    tenant_id: str = ""
    trace_id: str = ""
    preferred_node: str = ""
    room: str = ""
    #: Entries that wait in the mail, and those that were dropped from it since the last trim.
    mail: int = 0
    lost: int = 0


class Noted(NamedTuple):
    """Answer to an edge that says that its session lives. "taken": it is not the owner, or has another epoch."""

    verdict: Literal["ok", "taken", "gone"]
    owner: str
    epoch: int


class SessionOwner(NamedTuple):
    """Where a session is. Without an owner there is no record of it."""

    owner: str
    epoch: int = 0
    #: Its client's connection is lost.
    away: bool = False
    #: What it misses may wait in its mail.
    resumable: bool = False


class MailEntry(NamedTuple):
    """Something for the mail of a session; `key` names it, so that a repeat adds nothing."""

    session_id: str
    key: str
    frame: bytes
    body: bytes


class Parked(NamedTuple):
    """What became of a Letter. "same": it waits already. "no_session": there is none that anybody will resume."""

    verdict: Literal["parked", "same", "no_session"]
    #: Older entries that made room for it.
    dropped: int = 0


class MailPage(NamedTuple):
    """Mail, oldest first. `last`: id of the page's last entry, "" if there is none."""

    last: str
    more: bool
    #: Per entry its frame and its payload.
    parts: list[bytes]


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


class Room(NamedTuple):
    """What became of a request about a room, and who is in it now, in the order in which they came.

    "gone": there is no such room. "taken", "crowded": none can be made under this code, or in its cell. "outsider": who
    asked is not in it. "stranger": the one whom it is about is not. "ended": it was silent for long; "same": not so.
    """

    verdict: Literal["ok", "gone", "full", "taken", "crowded", "outsider", "stranger", "ended", "same"]
    room_id: str = ""
    members: tuple[RoomMember, ...] = ()
    #: Grows with every change of its members.
    version: int = 0


class PairingPlan(NamedTuple):
    """Which code a node shall have. "slow": it asked too often. "late": it asked again since. "unknown": no node."""

    verdict: Literal["ok", "slow", "late", "unknown"]
    code: str = ""
    #: The code that it had before, "" if none.
    earlier: str = ""
    #: Time until it may ask again, if it was too often.
    wait_ms: int = 0


class PairingTry(NamedTuple):
    """Whether a client may present a code now; if not, how long it has to wait."""

    allowed: bool
    wait_ms: int = 0
