"""Supervision of child processes, with real ones."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from linguamesh.local import process
from linguamesh.local.process import ProcessFailed, ProcessSpec, SupervisedProcess
from tests.support.conditions import DEADLINE_S

SERVES = """
import signal, sys, time
print('{"ready": true, "extra": 7}', flush=True)
signal.pause()
"""
REFUSES = "import sys; print('error: edge.port is wrong', file=sys.stderr); sys.exit(2)"
IGNORES_SIGTERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('{}', flush=True); time.sleep(600)"
)


def child(code: str, tmp_path: Path, notify: Callable[[str], None] = print) -> SupervisedProcess:
    spec = ProcessSpec("edge", "edge-0", [sys.executable, "-c", code])
    return SupervisedProcess(spec, tmp_path / "edge-0.log", notify)


async def test_process_starts_and_stops(tmp_path: Path) -> None:
    running = child(SERVES, tmp_path)
    await running.start()
    assert running.ready["extra"] == 7
    assert os.getsid(running.pid) == running.pid  # Ctrl-C in the terminal does not reach it
    running.supervise()
    await running.stop()
    assert not psutil.pid_exists(running.pid)
    await running.stop()


async def test_failed_start_reports_the_log_and_the_exit_code(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match=r"edge-0 did not start: error: edge\.port is wrong") as failed:
        await child(REFUSES, tmp_path).start()
    assert failed.value.exit_code == 2


async def test_crashed_process_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "RESTART_BASE_S", 0.01)
    lines: asyncio.Queue[str] = asyncio.Queue()
    running = child(SERVES, tmp_path, lines.put_nowait)
    await running.start()
    running.supervise()
    first = running.pid
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(DEADLINE_S):
        assert await lines.get() == f"edge-0 (pid {first}) ended with code -9; starting it again in 0.01 s"
        assert await lines.get() == f"edge-0 is back (pid {running.pid})"
    assert running.pid != first
    await running.stop()
    assert not psutil.pid_exists(running.pid)


async def test_restarts_are_abandoned_after_too_many_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "RESTART_BASE_S", 0.001)
    monkeypatch.setattr(process, "CRASHES_MAX", 2)
    running = child("print('{}', flush=True)", tmp_path)
    await running.start()
    with pytest.raises(ProcessFailed, match="crashed 3 times in a row; giving up"):
        async with asyncio.timeout(DEADLINE_S):
            await running.supervise()
    await running.stop()


async def test_process_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STOP_TIMEOUT_S", 0.1)
    lines: list[str] = []
    running = child(IGNORES_SIGTERM, tmp_path, lines.append)
    await running.start()
    await running.stop()
    assert not psutil.pid_exists(running.pid)
    assert "does not stop; killing it" in lines[0]
