"""`lingua version`."""

from __future__ import annotations

import argparse
from importlib.metadata import version

import pytest

from linguamesh.cli.main import main
from linguamesh.cli.version import run


def test_version_is_that_of_the_installed_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0 == run(argparse.Namespace())
    assert capsys.readouterr().out == f"{version('lingua-mesh')}\n" * 2
