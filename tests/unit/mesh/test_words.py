"""Closed lists: on the wire they are plain strings, in the code they are enums, and labels of metrics follow them."""

from __future__ import annotations

import ast
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from broker.core.credit import KIND_OF_SIDE
from edge.audio.core.segment import FinalizeReason
from edge.metrics import NO_PAGE, EdgeMetrics
from lua.store.types.commits import CommitVerdict
from lua.store.types.jobs import AdvanceVerdict
from lua.store.types.sessions import ClaimVerdict
from mesh import frames, words
from mesh.errors import ErrorCode
from mesh.metrics import OTHER, Bounded, Metrics
from mesh.states.node import Status
from selector.metrics import FORWARDED, SIGNAL_ACTION, UNKNOWN_ACTION, SelectorMetrics

ROOT = Path(__file__).parents[3]
ENUMS = [value for value in vars(words).values() if isinstance(value, type) and issubclass(value, StrEnum)]
ENUMS.remove(StrEnum)
ALL_WORDS = {word.value for enum in ENUMS for word in enum}

#: Metric -> label -> its values. Every label with a closed list is here.
EDGE_LABELS: dict[str, dict[int, Any]] = {
    "messages_total": {0: words.SocketKind},
    "errors_total": {0: words.SocketKind, 1: [code.name for code in ErrorCode]},
    "slow_consumers_total": {0: words.SocketKind},
    "refused_total": {0: words.ConnectionRefusal},
    "pages_total": {0: [*(set(words.QueryKind) - words.COMMAND_KINDS), NO_PAGE]},
    "results_total": {0: words.ResultOutcome},
    "cuts_total": {0: [reason.name.lower() for reason in FinalizeReason]},
    "chunk_anomalies_total": {0: words.ChunkAnomaly},
    "missing_total": {0: words.MissingReason},
    "resumes_total": {0: words.ResumeOutcome},
    "posts_total": {0: [*words.PostVerdict, *words.PostFailure]},
    "hedges_total": {0: words.HedgeOutcome},
    "cancels_total": {0: words.CancelReason},
    "resends_total": {0: [frame.__name__ for frame in frames.FRAMES]},
    "dropped_results_total": {0: words.ResultDrop},
    "given_back_total": {0: words.AssignFailure},
    "job_outcomes_total": {0: [*words.JobOutcome, *words.ResultVerdict]},
    "backpressure_total": {0: words.BackpressureAction},
}
SELECTOR_LABELS: dict[str, dict[int, Any]] = {
    "dispatch_total": {0: words.DispatchOutcome},
    "removed_total": {0: words.FilterName},
    "no_available_node_total": {0: words.SelectorStage, 1: [*words.FilterName, *words.RefusalReason]},
    "queries_total": {0: words.QueryKind},
    "words_refused_total": {0: words.RowWord},
    "events_total": {0: get_args(AdvanceVerdict)},
    "results_total": {0: get_args(AdvanceVerdict)},
    "undone_total": {0: [*words.AssignFailure, *words.BounceReason, *words.UndoneReason]},
    "nodes_total": {0: words.NodeChange},
    "node_status_total": {0: Status},
    "ledger_repairs_total": {0: words.LedgerRepair},
    "claims_total": {0: get_args(ClaimVerdict)},
    "session_taken_total": {0: words.TakenCause},
    "parked_total": {0: words.ParkedKind},
    "posts_total": {0: [FORWARDED, *set(words.PostVerdict) - {words.PostVerdict.DELIVERED}]},
    "room_requests_total": {0: [*words.RoomAction, SIGNAL_ACTION, UNKNOWN_ACTION]},
    "pairing_total": {0: words.PairingOutcome},
}
ROLES = [(EdgeMetrics, EDGE_LABELS), (SelectorMetrics, SELECTOR_LABELS)]


def bounded(role: type[Metrics]) -> dict[str, Bounded[Any]]:
    return {name: value for name, value in vars(role(CollectorRegistry())).items() if isinstance(value, Bounded)}


@pytest.mark.parametrize(("role", "labels"), ROLES)
def test_the_values_of_every_label_are_those_of_its_enum(
    role: type[Metrics], labels: dict[str, dict[int, Any]]
) -> None:
    metrics = bounded(role)
    for name, places in labels.items():
        for place, values in places.items():
            assert metrics[name]._allowed[place] == frozenset(values), name


@pytest.mark.parametrize(("role", "labels"), ROLES)
def test_every_label_with_a_closed_list_is_checked_here(role: type[Metrics], labels: dict[str, dict[int, Any]]) -> None:
    free = {("messages_total", 1), ("messages_total", 2), ("pool_selected_total", 1), ("pool_selected_total", 2),
            ("pool_attempt_total", 1)}  # fmt: skip
    for name, metric in bounded(role).items():
        closed = {place for place, values in enumerate(metric._allowed) if values is not None}
        checked = set(labels.get(name, {}))
        assert {place for place in closed - checked if (name, place) not in free} == set(), name


def test_an_enum_member_is_counted_under_its_plain_word() -> None:
    metric = bounded(EdgeMetrics)["results_total"]
    metric.labels(words.ResultOutcome.NO_NODE).inc()
    metric.labels("no_node").inc()
    metric.labels("forgotten").inc()
    assert metric.totals() == {("no_node",): 2, (OTHER,): 1}


@pytest.mark.parametrize("enum", ENUMS, ids=lambda enum: enum.__name__)
def test_a_word_is_its_plain_string_on_the_wire_and_in_text(enum: type[StrEnum]) -> None:
    for word in enum:
        assert msgspec.msgpack.encode(word) == msgspec.msgpack.encode(word.value)
        assert msgspec.json.encode(word) == msgspec.json.encode(word.value)
        assert f"{word}" == str(word) == word.value
        assert {word: 1}[word.value] == 1


def test_a_word_of_a_newer_peer_leaves_its_frame_decodable() -> None:
    frame = frames.Bounce("struck_by_lightning")
    assert frames.decode_frame(frames.encode(frame)) == frame


def test_undone_repeats_every_reason_it_may_be_told_and_no_two_are_alike() -> None:
    assert len(words.UNDONE_REASONS) == len(set(words.UNDONE_REASONS))
    assert set(words.AssignFailure) | set(words.BounceReason) | set(words.UndoneReason) == set(words.UNDONE_REASONS)
    assert set(words.UNDONE_REASONS) > words.BLAMELESS_REASONS | words.CERTAIN_REASONS
    assert not words.BLAMELESS_REASONS & words.CERTAIN_REASONS


def test_words_that_are_copied_between_enums_agree() -> None:
    assert set(get_args(CommitVerdict)) <= set(words.DispatchOutcome)
    assert set(words.StaleReason) <= set(words.NodeChange), "a stale heartbeat is counted by its verdict"
    assert set(KIND_OF_SIDE.values()) == set(words.ProcessKind) - {words.ProcessKind.BROKER}
    failures = (ErrorCode.JOB_TIMEOUT, ErrorCode.NO_AVAILABLE_NODE, ErrorCode.NODE_UNAVAILABLE)
    assert {code.name.lower() for code in failures} <= set(words.CancelReason), "a failure cancels by its code"


def frame_calls(path: Path) -> list[ast.Call]:
    """The calls in a module that build a frame."""
    names = {frame.__name__ for frame in frames.FRAMES}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]


@pytest.mark.parametrize("package", ["broker", "edge", "mesh", "selector"])
def test_no_frame_is_built_with_a_bare_word(package: str) -> None:
    paths = sorted((ROOT / package).rglob("*.py"))
    assert any(frame_calls(path) for path in paths), "the search finds calls"
    for path in paths:
        for call in frame_calls(path):
            values = [*call.args, *(keyword.value for keyword in call.keywords)]
            bare = [value.value for value in values if isinstance(value, ast.Constant) and value.value in ALL_WORDS]
            assert not bare, f"{path}:{call.lineno}"


@pytest.mark.parametrize("package", ["edge", "selector"])
def test_no_closed_label_is_a_bare_word(package: str) -> None:
    closed = set(EDGE_LABELS if package == "edge" else SELECTOR_LABELS) - {"messages_total"}
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(ast.Attribute(ast.Attribute(attr=metric), "labels"), args) if metric in closed:
                    assert not [one for one in args if isinstance(one, ast.Constant)], f"{path}:{node.lineno}"
