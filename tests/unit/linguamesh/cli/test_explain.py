"""`lingua explain` without a mesh; with one: tests/e2e/commands/test_explain.py."""

from __future__ import annotations

import argparse
import json

import pytest

from linguamesh.cli import explain
from linguamesh.errors import MeshRefused

RECORD = {"job_id": "job-00-1", "words": ["node n was chosen", "it was the fastest"]}


class FakeOperator:
    """A mesh with one decision; its store is down for another."""

    def __init__(self, url: str) -> None:
        pass

    def query(self, kind: str, job_id: str) -> dict[str, object]:
        assert kind == "explain"
        if job_id == RECORD["job_id"]:
            return RECORD
        raise MeshRefused(404, "unknown") if job_id == "job-00-none" else MeshRefused(503, "store down")


@pytest.fixture(autouse=True)
def _operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "Operator", FakeOperator)


def run(job_id: str, *, as_json: bool = False) -> int:
    return explain.run(argparse.Namespace(url="", job_id=job_id, json=as_json))


def test_decision_is_printed_as_lines_or_as_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("job-00-1") == 0
    assert capsys.readouterr().out == "node n was chosen\nit was the fastest\n"
    assert run("job-00-1", as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == RECORD


@pytest.mark.parametrize(
    ("job_id", "code", "text"),
    [
        ("job-00-none", 1, "no selector has a decision on job-00-none"),
        ("job-00-2", 69, "the mesh cannot answer now: store down"),
    ],
)
def test_unknown_job_is_another_error_than_a_mesh_that_cannot_answer(
    capsys: pytest.CaptureFixture[str], job_id: str, code: int, text: str
) -> None:
    assert run(job_id) == code
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith(f"error: {text}")
