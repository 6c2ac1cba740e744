"""The commands explain, weights, pair and node drain, against a server on loopback with scripted replies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from linguamesh.cli import drain
from linguamesh.cli.main import main
from mesh.config.weights import Weights
from tests.support.fakes.small_edge import SmallEdge, small_edge

WEIGHTS = msgspec.to_builtins(Weights())


@pytest.fixture
def edge() -> Iterator[SmallEdge]:
    with small_edge() as edge:
        yield edge


def done(**answer: Any) -> dict[str, Any]:
    return {"type": "done", "status": 200, "answer": answer}


def node(status: str, used: int) -> tuple[int, dict[str, Any]]:
    return 200, {"node_id": "node-3", "status": status, "used": used}


class Output:
    """The output and exit code of a command."""

    def __init__(self, edge: SmallEdge, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        self.code = main([*arguments, "--url", edge.url])
        self.out, self.err = capsys.readouterr()


# --- explain --------------------------------------------------------------------------------------


def test_explain_prints_the_decision_as_text(edge: SmallEdge, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"job_id": "job-1", "words": ["It went to node-1.", "node-2 was full."]}
    edge.pages["/api/v1/explain/job-1"] = [(200, record)]
    assert Output(edge, capsys, "explain", "job-1").out == "It went to node-1.\nnode-2 was full.\n"
    assert json.loads(Output(edge, capsys, "explain", "job-1", "--json").out) == record


def test_explain_of_an_unknown_decision_fails(edge: SmallEdge, capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(edge, capsys, "explain", "job-2")
    assert (output.code, output.out) == (1, "")
    assert output.err.startswith("error: no selector has a decision on job-2")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize("status", [503, 504])
def test_edge_without_selectors_counts_as_unreachable(
    edge: SmallEdge, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    edge.pages["/api/v1/explain/job-1"] = [(status, {"message": "no selector answers"})]
    output = Output(edge, capsys, "explain", "job-1")
    assert (output.code, output.err) == (69, "error: the mesh cannot answer now: no selector answers\n")


# --- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("weights",), ("weights", "show")])
def test_weights_shows_those_in_force(
    edge: SmallEdge, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    answer = {"version": 4, "weights": WEIGHTS, "since_ms": 1, "by": "ann"}
    edge.pages["/api/v1/weights"] = [(200, answer)]
    assert "# version 4, set by ann\n[weights]\n" in Output(edge, capsys, *arguments).out
    assert json.loads(Output(edge, capsys, *arguments, "--json").out) == answer


def test_weights_set_prints_the_changes(edge: SmallEdge, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    edge.pages["/api/v1/weights"] = [(200, {"version": 4, "weights": WEIGHTS})]
    edge.answers = [done(version=5)]
    (tmp_path / "new.toml").write_text("warm_ms = 75\n")
    output = Output(edge, capsys, "weights", "set", str(tmp_path / "new.toml"))
    assert output.out == "Version 5 is in force.\nwarm_ms: 50.0 -> 75.0\n"
    command = edge.commands[0]
    assert (command["type"], command["expected_version"]) == ("weights_set", 4)
    assert command["weights"] == {**WEIGHTS, "warm_ms": 75.0}


def test_concurrent_weights_set_fails(edge: SmallEdge, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    edge.pages["/api/v1/weights"] = [(200, {"version": 4, "weights": WEIGHTS})]
    edge.answers = [{"type": "error", "status": 409, "code": "CONFLICT", "message": "version is 5"}]
    (tmp_path / "new.toml").write_text("")
    output = Output(edge, capsys, "weights", "set", str(tmp_path / "new.toml"))
    assert (output.code, output.err.startswith("error: the weights were changed concurrently")) == (1, True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("warm = 1", "unknown field `warm`"),
        ("busy_ms = -1", "busy_ms"),
        ("strategy = 'magic'", "strategy"),
        ("busy_ms = ", "not valid TOML"),
    ],
)
def test_invalid_weights_are_not_sent(
    edge: SmallEdge, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "bad.toml").write_text(text)
    output = Output(edge, capsys, "weights", "set", str(tmp_path / "bad.toml"))
    assert (output.code, edge.requested) == (2, [])
    assert reason in output.err
    assert output.err.count("\n") == 1


# --- pair -----------------------------------------------------------------------------------------


def test_pair_prints_the_code_first(edge: SmallEdge, capsys: pytest.CaptureFixture[str]) -> None:
    edge.answers = [done(node_id="node-3", code="482913", expires_in_ms=300_000)] * 2
    output = Output(edge, capsys, "pair", "node-3")
    assert (output.code, output.err) == (0, "")
    assert output.out.splitlines() == ["482913", "For node-3, one client, within 5 minutes."]
    assert edge.commands == [{"type": "pair", "node_id": "node-3"}]
    output = Output(edge, capsys, "pair", "node-3", "--json")
    assert json.loads(output.out) == {"node_id": "node-3", "code": "482913", "expires_in_ms": 300_000}


@pytest.mark.parametrize(
    ("status", "message", "printed"),
    [(404, "there is no node node-3", "the mesh knows no node node-3"), (429, "retry in 20 s", "retry in 20 s")],
)
def test_refused_pair_prints_the_reason(
    edge: SmallEdge, capsys: pytest.CaptureFixture[str], status: int, message: str, printed: str
) -> None:
    edge.answers = [{"type": "error", "status": status, "code": "X", "message": message}]
    output = Output(edge, capsys, "pair", "node-3")
    assert (output.code, output.out, output.err) == (1, "", f"error: {printed}\n")


# --- node drain -----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll without delay."""
    monkeypatch.setattr(drain, "POLL_INTERVAL_S", 0.001)


def test_drain_prints_progress_until_empty(edge: SmallEdge, capsys: pytest.CaptureFixture[str]) -> None:
    edge.answers = [done(node_id="node-3", status="draining", drain_until_ms=0)]
    counts = [node("draining", used) for used in (2, 2, 1, 0)]
    edge.pages["/api/v1/nodes/node-3"] = counts
    output = Output(edge, capsys, "node", "drain", "node-3", "--deadline", "60", "--reason", "update")
    assert output.out.splitlines() == [
        "node-3: draining, 2 jobs left ...",
        "node-3: draining, 1 job left ...",
        "node-3: draining, empty",
    ]
    assert (output.code, output.err) == (0, "")
    assert edge.commands == [{"type": "drain", "node_id": "node-3", "reason": "update", "deadline_ms": 60_000}]


def test_drain_without_a_deadline_uses_that_of_the_mesh(edge: SmallEdge, capsys: pytest.CaptureFixture[str]) -> None:
    edge.answers = [done(node_id="node-3", status="draining", drain_until_ms=round(time.time() * 1_000) + 60_000)]
    edge.pages["/api/v1/nodes/node-3"] = [node("draining", 1), (404, "")]
    output = Output(edge, capsys, "node", "drain", "node-3", "--json")
    assert "deadline_ms" not in edge.commands[0]
    assert (output.code, json.loads(output.out)["status"]) == (0, "gone")


def test_jobs_left_at_the_deadline_fail_over(edge: SmallEdge, capsys: pytest.CaptureFixture[str]) -> None:
    edge.answers = [done(node_id="node-3", status="draining", drain_until_ms=1)]
    edge.pages["/api/v1/nodes/node-3"] = [node("draining", 2), node("draining", 0)]
    output = Output(edge, capsys, "node", "drain", "node-3")
    assert "the deadline is over, 2 jobs to hand over ..." in output.out
    assert output.code == 0


def test_drain_fails_if_jobs_remain_after_the_failover_time(
    edge: SmallEdge, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "FAILOVER_S", 0.01)
    edge.answers = [done(node_id="node-3", status="draining", drain_until_ms=1)]
    edge.pages["/api/v1/nodes/node-3"] = [node("draining", 2)]
    output = Output(edge, capsys, "node", "drain", "node-3")
    assert (output.code, output.err) == (1, "error: node-3 still has 2 jobs after its deadline\n")


def test_drain_ended_by_another_operator_fails(edge: SmallEdge, capsys: pytest.CaptureFixture[str]) -> None:
    edge.answers = [done(node_id="node-3", status="draining", drain_until_ms=0)]
    edge.pages["/api/v1/nodes/node-3"] = [node("draining", 2), node("ready", 2)]
    output = Output(edge, capsys, "node", "drain", "node-3", "--deadline", "60")
    assert (output.code, output.err) == (1, "error: node-3 is ready again: the drain was ended\n")


def test_resume_ends_the_drain(edge: SmallEdge, capsys: pytest.CaptureFixture[str]) -> None:
    edge.answers = [done(node_id="node-3", status="ready", drain_until_ms=0)]
    output = Output(edge, capsys, "node", "drain", "node-3", "--resume")
    assert (output.code, output.out) == (0, "node-3: ready, takes work again\n")
    assert edge.commands == [{"type": "drain", "node_id": "node-3", "reason": "operator", "resume": True}]


def test_drain_of_an_unknown_node_fails(edge: SmallEdge, capsys: pytest.CaptureFixture[str]) -> None:
    edge.answers = [{"type": "error", "status": 404, "code": "NOT_FOUND", "message": "no such node"}]
    output = Output(edge, capsys, "node", "drain", "node-9")
    assert (output.code, output.err) == (1, "error: the mesh knows no node node-9\n")


def test_url_option_before_drain_is_kept(edge: SmallEdge, capsys: pytest.CaptureFixture[str]) -> None:
    edge.answers = [done(node_id="node-3", status="ready", drain_until_ms=0)]
    assert main(["node", "--url", edge.url, "drain", "node-3", "--resume"]) == 0


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e300", "86401"])
def test_deadline_out_of_range_is_refused(edge: SmallEdge, capsys: pytest.CaptureFixture[str], seconds: str) -> None:
    output = Output(edge, capsys, "node", "drain", "node-3", "--deadline", seconds)
    assert (output.code, edge.commands) == (2, [])
    assert output.err == "error: --deadline is a number of seconds above 0, at most 86400\n"
