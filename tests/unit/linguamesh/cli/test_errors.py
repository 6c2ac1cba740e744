"""Exit codes and error lines of the operator's commands."""

from __future__ import annotations

import pytest

from linguamesh.cli.errors import exit_code_of
from linguamesh.errors import MeshRefused, Unreachable
from mesh.errors import ConfigError


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigError("--deadline is wrong"), 2, "error: --deadline is wrong\n"),
        (Unreachable("refused"), 69, "error: no mesh running there: refused. Start one with `lingua up`.\n"),
        (MeshRefused(503, "full"), 69, "error: the mesh cannot answer now: full\n"),
        (MeshRefused(504, "no selector"), 69, "error: the mesh cannot answer now: no selector\n"),
        (MeshRefused(409, "conflict"), 1, "error: conflict\n"),
    ],
)
def test_exception_becomes_one_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], error: Exception, code: int, text: str
) -> None:
    def fail() -> int:
        raise error

    assert exit_code_of(fail) == code
    assert capsys.readouterr() == ("", text)


def test_exit_code_of_a_success_is_its_own() -> None:
    assert exit_code_of(lambda: 7) == 7
