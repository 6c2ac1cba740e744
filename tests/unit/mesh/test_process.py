"""mesh.process: signals, exit codes, the ready line, and dying with the parent; in real child processes."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from structlog.testing import capture_logs

from mesh.config.network import ProcessConfig
from mesh.process import EXIT_CONFIG, EXIT_FAILED, EXIT_OK, EXIT_UNREACHABLE, PARENT_PID, set_scheduling
from tests.support.conditions import DEADLINE_S

WAITING = """
import asyncio, sys
from mesh import process
async def main(stop):
    process.announce_ready("edge", "e1", "edge:e1:00", url="http://127.0.0.1:1")
    await stop.wait()
    {after}
sys.exit(process.run(main))
"""

RAISING = """
import sys
from mesh import errors, process
async def main(stop):
    raise {error}
sys.exit(process.run(main, unreachable=(TimeoutError,)))
"""

#: Starts a child that dies with its parent, prints its pid, and stays.
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(child.pid, child.stdout.readline().strip(), flush=True)
sys.stdin.read()
"""

CHILD = """
import sys, time
from mesh import process
process.die_with_parent()
print("up", flush=True)
time.sleep(600)
"""


def start(code: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_sets_the_event_and_exit_code_is_zero(number: signal.Signals) -> None:
    process = start(WAITING.format(after="pass"))
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready == {
        "ready": True,
        "kind": "edge",
        "id": "e1",
        "identity": "edge:e1:00",
        "pid": process.pid,
        "url": "http://127.0.0.1:1",
    }
    process.send_signal(number)
    assert finish(process) == (EXIT_OK, "")


def test_second_signal_exits_at_once() -> None:
    process = start(WAITING.format(after="print('draining', flush=True); await asyncio.sleep(600)"))
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "draining\n"
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ('errors.ConfigError("edge.port: too high")', EXIT_CONFIG),
        ('errors.StoreError("no Redis at x")', EXIT_UNREACHABLE),
        ('TimeoutError("no broker answered")', EXIT_UNREACHABLE),
    ],
)
def test_known_failure_prints_one_line_and_sets_exit_code(error: str, code: int) -> None:
    returned, err = finish(start(RAISING.format(error=error)))
    assert returned == code
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_bug_prints_its_traceback() -> None:
    returned, err = finish(start(RAISING.format(error='KeyError("x")')))
    assert returned == EXIT_FAILED
    assert "Traceback" in err


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"process {pid} outlived its parent"
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux only")
def test_child_dies_when_its_parent_is_killed() -> None:
    parent = start(PARENT, CHILD)
    assert parent.stdout is not None
    pid, word = parent.stdout.readline().split()
    assert word == "up"
    parent.kill()
    finish(parent)
    wait_gone(int(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux only")
def test_child_exits_if_its_parent_is_dead_already() -> None:
    env = {**os.environ, PARENT_PID: str(finished_pid())}
    child = subprocess.run(
        [sys.executable, "-c", CHILD], env=env, stdout=subprocess.PIPE, timeout=DEADLINE_S, check=False
    )
    assert (child.returncode, child.stdout) == (EXIT_FAILED, b"")


def test_exit_codes_are_those_of_the_documentation() -> None:
    assert (EXIT_OK, EXIT_FAILED, EXIT_CONFIG, EXIT_UNREACHABLE) == (0, 1, 2, 69)


def finished_pid() -> int:
    """The pid of a process that has ended: what a child's parent looks like when it died early."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(30)
    return process.pid


SCHEDULED = """
import os, threading
from mesh.config.network import ProcessConfig
from mesh.process import set_scheduling
set_scheduling(ProcessConfig(scheduling="{scheduling}"))
policies = [os.sched_getscheduler(0)]
thread = threading.Thread(target=lambda: policies.append(os.sched_getscheduler(0)))
thread.start()
thread.join()
print(policies == [os.{policy}] * 2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="scheduling policies of Linux")
@pytest.mark.parametrize(("scheduling", "policy"), [("batch", "SCHED_BATCH"), ("normal", "SCHED_OTHER")])
def test_scheduling_policy_is_set_for_the_process_and_its_threads(scheduling: str, policy: str) -> None:
    child = start(SCHEDULED.format(scheduling=scheduling, policy=policy))
    assert child.communicate(timeout=DEADLINE_S)[0].strip() == "True"


def test_forbidden_scheduling_policy_is_logged_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with capture_logs() as lines:
        set_scheduling(ProcessConfig())
    assert [line["event"] for line in lines] == (["scheduling_not_set"] if sys.platform == "linux" else [])
