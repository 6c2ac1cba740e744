from __future__ import annotations

import subprocess
import sys

import pytest

from lua.engine import check
from lua.engine.header import ScriptError


def test_the_check_passes_and_says_so_in_one_line() -> None:
    done = subprocess.run([sys.executable, "-m", "lua.engine.check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1 and "agree" in done.stdout


def test_the_check_names_the_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from pathlib import Path

    def broken() -> None:
        raise ScriptError(Path("lua/x.lua"), 7, "wrong")

    monkeypatch.setattr(check, "load_scripts", broken)
    assert check.main() == 1
    assert capsys.readouterr().err == "lua/x.lua:7: wrong\n"
