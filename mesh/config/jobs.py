"""Settings of nodes and of their jobs: liveness, leases, timeouts, attempts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from mesh.config.base import Count, MemoryBytes, Ms, Percent, Seconds, Section
from mesh.states.job import RUNNING_JOBS_MAX


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
