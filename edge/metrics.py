"""What an edge counts: every name, its labels and their values."""

from __future__ import annotations

from typing import Final, get_args

from prometheus_client import CollectorRegistry

from edge.audio.core.segment import FinalizeReason
from mesh.errors import ErrorCode
from mesh.frames import AnyFrame
from mesh.messages.client import FROM_CLIENT, FROM_SERVER
from mesh.messages.control import FROM_OPERATOR
from mesh.messages.node import FROM_NODE, FROM_SCHEDULER
from mesh.metrics import REGISTRY, RESULT_SECONDS, Metrics
from mesh.words import (
    COMMAND_KINDS,
    AssignFailure,
    BackpressureAction,
    CancelReason,
    ConnectionRefusal,
    HedgeOutcome,
    MissingReason,
    PostFailure,
    PostVerdict,
    QueryKind,
    ResultDrop,
    ResultOutcome,
    ResumeOutcome,
    SocketKind,
)

DIRECTIONS: Final = ("in", "out")
FRAME_NAMES: Final = tuple(frame.__name__ for frame in get_args(AnyFrame))
_CODECS: Final = (FROM_CLIENT, FROM_SERVER, FROM_NODE, FROM_SCHEDULER, FROM_OPERATOR)
MESSAGE_TYPES: Final = tuple(sorted({"binary", "done", "invalid"}.union(*(codec.types for codec in _CODECS))))
#: A request that is for no page.
NO_PAGE: Final = "none"
PAGE_KINDS: Final = (*(kind for kind in QueryKind if kind not in COMMAND_KINDS), NO_PAGE)
CUT_REASONS: Final = tuple(reason.name.lower() for reason in FinalizeReason)
ERROR_CODES: Final = tuple(code.name for code in ErrorCode)


class EdgeMetrics(Metrics):
    """One edge."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__(registry)
        self._connections()
        self._utterances()

    def _connections(self) -> None:
        self.sessions = self._gauge("lingua_edge_sessions", "Sessions open here")
        self.nodes = self._gauge("lingua_edge_nodes", "Nodes registered here")
        self.messages_total = self._counters(
            "lingua_edge_messages_total",
            "WebSocket messages",
            {"peer": SocketKind, "direction": DIRECTIONS, "type": MESSAGE_TYPES},
        )
        self.errors_total = self._counters(
            "lingua_edge_errors_total", "Errors told to peers", {"peer": SocketKind, "code": ERROR_CODES}
        )
        self.slow_consumers_total = self._counters(
            "lingua_edge_slow_consumers_total", "Sockets cut because they did not read", {"peer": SocketKind}
        )
        self.refused_total = self._counters(
            "lingua_edge_refused_total",
            "Connections refused or closed by us",
            {"reason": ConnectionRefusal},
        )

        self.pages_total = self._counters(
            "lingua_edge_pages_total", "Operators' pages by the answer's status", {"kind": PAGE_KINDS, "status": None}
        )

    def _utterances(self) -> None:
        self.utterances_total = self._counter("lingua_edge_utterances_total", "Utterances accepted from clients")
        self.results_total = self._counters(
            "lingua_edge_results_total",
            "How utterances ended",
            {"outcome": ResultOutcome},
        )
        self.cuts_total = self._counters(
            "lingua_edge_cuts_total",
            "Utterances cut from streams, by what ended them",
            {"reason": CUT_REASONS},
        )
        self.missing_total = self._counters(
            "lingua_edge_missing_total",
            "Indices that clients were told to have no result",
            {"reason": MissingReason},
        )
        self.resumes_total = self._counters(
            "lingua_edge_resumes_total",
            "Sessions that came back: to this edge, from another, or too late",
            {"outcome": ResumeOutcome},
        )
        self.posts_total = self._counters(
            "lingua_edge_posts_total",
            "Messages of this edge for members of rooms",
            {"verdict": (*PostVerdict, *PostFailure)},
        )
        self.attempts_total = self._counter("lingua_edge_attempts_total", "Dispatches with a new attempt number")
        self.hedges_total = self._counters(
            "lingua_edge_hedges_total",
            "Late jobs that a second node got as well, or would have got, and what came of it",
            {"outcome": HedgeOutcome},
        )
        self.cancels_total = self._counters(
            "lingua_edge_cancels_total",
            "Jobs that nobody waited for any more",
            {"reason": CancelReason},
        )
        self.resends_total = self._counters(
            "lingua_edge_resends_total", "Frames sent again for want of an answer", {"frame": FRAME_NAMES}
        )
        self.dropped_results_total = self._counters(
            "lingua_edge_dropped_results_total",
            "Results given up at the node's edge",
            {"reason": ResultDrop},
        )
        self.given_back_total = self._counters(
            "lingua_edge_jobs_given_back_total",
            "Jobs that a node of this edge will not finish, by reason",
            {"reason": AssignFailure},
        )
        self.model_words_dropped_total = self._counter(
            "lingua_edge_model_words_dropped_total", "Words of nodes about missing models for which there was no room"
        )
        self.backpressure_total = self._counters(
            "lingua_edge_backpressure_total",
            "Clients told to send less",
            {"action": BackpressureAction},
        )
        self.waiting = self._gauge("lingua_edge_utterances_waiting", "Utterances that have no result yet")
        self.results_kept = self._gauge("lingua_edge_results_kept", "Results kept until acknowledged")
        self.result_seconds = self._histogram(
            "lingua_edge_result_seconds", "From the utterance's arrival to its result's departure", RESULT_SECONDS
        )
