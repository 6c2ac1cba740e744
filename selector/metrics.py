"""The metrics of a selector: every name, its labels and their values."""

from __future__ import annotations

from typing import Final, get_args

from prometheus_client import CollectorRegistry

from lua.store.types.jobs import AdvanceVerdict
from lua.store.types.sessions import ClaimVerdict
from mesh.metrics import REGISTRY, RESULT_SECONDS, Metrics
from mesh.metrics.stage_collector import StageCollector
from mesh.metrics.stage_counts import StageCounts
from mesh.states.node import Status
from mesh.words import (
    UNDONE_REASONS,
    DispatchOutcome,
    FilterName,
    LatencyStage,
    LedgerRepair,
    NodeChange,
    PairingOutcome,
    ParkedKind,
    PostVerdict,
    QueryKind,
    RefusalReason,
    RoomAction,
    RowWord,
    SelectorStage,
    TakenCause,
)

DECISION_SECONDS: Final = (0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1)
STORE_SECONDS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
#: A post that went to the owner of its session.
FORWARDED: Final = "forwarded"
#: Labels of room requests that are no RoomAction.
SIGNAL_ACTION: Final = "signal"
UNKNOWN_ACTION: Final = "unknown"
#: Stages of an utterance that a selector measures.
MEASURED_STAGES: Final = (LatencyStage.BROKER, LatencyStage.QUEUE, LatencyStage.SELECT, LatencyStage.COMMIT)
BATCH_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class SelectorMetrics(Metrics):
    """One selector."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__(registry)
        self.stages: StageCounts = self._once("lingua_stage_seconds", self._make_stages)
        self._decisions()
        self._pools()
        self._snapshots()
        self._results()
        self._nodes()
        self._models()
        self._sessions()
        self._rooms()

    def _make_stages(self) -> StageCounts:
        counts = StageCounts(MEASURED_STAGES)
        self._registry.register(StageCollector(counts))
        return counts

    def _decisions(self) -> None:
        self.dispatch_total = self._counters(
            "lingua_selector_dispatch_total",
            "Dispatches by outcome",
            {"outcome": DispatchOutcome},
        )
        self.removed_total = self._counters(
            "lingua_selector_removed_total", "Nodes removed from consideration, by filter", {"filter": FilterName}
        )
        self.no_available_node_total = self._counters(
            "scheduler_no_available_node_total",
            "Dispatches for which there was no node",
            {"selector": SelectorStage, "reason": (*FilterName, *RefusalReason)},
        )
        self.batch_size = self._histogram("lingua_selector_batch_size", "Dispatches decided together", BATCH_SIZES)
        self.decision_seconds = self._histogram(
            "lingua_selector_decision_seconds", "Filter and score of one batch", DECISION_SECONDS
        )
        self.commit_seconds = self._histogram("lingua_selector_commit_seconds", "Commit of one batch", STORE_SECONDS)
        self.dispatch_latency_seconds = self._histogram(
            "scheduler_dispatch_latency_seconds", "From a Dispatch's arrival to its Assign or refusal", STORE_SECONDS
        )
        self.conflicts_total = self._counter("lingua_selector_conflicts_total", "Candidates that the commit rejected")
        self.waiting = self._gauge("lingua_selector_waiting", "Placements in the wait queue")
        self.waiting_bytes = self._gauge("lingua_selector_waiting_bytes", "Bytes of audio in the wait queue")
        self.waited_seconds = self._histogram(
            "lingua_selector_waited_seconds", "Time in the wait queue until a node or a refusal", RESULT_SECONDS
        )
        self.weights_version = self._gauge("lingua_selector_weights_version", "Version of the weights in force")
        self.queries_total = self._counters(
            "lingua_selector_queries_total", "Queries of operators by status", {"kind": QueryKind, "status": None}
        )

    def _pools(self) -> None:
        self.pool_selected_total = self._counters(
            "scheduler_phase3_pool_selected_total",
            "Pools in which a node was found or not",
            {"pool": None, "outcome": ("hit", "miss"), "fallback": ("true", "false")},
        )
        self.pool_attempt_total = self._counters(
            "scheduler_phase3_pool_attempt_total",
            "Pools that were searched",
            {"pool": None, "result": ("success", "fail"), "reason": None},
        )

    def _snapshots(self) -> None:
        self.snapshot_rows = self._gauge("lingua_selector_snapshot_rows", "Nodes in the columns")
        self.snapshot_age_seconds = self._gauge(
            "lingua_selector_snapshot_age_seconds", "Age of the oldest cell's last answer"
        )
        self.snapshot_seconds = self._histogram("lingua_selector_snapshot_seconds", "One refresh", STORE_SECONDS)
        self.snapshot_changes_total = self._counter("lingua_selector_snapshot_changes_total", "Rows that changed")
        self.nodes_refused_total = self._counter(
            "lingua_selector_nodes_refused_total",
            "Nodes refused beyond selector.nodes_max; each try counts",
        )
        self.words_refused_total = self._counters(
            "lingua_selector_words_refused_total",
            "Strings of nodes that were not interned because the table was full; they match no job",
            {"kind": RowWord},
        )
        self.store_errors_total = self._counters(
            "lingua_selector_store_errors_total", "Script calls that failed", {"script": None}
        )

    def _results(self) -> None:
        self.events_total = self._counters(
            "lingua_selector_job_events_total", "Job events by verdict", {"verdict": get_args(AdvanceVerdict)}
        )
        self.results_total = self._counters(
            "lingua_selector_results_total",
            "Results by verdict; `fenced`: of an attempt that was replaced",
            {"verdict": get_args(AdvanceVerdict)},
        )
        self.undone_total = self._counters(
            "lingua_selector_undone_total",
            "Failed attempts, by reason",
            {"reason": UNDONE_REASONS},
        )
        self.cancelled_total = self._counter("lingua_selector_cancelled_total", "Jobs that were cancelled")

    def _nodes(self) -> None:
        self.nodes_total = self._counters(
            "lingua_selector_node_changes_total",
            "Registrations and departures",
            {"change": NodeChange},
        )
        self.node_status_total = self._counters(
            "lingua_selector_node_status_total", "Changes of a node's status, by the new one", {"status": Status}
        )
        self.ledger_drift = self._gauge(
            "lingua_selector_ledger_drift", "Slots that did not match the jobs of their nodes at their last audit"
        )
        self.ledger_repairs_total = self._counters(
            "lingua_selector_ledger_repairs_total",
            "Slots repaired by audits: `leaked` without a running job, `missing` a running job without a slot",
            {"kind": LedgerRepair},
        )
        self.lane_dropped_total = self._counters(
            "lingua_selector_lane_dropped_total", "Frames dropped because their lane was full", {"lane": None}
        )

    def _sessions(self) -> None:
        self.claims_total = self._counters(
            "lingua_selector_session_claims_total",
            "Claims of sessions by verdict",
            {"verdict": get_args(ClaimVerdict)},
        )
        self.session_taken_total = self._counters(
            "lingua_selector_session_taken_total",
            "SessionTaken sent, by cause: another edge claimed it, a wrong edge noted it, or its record is gone",
            {"when": TakenCause},
        )
        self.parked_total = self._counters(
            "lingua_selector_parked_total",
            "Messages parked in the mail of detached sessions",
            {"kind": ParkedKind},
        )
        self.mail_dropped_total = self._counter(
            "lingua_selector_mail_dropped_total", "Entries of mail that were evicted by later ones"
        )
        self.posts_total = self._counters(
            "lingua_selector_posts_total",
            "Posts by outcome",
            {"outcome": (FORWARDED, PostVerdict.PARKED, PostVerdict.DETACHED, PostVerdict.NO_SESSION)},
        )

    def _rooms(self) -> None:
        self.room_requests_total = self._counters(
            "lingua_selector_room_requests_total",
            "Requests of members of rooms; `outcome` is ok, or a name of mesh.errors",
            {"action": (*RoomAction, SIGNAL_ACTION, UNKNOWN_ACTION), "outcome": None},
        )
        self.rooms_expired_total = self._counter("lingua_selector_rooms_expired_total", "Rooms that expired while idle")
        self.pairing_total = self._counters(
            "lingua_selector_pairing_total",
            "Pairing codes requested and redeemed, by outcome",
            {"outcome": PairingOutcome},
        )

    def _models(self) -> None:
        prefix = "scheduler_model_na"
        self.model_na_received_total = self._counter(f"{prefix}_received_total", "Reports of missing models")
        self.model_na_rate_limited_total = self._counter(f"{prefix}_rate_limited_total", "Of these, rate-limited")
        self.model_na_marked_total = self._counter(f"{prefix}_marked_total", "Of these, nodes that were marked")
        self.model_na_dropped_total = self._counter(f"{prefix}_dropped_total", "Of these, dropped by a full lane")
        self.model_na_by_service_total = self._counters(
            f"{prefix}_by_service_total", "By service", {"service_id": None}
        )
        self.model_na_by_reason_total = self._counters(f"{prefix}_by_reason_total", "By reason", {"reason": None})
        self.model_na_rate_limited_by_node_total = self._counters(
            f"{prefix}_rate_limited_by_node_total", "Dropped by node", {"node_id": None}
        )
        self.model_na_marked_by_node_total = self._counters(
            f"{prefix}_marked_by_node_total", "Marked by node", {"node_id": None}
        )
        self.model_na_other_total = {
            kind: self._counter(f"{prefix}_other_{kind}_total", f"Without a series of their own, by {kind}")
            for kind in ("service", "reason", "rate_limited_node", "marked_node")
        }
