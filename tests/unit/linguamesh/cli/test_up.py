"""`lingua up`: options that are refused before any process starts."""

from __future__ import annotations

import pytest

from linguamesh.cli import up
from linguamesh.cli.main import build_parser


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--edges", "0"], "error: --edges is 1 to 64\n"), (["--redis", "postgres://x"], "not 'postgres://x'\n")],
)
def test_option_out_of_range_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert up.run(build_parser().parse_args(["up", *arguments])) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.endswith(text), output.err.count("\n")) == ("", True, 1)
