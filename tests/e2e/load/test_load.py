"""A short load test, as `make load` runs it: nothing missing, doubled or out of order; a limit that is missed fails it.

No time is asserted: the limits on times are far beyond what a busy machine needs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import psutil

from linguamesh.local.redis_server import free_port
from loadtest.__main__ import LOCUSTFILE, STOP_TIMEOUT_S, running_mesh
from loadtest.delivery import Metric
from tests.support.conditions import DEADLINE_S

ROOT = Path(__file__).resolve().parents[3]
LOCUST = (sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--loglevel", "WARNING")
SMALL = ("--users", "14", "--spawn-rate", "14", "--nodes", "2", "--think", "0.2", "--chunks", "5", "--chunk-ms", "50")


def load(*options: str) -> subprocess.CompletedProcess[str]:
    """Run to the end; no child may be left."""
    before = set(psutil.Process().children(recursive=True))
    done = subprocess.run(
        [sys.executable, "-m", "loadtest", *SMALL, *options],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        cwd=ROOT,
        check=False,
    )
    assert set(psutil.Process().children(recursive=True)) <= before
    return done


def verdicts(output: str) -> dict[str, str]:
    """Name of each limit -> "ok" or "MISSED"."""
    lines = output.partition("\nLimits\n")[2]
    return {name: verdict for verdict, name in re.findall(r"^  (ok|MISSED) +([^:]+): ", lines, re.MULTILINE)}


def test_a_short_run_with_every_kind_of_user_holds_all_limits() -> None:
    mix = "utterance=2,stream_json=2,stream_binary=2,room=2,churn=2,resume=2"
    done = load("--run-time", "12s", "--mix", mix, "--node-churn", "2", "--limit-p95-ms", str(DEADLINE_S * 1_000))
    assert done.returncode == 0, done.stdout + done.stderr
    found = verdicts(done.stdout)
    assert set(found.values()) == {"ok"}
    assert {"results", "missing results", "order violations", "duplicate results", "failures"} <= set(found)
    for row in (Metric.RESUMED_RESULT, Metric.ROOM, Metric.PARTIAL, Metric.NODE):
        assert row in done.stdout + done.stderr


def test_a_limit_that_cannot_hold_fails_the_run() -> None:
    done = load("--run-time", "15s", "--mix", "utterance=1", "--limit-p95-ms", "0")
    assert done.returncode == 1, done.stdout + done.stderr
    missed = [name for name, verdict in verdicts(done.stdout).items() if verdict == "MISSED"]
    assert missed == ["p95 of utterance -> result, utterance"]


def test_workers_take_the_options_of_the_master() -> None:
    """The worker has defaults only: it would dial another port, and knows no session of one kind alone."""
    port = str(free_port())
    options = (*SMALL, "--mix", "utterance=1", "--slots", "3", "--seed", "5", "--limit-p95-ms", str(DEADLINE_S * 1_000))
    with running_mesh(edges=2, brokers=1, selectors=1) as ready:
        edges = ",".join(edge["url"].replace("http", "ws", 1) for edge in ready["edges"])
        distributed = ("--master", "--master-bind-port", port, "--expect-workers", "1", "--run-time", "12s")
        times = ("--stop-timeout", str(STOP_TIMEOUT_S), "--only-summary")
        master_command = [*LOCUST, *distributed, *times, "--edge", edges, *options]
        worker_command = [*LOCUST, "--worker", "--master-port", port]
        with (
            subprocess.Popen(worker_command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as worker,
            subprocess.Popen(master_command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as master,
        ):
            try:
                output = master.communicate(timeout=DEADLINE_S)[0].decode()
                errors = worker.communicate(timeout=DEADLINE_S)[1].decode()
            finally:
                master.kill()
                worker.kill()
    assert (master.returncode, worker.returncode) == (0, 0), output + errors
    found = verdicts(output)
    assert found["results"] == "ok" and set(found.values()) == {"ok"}, output
    assert Metric.NODE in output
