"""Settings of the processes and of the links between them: mesh, link, broker, redis, edge, selector, log."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from mesh.config.base import Bytes, Count, MemoryBytes, Ms, Port, Seconds, Section


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
