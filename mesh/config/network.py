"""Settings of the processes and of the links between them: mesh, process, link, broker, redis, edge, selector, log."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from mesh.cells import CELLS_MAX
from mesh.config.base import Bytes, Count, MemoryBytes, Ms, Port, Seconds, Section
from mesh.frames.base import PACKET_FRAMES_MAX


class MeshConfig(Section, frozen=True):
    """Settings that every process of a deployment must share."""

    #: Number of cells (Redis hash slots) that records are spread over. Fixed when a deployment is created: a process
    #: with another number exits with a configuration error.
    cells: Annotated[int, Meta(ge=1, le=CELLS_MAX)] = 16
    #: First part of every Redis key. Deployments that share one Redis need different prefixes.
    key_prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,32}$")] = "lingua"


class ProcessConfig(Section, frozen=True):
    """Settings of the operating system for each process."""

    #: CPU scheduling policy on Linux. batch (SCHED_BATCH): a process that gets a message does not interrupt the one
    #: that is running, so that busy processes handle more messages at a time; a free core runs it at once either way.
    #: normal: for hosts whose cores are shared with CPU-bound programs.
    scheduling: Literal["batch", "normal"] = "batch"


class LinkConfig(Section, frozen=True):
    """ZeroMQ links between edges, brokers and selectors."""

    #: Endpoints of the brokers for edges, one per broker: ipc://<path> or tcp://127.0.0.1:<port>. An edge connects to
    #: all of them and fails over between the live ones.
    frontends: list[str] = []
    #: Endpoints of the brokers for selectors, one per broker, in the order of `frontends`.
    backends: list[str] = []
    #: Interval of beats between a broker and its peers, and of ZeroMQ's own heartbeats. Keep it at a third of `dead_ms`
    #: or less, so that one late beat is no failure.
    beat_ms: Ms = 1_000
    #: Failure detection timeout: a peer without a beat for this long counts as dead, and senders fail over to another.
    dead_ms: Ms = 3_000
    #: Packets that a ZeroMQ socket buffers per peer and direction; each has up to `batch_frames_max` frames and about
    #: `batch_bytes_max` bytes. Beyond it a send fails (EAGAIN): a broker queues the frames itself, an edge or selector
    #: takes another broker.
    high_water: Count = 1_000
    #: Largest part of a message. A sender refuses to send a larger one; a peer that sends one is disconnected.
    message_bytes_max: Bytes = 8 * 1024 * 1024
    #: Frames of one packet. What one turn of an event loop, or one pass of a broker, has for one receiver is one
    #: packet; one that reaches this number is sent at once.
    batch_frames_max: Annotated[int, Meta(ge=1, le=PACKET_FRAMES_MAX)] = 256
    #: Bytes of one packet. One that would exceed it is sent before the next frame is added; a single larger frame is a
    #: packet of its own. Counts as `message_bytes_max` if that is smaller.
    batch_bytes_max: Bytes = 256 * 1024
    #: Payload parts below this size are copied into the table of a packet; others are ZeroMQ parts of their own, which
    #: brokers and selectors forward without a copy. To copy 10 KB costs less than a part of its own, 50 KB as much.
    inline_bytes_max: Bytes = 32 * 1024
    #: Packets read from a socket in one turn of the event loop. More wait for the next turn, so that timers and other
    #: sockets are served.
    drain_max: Count = 64
    #: Delay by which acknowledgements of results and of ended jobs are gathered into one frame per edge. Keep it far
    #: below edge.resend_ms: what is not acknowledged by then is retried.
    ack_delay_ms: Annotated[int, Meta(ge=1, le=1_000)] = 10
    #: Acknowledgements for one edge that are sent at once, without waiting for more.
    ack_batch_max: Count = 64
    #: Timeout of the ZeroMQ handshake; a connection that is not ready by then is closed.
    handshake_ms: Ms = 3_000
    #: First backoff before reconnecting to a lost broker; doubles up to `reconnect_ms_max`.
    reconnect_ms: Ms = 100
    #: Upper bound of the reconnect backoff: a broker that restarts is found again within this time.
    reconnect_ms_max: Ms = 1_000


class BrokerConfig(Section, frozen=True):
    """One broker process."""

    #: Frames queued for one blocked peer, per lane. Beyond it a frame returns to its sender: Bounce(queue_full).
    queue_max: Count = 1_000
    #: Bytes queued for one blocked peer, per lane. Beyond it a frame returns to its sender: Bounce(queue_full). A frame
    #: that is alone in its lane may be larger.
    queue_bytes_max: MemoryBytes = 64 * 1024 * 1024
    #: Retry delay that a Busy reply names while no selector has credit.
    busy_retry_ms: Ms = 50
    #: Edges and selectors that one broker serves. Frames of further peers are dropped and counted.
    peers_max: Count = 4_096
    #: Interval of retries to send to a blocked peer.
    flush_ms: Ms = 5
    #: Time that a stopping broker has to send its queued messages. The rest is dropped; senders retry it elsewhere.
    drain_ms: Ms = 500
    #: Port of /metrics on loopback; 0 = any free port, named in the ready line.
    metrics_port: Port = 0


class RedisConfig(Section, frozen=True):
    """Redis, which holds all shared state."""

    #: Address: redis://[user:password@]host:port/database.
    url: str = "redis://127.0.0.1:6379/0"
    #: True for Redis Cluster; `url` is then the address of any of its nodes.
    cluster: bool = False
    #: Timeout of one exchange. A call that times out fails and is not retried here: its effect is unknown, and the
    #: caller's own deadline decides.
    timeout_ms: Ms = 1_000
    #: Replicas that must confirm a commit (WAIT); with fewer the commit fails as unknown and is retried by its edge.
    #: 0 = do not wait. Only for clusters with replicas.
    wait_replicas: Annotated[int, Meta(ge=0, le=5)] = 0
    #: Timeout of the confirmation by replicas. Keep it below `timeout_ms`.
    wait_ms: Ms = 100
    #: Calls of one script that are sent as one EVALSHA. Larger batches cost less per call and block Redis for longer.
    batch_max: Count = 128
    #: Pending calls of one process. Beyond it a call fails at once.
    queue_max: Count = 20_000
    #: Retries of one call after a broken connection or a change of the cluster. Then it fails.
    retries_max: Annotated[int, Meta(ge=0, le=20)] = 5
    #: Backoff before the first such retry; grows by as much with each retry.
    retry_ms: Ms = 50


class EdgeConfig(Section, frozen=True):
    """One edge process."""

    #: Address that the shared port listens on. Other than loopback needs `insecure`.
    host: str = "127.0.0.1"
    #: Port for clients, nodes and the HTTP API, shared by all edges of a host (SO_REUSEPORT).
    port: Port = 5010
    #: Second port, on loopback, that reaches this edge alone; 0 = any free port, named in the ready line.
    own_port: Port = 0
    #: Permits to listen beyond loopback although there is no authentication yet.
    insecure: bool = False
    #: Largest message of a client. The socket of a client that sends a larger one is closed (1009).
    session_message_bytes_max: Bytes = 2 * 1024 * 1024
    #: Largest message of a node. The socket of a node that sends a larger one is closed (1009).
    node_message_bytes_max: Bytes = 4 * 1024 * 1024
    #: Timeout of sending one message (see also `send_rate_bytes_min`) and of closing a socket. A socket that takes
    #: longer is closed as too slow.
    send_timeout_ms: Ms = 2_000
    #: Send buffer of one socket; beyond it the socket is closed as too slow. Holds several of the largest messages.
    send_buffer_bytes_max: Bytes = 16 * 1024 * 1024
    #: Interval of WebSocket pings.
    ping_interval_ms: Ms = 10_000
    #: Timeout of a WebSocket pong; a socket without one is closed.
    ping_timeout_ms: Ms = 10_000
    #: Timeout of the WebSocket handshake and of a plain HTTP request; then the connection is closed.
    open_timeout_ms: Ms = 5_000
    #: Sockets of clients and nodes together. Beyond it a connection is refused with HTTP 503.
    connections_max: Count = 20_000
    #: Pending utterances of one session. Beyond it an utterance is refused with TOO_MANY_UTTERANCES.
    utterances_per_session_max: Count = 200
    #: Idle timeout: a client's or node's socket without any message for this long is closed.
    idle_timeout_seconds: Seconds = 75
    #: Timeout of a call to a selector (claim, registration, room, pairing), retries included; then the peer gets an
    #: error. Also the time that a starting edge waits for its first broker.
    answer_timeout_ms: Ms = 5_000
    #: First retry interval of an unacknowledged Dispatch, result, Finished or call; doubles with each retry, the first
    #: few up to half of link.dead_ms.
    resend_ms: Ms = 400
    #: Upper bound of the retry interval.
    resend_ms_max: Ms = 5_000
    #: Unacknowledged results of this edge's nodes. Beyond it the oldest is evicted, results without a known job first.
    results_kept_max: Count = 10_000
    #: Unacknowledged results in bytes. Beyond it the oldest is evicted, results without a known job first.
    results_kept_bytes_max: MemoryBytes = 256 * 1024 * 1024
    #: Unacknowledged results of one node for jobs that this edge does not know. Beyond it a result is refused with
    #: SLOW_DOWN. Nodes have a few such results after a restart of their edge.
    unknown_results_per_node_max: Count = 64
    #: Audio of all pending utterances. Beyond it an utterance is refused with SLOW_DOWN.
    audio_kept_bytes_max: MemoryBytes = 256 * 1024 * 1024
    #: Audio of one session's pending utterances. Beyond it an utterance is refused with SLOW_DOWN; a single utterance
    #: may be larger.
    audio_kept_per_session_bytes_max: MemoryBytes = 32 * 1024 * 1024
    #: Deliveries of one result that are answered with no_session. After as many the result is dropped.
    no_session_tries_max: Count = 12
    #: Shortest interval between two heartbeats of one node that are forwarded to a selector; of several in between the
    #: latest counts. The first after a registration is forwarded at once.
    heartbeat_min_ms: Ms = 500
    #: Errors and unknown messages per second that one node may send. Beyond it reading from the node is throttled.
    node_errors_per_s_max: Count = 50
    #: Reconnect grace: a node whose socket closed keeps its jobs this long. Then they are dispatched to other nodes.
    reconnect_grace_ms: Ms = 3_000
    #: Jobs that wait for nodes in reconnect grace, of all nodes. Beyond it a job goes to another node.
    held_jobs_max: Count = 1_000
    #: Bytes of the jobs that wait for nodes in reconnect grace. Beyond it a job goes to another node.
    held_bytes_max: MemoryBytes = 64 * 1024 * 1024
    #: Jobs that wait for one node in reconnect grace. Beyond it a job goes to another node.
    held_jobs_per_node_max: Count = 64
    #: Bytes of the jobs that wait for one node in reconnect grace. Beyond it a job goes to another node.
    held_bytes_per_node_max: MemoryBytes = 16 * 1024 * 1024
    #: Ended requests, jobs and moved sessions that are remembered to deduplicate late frames. Beyond it the oldest is
    #: evicted, and a late frame of it counts as unknown.
    ended_kept_max: Count = 10_000
    #: Time that an ended request, job or moved session is remembered to deduplicate late frames.
    ended_kept_ms: Ms = 30_000
    #: Utterances of one session that are remembered to deduplicate repeats. Beyond it the oldest is evicted, and a
    #: repeat of it makes a second job.
    utterances_remembered_max: Count = 1_024
    #: Messages in the send buffer of one socket. Beyond it the socket is closed as too slow.
    send_queue_max: Count = 1_000
    #: Unfinished jobs that are tracked per node. Beyond it the oldest is evicted; its result then counts as one for an
    #: unknown job.
    jobs_per_node_max: Count = 256
    #: Received frames of one socket that wait to be handled. Beyond it reading from the socket pauses.
    receive_queue_max: Count = 16
    #: Slowest rate, per second, at which a large message may be taken: its send timeout is `send_timeout_ms` plus its
    #: size at this rate.
    send_rate_bytes_min: Bytes = 256 * 1024
    #: Time that a stopping edge waits for pending results. Then it closes its sockets; clients resume at another edge.
    drain_ms: Ms = 1_000
    #: Timeout of an operator's command or HTTP request; the answer is then an error. HTTP requests end at four fifths
    #: of `open_timeout_ms` at the latest.
    page_timeout_ms: Ms = 3_000
    #: Concurrent requests of the HTTP API. Beyond it a request is refused with HTTP 503.
    pages_max: Count = 64
    #: Selectors that one request of the HTTP API queries. Further ones are left out.
    selectors_asked_max: Count = 64
    #: Operators' sockets (/ws/control). Beyond it a connection is refused with HTTP 503.
    control_sockets_max: Count = 16
    #: Largest command of an operator. The socket of an operator who sends a larger one is closed (1009).
    control_message_bytes_max: Bytes = 64 * 1024
    #: Delay by which progress of a job (dispatched, accepted, started) is collected into one JobEvent, and after which
    #: the session's edge hears that the job is placed; a result within it makes both superfluous. On Redis Cluster the
    #: first event extends job.provisional_lease_ms: stay far below that.
    job_event_delay_ms: Annotated[int, Meta(ge=1, le=1_000)] = 25


class SelectorConfig(Section, frozen=True):
    """One selector process."""

    #: Interval at which changed nodes are read from Redis. Nodes are selected from facts that are at most this old.
    snapshot_ms: Ms = 100
    #: Interval at which each cell is read completely, to repair whatever the changes missed.
    full_reload_ms: Ms = 60_000
    #: Upper bound to which `snapshot_ms` grows while no job is placed and nothing changes.
    snapshot_idle_ms: Ms = 500
    #: Changed nodes read from a cell in one call.
    changes_max: Count = 500
    #: Nodes in the selector's table. Further nodes are left out, get no job from this selector and are counted.
    nodes_max: Count = 200_000
    #: Candidate nodes of one commit, best first; the commit takes the first with a free slot.
    candidates: Annotated[int, Meta(ge=1, le=16)] = 3
    #: Rounds of select and commit for one request whose candidates were taken by other selectors meanwhile. In the last
    #: round any free slot will do. High enough for a burst over eight selectors to find every free node.
    commit_rounds: Annotated[int, Meta(ge=1, le=16)] = 8
    #: Age up to which a heartbeat's running_jobs counts as slots in use beside the leases. An utterance takes about a
    #: second, so an older count would keep a free node full until its next heartbeat.
    running_fresh_ms: Ms = 2_000
    #: Suitable nodes that are compared for one job. In a larger fleet the comparison begins at a random node, and its
    #: cost does not grow.
    compared_max: Count = 128
    #: Decisions kept for `lingua explain` and `lingua replay`. Beyond it the oldest is evicted.
    decisions_kept: Count = 20_000
    #: Memory of the decisions kept. Beyond it the oldest is evicted.
    decisions_bytes_max: MemoryBytes = 64 * 1024 * 1024
    #: Interval at which the current weights are read from Redis; a change is in force everywhere within it.
    weights_ms: Ms = 1_000
    #: Time after which the unclaimed result of a finished job counts as lost. A retry of its request then starts a new
    #: attempt.
    result_lost_ms: Ms = 8_000
    #: Time that the nodes of an edge get no job after a frame to that edge bounced.
    unreachable_ms: Ms = 2_000
    #: Credit: work messages that all brokers together may have outstanding at this selector. Beyond it brokers choose
    #: another selector, or reply Busy.
    window: Count = 512
    #: Frames that are handled in one batch. Larger batches cost less per frame and delay the first.
    batch_max: Count = 64
    #: Control frames that wait to be handled. Beyond it they are dropped and counted; their senders retry.
    control_queue_max: Count = 10_000
    #: Time that a stopping selector has to finish the frames it has received.
    drain_ms: Ms = 1_000
    #: Interval at which edges and selectors renew their presence record. Keep it at a third of `presence_ttl_ms` or
    #: less.
    presence_ms: Ms = 2_000
    #: Life of a presence record. An edge without presence or frames for this long is offline: messages to its sessions
    #: go to their mail.
    presence_ttl_ms: Ms = 6_000
    #: Port of /metrics on loopback; 0 = any free port, named in the ready line.
    metrics_port: Port = 0


class LogConfig(Section, frozen=True):
    """Structured logs on stderr."""

    #: Lowest level that is written.
    level: Annotated[str, Meta(pattern="^(debug|info|warning|error)$")] = "info"
    #: Form of a line; auto = text on a terminal, JSON otherwise.
    format: Annotated[str, Meta(pattern="^(auto|json|text)$")] = "auto"
    #: Lines of one event per window. Further ones are suppressed, and the next line names their number.
    repeats_max: Count = 20
    #: Length of the window in which `repeats_max` lines of one event are written.
    repeat_window_ms: Ms = 10_000
