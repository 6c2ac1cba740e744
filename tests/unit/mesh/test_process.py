"""mesh.process: signals, exit codes, the ready line, and dying with the parent; in real child processes."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

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
    _, err = process.communicate(timeout=30)
    return process.returncode, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_event_and_the_process_ends_well(number: signal.Signals) -> None:
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
    assert finish(process) == (0, "")


def test_a_second_signal_quits_at_once() -> None:
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
        ('errors.ConfigError("edge.port: too high")', 2),
        ('errors.StoreError("no Redis at x")', 69),
        ('TimeoutError("no broker answered")', 69),
    ],
)
def test_a_known_failure_is_one_line_and_a_code(error: str, code: int) -> None:
    returned, err = finish(start(RAISING.format(error=error)))
    assert returned == code
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_bug_shows_its_traceback() -> None:
    returned, err = finish(start(RAISING.format(error='KeyError("x")')))
    assert returned == 1
    assert "Traceback" in err


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"process {pid} outlived its parent"
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux only")
def test_a_child_dies_when_its_parent_is_killed() -> None:
    parent = start(PARENT, CHILD)
    assert parent.stdout is not None
    pid, word = parent.stdout.readline().split()
    assert word == "up"
    parent.kill()
    finish(parent)
    wait_gone(int(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux only")
def test_a_child_whose_parent_is_already_gone_ends_itself() -> None:
    env = {**os.environ, "MESH_PARENT_PID": str(finished_pid())}
    child = subprocess.run([sys.executable, "-c", CHILD], env=env, stdout=subprocess.PIPE, timeout=30, check=False)
    assert (child.returncode, child.stdout) == (1, b"")


def finished_pid() -> int:
    """The pid of a process that has ended: what a child's parent looks like when it died early."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(30)
    return process.pid
