"""`make load`: a mesh of its own, locust headless against it, and the exit code of the limits: 0 held, 1 missed.

Arguments are passed on to locust after the defaults below, so `make load ARGS="--users 40 --run-time 2m"` replaces two
of them. Options of the mesh are `--mesh-edges`, `--mesh-brokers` and `--mesh-selectors`. `--help` lists the options.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from loadtest.options import add_arguments
from mesh.process import die_with_parent

LOCUSTFILE: Final = Path(__file__).parent / "locustfile.py"
#: The headless profile of `make load`. 24 users beside the nodes, mixed as `loadtest.options.DEFAULT_MIX`.
PROFILE: Final = ("--users", "28", "--spawn-rate", "14", "--run-time", "30s", "--node-churn", "10")
#: Users finish their utterance at the end of a run; `--result-timeout` is shorter.
STOP_TIMEOUT_S: Final = 40
#: `lingua up` stops its processes one after another.
MESH_STOP_S: Final = 60


@contextmanager
def running_mesh(edges: int, brokers: int, selectors: int) -> Iterator[dict[str, Any]]:
    """`lingua up` on free ports, without nodes: its ready line. All of it has ended after the block."""
    counts = ("--edges", str(edges), "--brokers", str(brokers), "--selectors", str(selectors), "--nodes", "0")
    command = [sys.executable, "-m", "linguamesh.cli.main", "up", "--json", "--port", "0", *counts]
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=die_with_parent) as mesh:
        try:
            assert mesh.stdout is not None
            line = mesh.stdout.readline()
            if not line:
                raise SystemExit(mesh.wait() or 1)
            yield json.loads(line)
        finally:
            if mesh.poll() is None:
                mesh.send_signal(signal.SIGINT)
            try:
                mesh.wait(MESH_STOP_S)
            finally:
                mesh.kill()


def main(arguments: list[str]) -> int:
    """Run the profile; the exit code."""
    parser = argparse.ArgumentParser(
        usage='make load ARGS="OPTION ..."',
        epilog=f"Options of locust are passed on (.venv/bin/locust --help). Its defaults here: {' '.join(PROFILE)}",
        add_help=False,
    )
    group = parser.add_argument_group("the mesh")
    for kind, default in (("edges", 2), ("brokers", 1), ("selectors", 2)):
        group.add_argument(f"--mesh-{kind}", type=int, default=default, metavar="N", help=f"default {default}")
    own, rest = parser.parse_known_args(arguments)
    if {"-h", "--help"} & set(rest):
        add_arguments(parser)
        parser.print_help()
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with running_mesh(own.mesh_edges, own.mesh_brokers, own.mesh_selectors) as ready:
        edges = ",".join(edge["url"].replace("http", "ws", 1) for edge in ready["edges"])
        headless = ("--headless", "--only-summary", "--stop-timeout", str(STOP_TIMEOUT_S), "--loglevel", "WARNING")
        command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), *headless, "--edge", edges, *PROFILE, *rest]
        locust = subprocess.Popen(command, preexec_fn=die_with_parent)
        try:
            return locust.wait()
        except KeyboardInterrupt:
            return locust.wait(STOP_TIMEOUT_S)  # the terminal has interrupted locust too
        finally:
            if locust.poll() is None:
                locust.kill()
                locust.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
