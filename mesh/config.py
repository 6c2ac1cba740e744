"""Configuration: a TOML file, then `LINGUA_<SECTION>_<KEY>` from the environment, validated once at start.

Every value carries its unit in its name and its bounds in its type. An unknown key is an error. Lists in the
environment are separated by commas; tables, and lists of them, are JSON. config.example.toml shows every key with its
default.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from mesh.choosing import ModelsConfig, ModulesConfig, PoolsConfig, SpeedConfig, check_pools
from mesh.errors import ConfigError
from mesh.jobs import RUNNING_JOBS_MAX
from mesh.settings import Bytes, Count, MemoryBytes, Ms, Percent, Port, Seconds, Section
from mesh.speaking import PairingConfig, RoomsConfig, SessionConfig, SpeechConfig
from mesh.weights import Weights


class MeshConfig(Section, frozen=True):
    """What every process must agree on."""

    #: How many cells; fixed when a deployment is born.
    cells: Annotated[int, Meta(ge=1, le=100)] = 16
    key_prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,32}$")] = "lingua"


class LinkConfig(Section, frozen=True):
    """ZeroMQ links between edges, brokers and selectors."""

    #: One endpoint per broker, for edges.
    frontends: list[str] = []
    #: One endpoint per broker, for selectors, in the same order.
    backends: list[str] = []
    beat_ms: Ms = 1_000
    #: Silence after which a peer counts as gone.
    dead_ms: Ms = 3_000
    #: Messages that a socket may hold per peer before it says EAGAIN.
    high_water: Count = 1_000
    message_bytes_max: Bytes = 8 * 1024 * 1024
    #: Messages taken from a socket before anything else gets a turn.
    drain_max: Count = 256
    #: A connection that has not finished its handshake by then is closed.
    handshake_ms: Ms = 3_000
    #: First wait before connecting again to a broker that is gone; doubles up to the second one.
    reconnect_ms: Ms = 100
    reconnect_ms_max: Ms = 1_000


class BrokerConfig(Section, frozen=True):
    """One broker process."""

    #: Messages waiting for one stuck peer, per lane.
    queue_max: Count = 1_000
    busy_retry_ms: Ms = 50
    #: Edges and selectors that one broker serves; more are ignored and counted.
    peers_max: Count = 4_096
    #: How often a peer whose pipe was full is tried again.
    flush_ms: Ms = 5
    #: What is still queued at a stop gets this long to leave.
    drain_ms: Ms = 500
    metrics_port: Port = 0


class RedisConfig(Section, frozen=True):
    """Where the truth lives."""

    url: str = "redis://127.0.0.1:6379/0"
    #: True for Redis Cluster; `url` is then one of its nodes.
    cluster: bool = False
    timeout_ms: Ms = 1_000
    #: Replicas that must confirm a binding (WAIT); 0 = do not ask. Only for clusters with replicas.
    wait_replicas: Annotated[int, Meta(ge=0, le=5)] = 0
    wait_ms: Ms = 100
    #: Calls of one script sent in one EVALSHA.
    batch_max: Count = 128
    #: Calls waiting for their turn; more are refused.
    queue_max: Count = 20_000
    #: How often a call is sent again by itself, after a broken connection or while the cluster changes.
    retries_max: Annotated[int, Meta(ge=0, le=20)] = 5
    #: Wait before such a repeat; grows with each.
    retry_ms: Ms = 50


class EdgeConfig(Section, frozen=True):
    """One edge process."""

    host: str = "127.0.0.1"
    #: Shared by all edges of a host (SO_REUSEPORT).
    port: Port = 5010
    #: A second port, of this edge alone; 0 = pick a free one.
    own_port: Port = 0
    #: Listen beyond loopback although there is no authentication yet.
    insecure: bool = False
    session_message_bytes_max: Bytes = 2 * 1024 * 1024
    node_message_bytes_max: Bytes = 4 * 1024 * 1024
    send_timeout_ms: Ms = 2_000
    #: Bytes waiting for one socket before it is cut off as too slow: room for several of the largest messages.
    send_buffer_bytes_max: Bytes = 16 * 1024 * 1024
    ping_interval_ms: Ms = 10_000
    ping_timeout_ms: Ms = 10_000
    open_timeout_ms: Ms = 5_000
    connections_max: Count = 20_000
    #: Utterances of one session that may be waiting for their result.
    utterances_per_session_max: Count = 200
    #: Seconds without any message before a session or node socket is closed.
    idle_timeout_seconds: Seconds = 75
    #: Answer of a selector to a claim or registration.
    answer_timeout_ms: Ms = 5_000
    #: First wait before an unanswered Dispatch or JobDone is sent again; doubles each time, the first few up to half
    #: of link.dead_ms.
    resend_ms: Ms = 400
    resend_ms_max: Ms = 5_000
    #: Finished results kept per node edge until acknowledged.
    results_kept_max: Count = 10_000
    #: The same in bytes; the oldest go first.
    results_kept_bytes_max: MemoryBytes = 256 * 1024 * 1024
    #: Of these, one node's results of jobs that it was not given here; more are refused. Honest nodes have a few such
    #: after a restart of the edge.
    unknown_results_per_node_max: Count = 64
    #: Audio kept for all sessions until their results are in; more is refused with SLOW_DOWN.
    audio_kept_bytes_max: MemoryBytes = 256 * 1024 * 1024
    #: Of these, one session's; it may have one larger utterance.
    audio_kept_per_session_bytes_max: MemoryBytes = 32 * 1024 * 1024
    #: How often a result is offered to edges that do not know its session before it is dropped.
    no_session_tries_max: Count = 12
    #: Of one node's heartbeats the mesh hears the latest, at most once in this time; the first after a registration
    #: at once.
    heartbeat_min_ms: Ms = 500
    #: Errors, and messages that are none of ours, that one node may send; beyond that it is read more slowly.
    node_errors_per_s_max: Count = 50
    #: A node whose socket closed keeps its jobs this long; then they are dispatched elsewhere.
    reconnect_grace_ms: Ms = 3_000
    #: Jobs for nodes whose socket closed a moment ago wait here for them, in all and per node; more go elsewhere.
    held_jobs_max: Count = 1_000
    held_bytes_max: MemoryBytes = 64 * 1024 * 1024
    held_jobs_per_node_max: Count = 64
    held_bytes_per_node_max: MemoryBytes = 16 * 1024 * 1024
    #: Requests and jobs that ended are remembered, so that late repeats are recognised.
    ended_kept_max: Count = 10_000
    ended_kept_ms: Ms = 30_000
    #: Utterance indices of one session that are remembered, so that a repeat makes no second job.
    utterances_remembered_max: Count = 1_024
    #: Messages waiting for one socket before it is cut off as too slow.
    send_queue_max: Count = 1_000
    #: Unfinished jobs remembered per node; the oldest go first.
    jobs_per_node_max: Count = 256
    #: Frames of one incoming message stream that wait to be read before the socket is paused.
    receive_queue_max: Count = 16
    #: A long message may take longer than send_timeout_ms, if the reader takes at least this much per second.
    send_rate_bytes_min: Bytes = 256 * 1024
    #: How long a stopping edge waits for results that are under way.
    drain_ms: Ms = 1_000
    #: An answer to an operator's page or command; stays below open_timeout_ms, by which a reader is cut off.
    page_timeout_ms: Ms = 3_000
    #: Operators' pages that wait for selectors, and selectors that one page asks.
    pages_max: Count = 64
    selectors_asked_max: Count = 64
    #: Operators' sockets, and the longest command.
    control_sockets_max: Count = 16
    control_message_bytes_max: Bytes = 64 * 1024
    #: Events of a job (handed over, accepted, started) gather this long and go out as one; a result that comes sooner
    #: makes them superfluous. On Redis Cluster the first of them extends a lease of a few seconds: stay far below that.
    job_event_delay_ms: Annotated[int, Meta(ge=1, le=1_000)] = 25


class NodeConfig(Section, frozen=True):
    """Rules for worker nodes."""

    heartbeat_interval_ms: Ms = 15_000
    #: A node silent for longer gets no new work.
    heartbeat_timeout_ms: Ms = 45_000
    record_ttl_seconds: Seconds = 3_600
    max_jobs_default: Annotated[int, Meta(ge=1, le=RUNNING_JOBS_MAX)] = 4
    max_jobs_limit: Annotated[int, Meta(ge=1, le=RUNNING_JOBS_MAX)] = 64
    #: Removed nodes that a cell remembers, so that snapshots hear of them.
    tombstones_max: Count = 1_000
    #: Healthy heartbeats in a row that make a registering node ready.
    health_checks: Annotated[int, Meta(ge=1, le=100)] = 1
    #: A node that is not ready so long after it registered is degraded.
    warmup_timeout_ms: Ms = 60_000
    #: Of the last so many heartbeats, this many unhealthy ones (or that many in a row) make a ready node degraded.
    failure_window: Annotated[int, Meta(ge=1, le=32)] = 5
    failures_max: Annotated[int, Meta(ge=1, le=32)] = 3
    failures_in_row_max: Annotated[int, Meta(ge=1, le=32)] = 3
    #: How often nodes are looked through for those that went silent.
    status_scan_ms: Ms = 5_000
    #: A slot younger than this is not compared with what the node says that it runs: the two may have crossed.
    audit_grace_ms: Ms = 5_000
    #: Time that a draining node has for its jobs, if the operator names none.
    drain_deadline_ms: Ms = 30_000
    #: Above this cpu, gpu or memory load a node gets no new work.
    resource_threshold_percent: Percent = 85.0


class JobConfig(Section, frozen=True):
    """Life of a job."""

    #: From the utterance to its result, all attempts together.
    deadline_ms: Ms = 60_000
    #: A job that no node could take for so long is refused.
    pending_timeout_ms: Ms = 10_000
    #: A node that has a job for so long, plus twice the length of its audio, loses it to another.
    dispatched_timeout_ms: Ms = 15_000
    #: Send a job that is late to a second node as well; the first result counts.
    hedging: bool = False
    #: Hedges may be this part of all jobs.
    hedge_budget_percent: Percent = 3.0
    lease_ms: Ms = 90_000
    #: Lease of a slot whose request is not bound yet.
    provisional_lease_ms: Ms = 5_000
    #: A job record outlives its lease by this much.
    record_extra_ms: Ms = 300_000
    attempts_max: Annotated[int, Meta(ge=1, le=10)] = 3
    retry_after_ms: Ms = 100
    #: Jobs that stand in line at one selector, and their audio; beyond that the one with most time is refused.
    waiting_max: Count = 2_000
    waiting_bytes_max: MemoryBytes = 64 * 1024 * 1024
    #: An edge asks so often whether its job still stands in line.
    waiting_ask_ms: Ms = 1_000


class SelectorConfig(Section, frozen=True):
    """One selector process."""

    snapshot_ms: Ms = 100
    #: A full reload of a cell every so often, against anything a delta missed.
    full_reload_ms: Ms = 60_000
    #: Nobody works and nothing changes: the snapshot slows down to this.
    snapshot_idle_ms: Ms = 500
    #: Changed nodes taken from a cell at a time.
    changes_max: Count = 500
    #: Nodes that the columns hold; more are turned away and counted.
    nodes_max: Count = 200_000
    candidates: Annotated[int, Meta(ge=1, le=16)] = 3
    #: How often a request whose candidates turned out to have more to do than assumed looks for others. The last time
    #: it takes what has room. So many that a burst over eight selectors finds every free node.
    commit_rounds: Annotated[int, Meta(ge=1, le=16)] = 8
    #: A heartbeat's running_jobs counts beside the leases for this long. Later the leases alone tell: utterances last
    #: about a second, and a number from a busy moment would keep a free node full until its next heartbeat.
    running_fresh_ms: Ms = 2_000
    #: Suitable nodes that are compared for one job; in a larger fleet the look begins at a random one.
    compared_max: Count = 128
    #: Decisions that can be explained and run again, and the memory they may take.
    decisions_kept: Count = 20_000
    decisions_bytes_max: MemoryBytes = 64 * 1024 * 1024
    #: How often the weights in force are looked up.
    weights_ms: Ms = 1_000
    #: An edge that asks for a job which finished longer ago than this will not get its result from anybody any more:
    #: it is told to try again.
    result_lost_ms: Ms = 8_000
    #: Nodes of an edge to which a frame bounced get no work for this long.
    unreachable_ms: Ms = 2_000
    #: Work messages that all brokers together may have outstanding here.
    window: Count = 512
    batch_max: Count = 64
    #: Control frames waiting for their turn; more are dropped and counted.
    control_queue_max: Count = 10_000
    #: At the end, time for what is already here.
    drain_ms: Ms = 1_000
    #: How often edges and selectors tell that they live, and how long that holds. An edge of which nothing was heard
    #: for so long is gone: what it should have told waits in the mail of its sessions.
    presence_ms: Ms = 2_000
    presence_ttl_ms: Ms = 6_000
    metrics_port: Port = 0


class LogConfig(Section, frozen=True):
    """Structured logs on stderr."""

    level: Annotated[str, Meta(pattern="^(debug|info|warning|error)$")] = "info"
    #: "json", "text", or "auto": text on a terminal.
    format: Annotated[str, Meta(pattern="^(auto|json|text)$")] = "auto"
    #: Lines of one event per window; the rest are counted and left out.
    repeats_max: Count = 20
    repeat_window_ms: Ms = 10_000


class Config(Section, frozen=True):
    """All of it."""

    mesh: MeshConfig = MeshConfig()
    link: LinkConfig = LinkConfig()
    broker: BrokerConfig = BrokerConfig()
    redis: RedisConfig = RedisConfig()
    edge: EdgeConfig = EdgeConfig()
    node: NodeConfig = NodeConfig()
    speed: SpeedConfig = SpeedConfig()
    weights: Weights = Weights()
    pools: PoolsConfig = PoolsConfig()
    models: ModelsConfig = ModelsConfig()
    modules: ModulesConfig = ModulesConfig()
    job: JobConfig = JobConfig()
    session: SessionConfig = SessionConfig()
    speech: SpeechConfig = SpeechConfig()
    rooms: RoomsConfig = RoomsConfig()
    pairing: PairingConfig = PairingConfig()
    selector: SelectorConfig = SelectorConfig()
    log: LogConfig = LogConfig()


def load(path: str | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """The configuration of `path` (or LINGUA_CONFIG) with the environment on top; ConfigError if it is wrong."""
    environ = os.environ if environ is None else environ
    path = path or environ.get("LINGUA_CONFIG")
    tree = _read_toml(path) if path else {}
    origin = path or "environment"
    for name, text in environ.items():
        if name.startswith("LINGUA_") and name != "LINGUA_CONFIG":
            _apply(tree, name, text)
    try:
        config = msgspec.convert(tree, Config, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{origin}: {error}. See config.example.toml for every key.") from None
    check_pools(config.pools)
    return config


def _read_toml(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _read_json(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{name} is not valid JSON: {error}") from None


def _apply(tree: dict[str, Any], name: str, text: str) -> None:
    section, _, key = name.removeprefix("LINGUA_").lower().partition("_")
    hints = get_type_hints(Config).get(section)
    types = get_type_hints(hints) if hints else {}
    if key not in types:
        raise ConfigError(f"{name} names no setting. The form is LINGUA_<SECTION>_<KEY>, as in LINGUA_EDGE_PORT.")
    value: Any = text
    if types[key] == list[str]:
        value = [part for part in text.split(",") if part]
    elif text.startswith(("[", "{")):
        value = _read_json(name, text)
    # msgspec reads numbers and booleans from text, and names the key when it cannot.
    values = tree.setdefault(section, {})
    if isinstance(values, dict):  # otherwise the file is wrong, and validation says so
        values[key] = value
