"""Settings of nodes and of their jobs: liveness, leases, timeouts, attempts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from mesh.config.base import Count, MemoryBytes, Ms, Percent, Seconds, Section
from mesh.states.job import RUNNING_JOBS_MAX


class NodeConfig(Section, frozen=True):
    """Rules for worker nodes."""

    #: Expected interval of a node's heartbeats. A node whose last heartbeat is older costs more in selection
    #: (weights.stale_ms_per_s).
    heartbeat_interval_ms: Ms = 15_000
    #: Time without a heartbeat after which a node is offline and gets no new job. Keep it at three intervals.
    heartbeat_timeout_ms: Ms = 45_000
    #: Life of a node's record without a heartbeat. Then the node must register again.
    record_ttl_seconds: Seconds = 3_600
    #: Concurrent jobs of a node that names no max_concurrent_jobs.
    max_jobs_default: Annotated[int, Meta(ge=1, le=RUNNING_JOBS_MAX)] = 4
    #: Upper bound of the concurrent jobs of one node; a larger max_concurrent_jobs is reduced to it.
    max_jobs_limit: Annotated[int, Meta(ge=1, le=RUNNING_JOBS_MAX)] = 64
    #: Removed nodes that a cell lists for the selectors' snapshots. Beyond it the oldest is evicted: selectors that
    #: missed it drop the node at their next full reload.
    tombstones_max: Count = 1_000
    #: Consecutive healthy heartbeats after which a registering node is ready and gets jobs.
    health_checks: Annotated[int, Meta(ge=1, le=100)] = 1
    #: Time after its registration by which a node must be ready. Then it is degraded and gets no new job.
    warmup_timeout_ms: Ms = 60_000
    #: Number of latest heartbeats in which `failures_max` are counted.
    failure_window: Annotated[int, Meta(ge=1, le=32)] = 5
    #: Unhealthy heartbeats within `failure_window` at which a ready node becomes degraded and gets no new job.
    failures_max: Annotated[int, Meta(ge=1, le=32)] = 3
    #: Consecutive unhealthy heartbeats at which a ready node becomes degraded and gets no new job.
    failures_in_row_max: Annotated[int, Meta(ge=1, le=32)] = 3
    #: Interval of the scan for nodes whose heartbeat, grace or drain timed out.
    status_scan_ms: Ms = 5_000
    #: Age below which a slot is not audited against the node's own list of jobs: the job may not have reached the node
    #: when it sent the list.
    audit_grace_ms: Ms = 5_000
    #: Drain deadline if the operator names none. Jobs that are unfinished by then are dispatched to other nodes.
    drain_deadline_ms: Ms = 30_000
    #: CPU, GPU or memory load above which a node gets no new job.
    resource_threshold_percent: Percent = 85.0


class JobConfig(Section, frozen=True):
    """Timeouts, leases and attempts of a job, and the wait queue."""

    #: Deadline of an utterance, all attempts together. Then the client gets JOB_TIMEOUT.
    deadline_ms: Ms = 60_000
    #: Time that a request may wait for a free node. Then it is refused with NO_AVAILABLE_NODE.
    pending_timeout_ms: Ms = 10_000
    #: Time that a node has for a job, plus twice the length of its audio. Then the next attempt goes to another node.
    dispatched_timeout_ms: Ms = 15_000
    #: Hedging: dispatch a late job to a second node as well; the first result counts.
    hedging: bool = False
    #: Upper bound of hedges, as a share of all jobs. Beyond it a late job is not hedged.
    hedge_budget_percent: Percent = 3.0
    #: Lease of a job's slot at its node. A slot whose lease ends is free again, even without a result.
    lease_ms: Ms = 90_000
    #: Lease of a slot between its reservation and its commit (Redis Cluster). A reservation whose selector died is
    #: free again after it.
    provisional_lease_ms: Ms = 5_000
    #: Time that a job's record outlives its lease, to deduplicate late results.
    record_extra_ms: Ms = 300_000
    #: Attempts of one request. After as many failures the client gets an error.
    attempts_max: Annotated[int, Meta(ge=1, le=10)] = 3
    #: Lower bound of the retry delay that a refusal names; its upper bound is `pending_timeout_ms`.
    retry_after_ms: Ms = 100
    #: Requests in the wait queue of one selector. Beyond it the one with the latest deadline is refused.
    waiting_max: Count = 2_000
    #: Bytes in the wait queue of one selector. Beyond it the request with the latest deadline is refused.
    waiting_bytes_max: MemoryBytes = 64 * 1024 * 1024
    #: Interval at which an edge retries the Dispatch of a request in the wait queue, in case its selector died.
    waiting_ask_ms: Ms = 1_000
    #: Time in the wait queue after which its edge gets Waiting. Most requests get a slot before, and need no Waiting.
    #: Keep it below edge.resend_ms, so that the edge does not retry the Dispatch.
    waiting_notice_ms: Ms = 200
