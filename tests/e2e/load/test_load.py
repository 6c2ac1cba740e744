"""A short load test, as `make load` runs it: nothing missing, doubled or out of order; a limit that is missed fails it.

No time is asserted: the limits on times are far beyond what a busy machine needs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.conditions import DEADLINE_S

ROOT = Path(__file__).resolve().parents[3]
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
    return {name: verdict for verdict, name in re.findall(r"^  (ok|MISSED) +([^:]+): ", output, re.MULTILINE)}


def test_a_short_run_with_every_kind_of_user_holds_all_limits() -> None:
    mix = "utterance=2,stream_json=2,stream_binary=2,room=2,churn=2,resume=2"
    done = load("--run-time", "6s", "--mix", mix, "--node-churn", "2", "--limit-p95-ms", str(DEADLINE_S * 1_000))
    assert done.returncode == 0, done.stdout + done.stderr
    found = verdicts(done.stdout)
    assert set(found.values()) == {"ok"}
    assert {"results", "missing results", "order violations", "duplicate results", "failures"} <= set(found)
    for row in ("utterance -> result, resumed", "room delivery", "utterance -> first partial", "node registered"):
        assert row in done.stdout + done.stderr


def test_a_limit_that_cannot_hold_fails_the_run() -> None:
    done = load("--run-time", "2s", "--mix", "utterance=1", "--limit-p95-ms", "0")
    assert done.returncode == 1, done.stdout + done.stderr
    missed = [name for name, verdict in verdicts(done.stdout).items() if verdict == "MISSED"]
    assert missed == ["p95 of utterance -> result, utterance"]
