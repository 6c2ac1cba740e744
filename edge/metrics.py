"""Metrics of an edge: every name, its labels and their values. Label values follow from enums (mesh/words.py)."""

from __future__ import annotations

from functools import partial
from typing import Final, get_args

from prometheus_client import CollectorRegistry

from edge.audio.core.segment import FinalizeReason
from mesh.errors import ErrorCode
from mesh.frames import AnyFrame
from mesh.messages.base import Message
from mesh.messages.client import FROM_CLIENT, FROM_SERVER
from mesh.messages.control import FROM_OPERATOR
from mesh.messages.node import FROM_NODE, FROM_SCHEDULER
from mesh.metrics import REGISTRY, RESULT_SECONDS, Bounded, Metrics
from mesh.metrics.stage_collector import StageCollector
from mesh.metrics.stage_counts import STAGES, StageCounts
from mesh.metrics.values import Counter
from mesh.words import (
    COMMAND_KINDS,
    AssignFailure,
    BackpressureAction,
    CancelReason,
    ChunkAnomaly,
    ConnectionRefusal,
    HedgeOutcome,
    JobOutcome,
    LatencyStage,
    MissingReason,
    PostFailure,
    PostVerdict,
    QueryKind,
    ResultDrop,
    ResultOutcome,
    ResultVerdict,
    ResumeOutcome,
    SocketKind,
)

DIRECTIONS: Final = ("in", "out")
FRAME_NAMES: Final = tuple(frame.__name__ for frame in get_args(AnyFrame))
_CODECS: Final = (FROM_CLIENT, FROM_SERVER, FROM_NODE, FROM_SCHEDULER, FROM_OPERATOR)
MESSAGE_TYPES: Final = tuple(sorted({"binary", "done", "invalid"}.union(*(codec.types for codec in _CODECS))))
#: The kind of a request whose path is no page.
NO_PAGE: Final = "none"
PAGE_KINDS: Final = (*(kind for kind in QueryKind if kind not in COMMAND_KINDS), NO_PAGE)
CUT_REASONS: Final = tuple(reason.name.lower() for reason in FinalizeReason)
ERROR_CODES: Final = tuple(code.name for code in ErrorCode)


#: Places in `stages` of the stages that the session's edge counts; selectors count the others.
STAGES_AT_EDGE: Final = tuple(
    STAGES.index(stage)
    for stage in (
        LatencyStage.EDGE_IN,
        LatencyStage.DELIVER,
        LatencyStage.NODE,
        LatencyStage.BACK,
        LatencyStage.ORDER,
    )
)


class MessageCounters(dict[type, Counter]):
    """The counters of one kind of socket in one direction, by class of message; each is looked up once."""

    def __init__(self, messages_total: Bounded[Counter], peer: SocketKind, direction: str) -> None:
        super().__init__()
        self._labels = partial(messages_total.labels, peer, direction)

    def __missing__(self, kind: type) -> Counter:
        tag = str(kind.__struct_config__.tag) if issubclass(kind, Message) else "invalid"
        counter = self[kind] = self._labels(tag)
        return counter


class EdgeMetrics(Metrics):
    """The metrics of one edge."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__(registry)
        self._connections()
        self._utterances()
        self.stages: StageCounts = self._once("lingua_stage_seconds", self._make_stages)

    def _make_stages(self) -> StageCounts:
        counts = StageCounts(STAGES[place] for place in STAGES_AT_EDGE)
        self._registry.register(StageCollector(counts))
        return counts

    def _connections(self) -> None:
        self.sessions = self._gauge("lingua_edge_sessions", "Open sessions of this edge")
        self.nodes = self._gauge("lingua_edge_nodes", "Nodes registered at this edge")
        self.messages_total = self._counters(
            "lingua_edge_messages_total",
            "WebSocket messages",
            {"peer": SocketKind, "direction": DIRECTIONS, "type": MESSAGE_TYPES},
        )
        self.received = {kind: MessageCounters(self.messages_total, kind, "in") for kind in SocketKind}
        self.sent = {kind: MessageCounters(self.messages_total, kind, "out") for kind in SocketKind}
        self.errors_total = self._counters(
            "lingua_edge_errors_total", "Error messages sent to peers", {"peer": SocketKind, "code": ERROR_CODES}
        )
        self.slow_consumers_total = self._counters(
            "lingua_edge_slow_consumers_total", "Sockets closed because the peer did not read", {"peer": SocketKind}
        )
        self.refused_total = self._counters(
            "lingua_edge_refused_total",
            "Connections refused or closed by the edge",
            {"reason": ConnectionRefusal},
        )

        self.pages_total = self._counters(
            "lingua_edge_pages_total", "Pages of the HTTP API by status", {"kind": PAGE_KINDS, "status": None}
        )

    def _utterances(self) -> None:
        self.utterances_total = self._counter("lingua_edge_utterances_total", "Utterances accepted from clients")
        self.results_total = self._counters(
            "lingua_edge_results_total",
            "Utterances by outcome",
            {"outcome": ResultOutcome},
        )
        self.cuts_total = self._counters(
            "lingua_edge_cuts_total",
            "Utterances finalized from streams, by reason",
            {"reason": CUT_REASONS},
        )
        self.chunk_anomalies_total = self._counters(
            "lingua_edge_chunk_anomalies_total",
            "Duplicate, missing and renumbered chunks of streams, and finalizes without audio",
            {"kind": ChunkAnomaly},
        )
        self.missing_total = self._counters(
            "lingua_edge_missing_total",
            "missing_result messages sent to clients",
            {"reason": MissingReason},
        )
        self.resumes_total = self._counters(
            "lingua_edge_resumes_total",
            "Sessions resumed at this edge, from another edge, or too late",
            {"outcome": ResumeOutcome},
        )
        self.posts_total = self._counters(
            "lingua_edge_posts_total",
            "Messages to members of rooms, by verdict",
            {"verdict": (*PostVerdict, *PostFailure)},
        )
        self.attempts_total = self._counter("lingua_edge_attempts_total", "Dispatches with a new attempt number")
        self.hedges_total = self._counters(
            "lingua_edge_hedges_total",
            "Hedges: late jobs sent to a second node, by outcome",
            {"outcome": HedgeOutcome},
        )
        self.cancels_total = self._counters(
            "lingua_edge_cancels_total",
            "Jobs cancelled because no client waits for them",
            {"reason": CancelReason},
        )
        self.resends_total = self._counters(
            "lingua_edge_resends_total", "Frames retried because no reply arrived", {"frame": FRAME_NAMES}
        )
        self.dropped_results_total = self._counters(
            "lingua_edge_dropped_results_total",
            "Results dropped at the node's edge",
            {"reason": ResultDrop},
        )
        self.given_back_total = self._counters(
            "lingua_edge_jobs_given_back_total",
            "Jobs that a node of this edge will not finish (AssignFailed), by reason",
            {"reason": AssignFailure},
        )
        self.job_outcomes_total = self._counters(
            "lingua_edge_job_outcomes_total",
            "Jobs, results and messages at the node's edge, by outcome or verdict",
            {"outcome": (*JobOutcome, *ResultVerdict)},
        )
        self.model_words_dropped_total = self._counter(
            "lingua_edge_model_words_dropped_total", "Reports of missing models dropped because their buffer was full"
        )
        self.backpressure_total = self._counters(
            "lingua_edge_backpressure_total",
            "Backpressure messages sent to clients",
            {"action": BackpressureAction},
        )
        self.waiting = self._gauge("lingua_edge_utterances_waiting", "Pending utterances: accepted, no result yet")
        self.results_kept = self._gauge("lingua_edge_results_kept", "Unacked results of this edge's nodes")
        self.result_seconds = self._histogram(
            "lingua_edge_result_seconds",
            "From an utterance's arrival to the sending of its result",
            RESULT_SECONDS,
        )
