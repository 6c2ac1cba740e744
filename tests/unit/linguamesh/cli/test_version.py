"""`lingua version`."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from linguamesh.cli.main import main


def test_version_is_that_of_the_installed_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"{version('lingua-mesh')}\n"
