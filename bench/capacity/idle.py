"""What `lingua up` costs at rest, and how long it takes to be ready."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import psutil

from bench.table import print_table
from linguamesh.local.redis_server import free_port

SECONDS = 20.0


def _cpu_seconds(processes: list[psutil.Process]) -> dict[int, float]:
    return {process.pid: sum(process.cpu_times()[:2]) for process in processes if process.is_running()}


def run() -> None:
    """Start the default stack, let it rest, print CPU per process."""
    started = time.monotonic()
    command = [sys.executable, "-m", "linguamesh.cli.main", "up", "--json", "--port", str(free_port())]
    stack = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert stack.stdout is not None
        ready = json.loads(stack.stdout.readline())
        ready_seconds = time.monotonic() - started
        names = {entry["pid"]: entry["id"] for kind in ("edges", "brokers", "selectors") for entry in ready[kind]}
        names |= {entry["pid"]: entry["id"] for entry in ready.get("nodes", [])}
        time.sleep(3)  # let the start-up work settle before measuring rest
        processes = [psutil.Process(stack.pid), *psutil.Process(stack.pid).children(recursive=True)]
        before, began = _cpu_seconds(processes), time.monotonic()
        time.sleep(SECONDS)
        after, seconds = _cpu_seconds(processes), time.monotonic() - began
        rows = []
        for process in processes:
            share = 100 * (after[process.pid] - before[process.pid]) / seconds
            name = names.get(process.pid, "lingua up" if process.pid == stack.pid else process.name())
            rows.append((name, f"{share:.2f}", f"{process.memory_info().rss / 2**20:.0f}"))
        total = 100 * (sum(after.values()) - sum(before.values())) / seconds
        rows.append(("total", f"{total:.2f}", ""))
        print_table(
            f"lingua up at rest, {seconds:.0f} s (ready after {ready_seconds:.1f} s)",
            ("process", "% of a core", "MiB"),
            rows,
        )
    finally:
        stack.send_signal(signal.SIGINT)
        stack.wait(30)


if __name__ == "__main__":
    run()
