from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from tools.call_trees import (
    Call,
    Part,
    Tree,
)
from tools.walk import CALLS_DIR, ROOT, name_of, printed


def tree(*functions: str, ns: int = 0) -> Tree:
    """Each function calls the next one; "~f" goes on instead of being called."""
    return [
        Call(ns + depth, 1, depth, not function.startswith("~"), function.removeprefix("~"))
        for depth, function in enumerate(functions)
    ]


def test_a_name_is_the_file_and_the_qualified_function() -> None:
    from mesh.clock import now_ms

    assert name_of(now_ms.__code__) == "mesh/clock.py:now_ms"


def test_code_of_other_packages_has_no_name() -> None:
    assert name_of(asyncio.run.__code__) == ""
    assert name_of(tree.__code__) == ""


def test_the_list_names_each_function_once_with_its_calls() -> None:
    lines = printed([Part("edge-0", ["f.py:a", "g.py:b", "g.py:b"], {"f.py:a"})]).splitlines()
    assert lines[0] == "One utterance and its result: 3 steps, 2 functions, 2 files, 2 changes of file."
    assert lines[-2:] == ["  f.py:a", "  · g.py:b ×2"]


def test_the_markdown_list_has_no_leaves() -> None:
    lines = printed([Part("edge-0", ["f.py:a", "g.py:b"], {"f.py:a"})], markdown=True).splitlines()
    assert lines[-3:] == ["### edge-0", "", "1. `f.py:a`"]


def test_a_process_writes_its_calls_when_it_ends(tmp_path: Path) -> None:
    script = "from tools.walk import record; record(); from mesh.clock import now_ms; now_ms()"
    env = {**os.environ, CALLS_DIR: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=env) as child:
        assert child.wait(60) == 0
    calls = [Call(*one) for one in json.loads((tmp_path / f"{child.pid}.json").read_text())]
    assert [(call.function, call.depth, call.is_new) for call in calls] == [("mesh/clock.py:now_ms", 0, True)]


def test_a_coroutine_that_goes_on_is_not_a_new_call(tmp_path: Path) -> None:
    # mesh.process.run awaits the given function: `_with_signals` is called once and goes on after the wait.
    script = (
        "import asyncio; from tools.walk import record; record(); from mesh import process\n"
        "async def main(stop): await asyncio.sleep(0)\n"
        "process.run(main)"
    )
    env = {**os.environ, CALLS_DIR: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=env) as child:
        assert child.wait(60) == 0
    calls = [Call(*one) for one in json.loads((tmp_path / f"{child.pid}.json").read_text())]
    entries = [call.is_new for call in calls if call.function == "mesh/process.py:_with_signals"]
    assert entries == [True, False]
