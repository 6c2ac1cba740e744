"""A mesh of real processes on loopback: start, kill, freeze, read metrics and logs, stop."""

from __future__ import annotations

import json
import os
import selectors as io_selectors
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from linguamesh.operator import Operator
from tests.support.conditions import DEADLINE_S, wait_until

ROOT = Path(__file__).resolve().parents[3]
#: Settings for tests that are not about timeouts: only a broken mesh waits that long, on a busy machine too.
PATIENT = {
    "LINGUA_JOB_PENDING_TIMEOUT_MS": "60000",
    "LINGUA_JOB_DEADLINE_MS": "120000",
    "LINGUA_REDIS_TIMEOUT_MS": "10000",
    "LINGUA_EDGE_OPEN_TIMEOUT_MS": "60000",
    "LINGUA_EDGE_PING_TIMEOUT_MS": "60000",
}


class MeshProcess:
    """One child process that prints a ready line on stdout and logs to a file."""

    def __init__(self, module: str, name: str, directory: Path, env: dict[str, str], *options: str) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", module, "--name", name, "--die-with-parent", *options],
                cwd=ROOT,
                env={**os.environ, **env},
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.ready: dict[str, Any] = {}

    def wait_ready(self) -> dict[str, Any]:
        """The ready line; AssertionError with the log if it does not come."""
        assert self.popen.stdout is not None
        deadline = time.monotonic() + DEADLINE_S
        with io_selectors.DefaultSelector() as selector:
            selector.register(self.popen.stdout, io_selectors.EVENT_READ)
            while time.monotonic() < deadline and self.popen.poll() is None:
                if selector.select(timeout=0.5):
                    line = self.popen.stdout.readline()
                    if line.startswith(b"{"):
                        self.ready = json.loads(line)
                        return self.ready
        raise AssertionError(f"{self.name} did not become ready:\n{self.log.read_text()[-4000:]}")

    def kill(self) -> None:
        """kill -9, at once."""
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait(DEADLINE_S)
        if self.popen.stdout is not None:
            self.popen.stdout.close()

    def freeze(self) -> None:
        """SIGSTOP: it does not run, and its sockets stay open. Returns when it has stopped."""
        self.popen.send_signal(signal.SIGSTOP)
        process = psutil.Process(self.popen.pid)
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, lambda: f"{self.name} is frozen")

    def thaw(self) -> None:
        """SIGCONT."""
        self.popen.send_signal(signal.SIGCONT)

    def is_alive(self) -> bool:
        """True until it has ended."""
        return self.popen.poll() is None

    def metric(self, name: str, *labels: str) -> float:
        """The sum of a metric's series whose labels contain all of `labels`, as in 'verdict="fenced"'."""
        with urllib.request.urlopen(f"{self.ready['url']}/metrics", timeout=DEADLINE_S) as answer:
            lines = answer.read().decode().splitlines()
        series = (line.rsplit(" ", 1) for line in lines if line.startswith((f"{name}{{", f"{name} ")))
        return sum(float(value) for key, value in series if all(label in key for label in labels))

    def stop(self) -> int:
        """SIGTERM and the exit code; kill -9 and AssertionError if that takes too long."""
        if self.popen.poll() is None:
            self.popen.terminate()
        try:
            return self.popen.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop:\n{self.log.read_text()[-4000:]}") from None
        finally:
            if self.popen.stdout is not None:
                self.popen.stdout.close()


class RunningMesh:
    """Brokers, edges and selectors around a given Redis. Names: broker-0, edge-0, selector-0, …"""

    def __init__(
        self,
        directory: Path,
        redis_url: str,
        *,
        cluster: bool = False,
        brokers: int = 1,
        edges: int = 2,
        selectors: int = 2,
        env: dict[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.processes: dict[str, MeshProcess] = {}
        self._counts = {"broker": brokers, "edge": edges, "selector": selectors}
        self._env = {
            "LINGUA_LINK_FRONTENDS": ",".join(f"ipc://{directory}/f{i}" for i in range(brokers)),
            "LINGUA_LINK_BACKENDS": ",".join(f"ipc://{directory}/b{i}" for i in range(brokers)),
            "LINGUA_REDIS_URL": redis_url,
            "LINGUA_REDIS_CLUSTER": str(cluster).lower(),
            "LINGUA_EDGE_PORT": "0",
            "LINGUA_LOG_FORMAT": "json",
            **(env or {}),
        }

    def __enter__(self) -> RunningMesh:
        for kind in ("broker", "selector", "edge"):
            for index in range(self._counts[kind]):
                self.start(kind, index)
        for process in self.processes.values():
            process.wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(self.logs())  # pytest shows it with the failure
        failures = []
        for process in reversed(list(self.processes.values())):
            try:
                process.stop()
            except AssertionError as failure:
                failures.append(str(failure))
        if failures and error is None:
            raise AssertionError("\n".join(failures))

    def start(self, kind: str, index: int) -> MeshProcess:
        """Start one process; the caller waits for its ready line."""
        options = ("--index", str(index)) if kind == "broker" else ()
        return self._start(kind, f"{kind}-{index}", *options)

    def _start(self, module: str, name: str, *options: str) -> MeshProcess:
        process = MeshProcess(module, name, self.directory, self._env, *options)
        self.processes[name] = process
        return process

    def restart(self, kind: str, index: int) -> MeshProcess:
        """kill -9 and start again; the caller waits for the ready line."""
        self.kill(f"{kind}-{index}")
        return self.start(kind, index)

    def start_nodes(self, name: str, url: str, *options: str) -> MeshProcess:
        """A process of SDK nodes (tests/support/processes/fleet.py); the caller waits for its ready line."""
        return self._start("tests.support.processes.fleet", name, "--url", url, *options)

    def start_json_node(self, name: str, url: str, *options: str) -> MeshProcess:
        """A process with one node that ignores cancellation (tests/support/processes/json_node.py)."""
        return self._start("tests.support.processes.json_node", name, "--url", url, *options)

    def operator(self, edge: str = "edge-0") -> Operator:
        """The operators' HTTP client of that edge."""
        return Operator(str(self.processes[edge].ready["url"]), timeout_s=DEADLINE_S)

    def metric(self, name: str, *labels: str) -> float:
        """The sum of a metric over all live edges and selectors."""
        live = [p for p in self.processes.values() if p.is_alive() and p.ready.get("kind") in ("edge", "selector")]
        return sum(process.metric(name, *labels) for process in live)

    def url(self, edge: str) -> str:
        """ws://host:port of one edge's own port."""
        http = str(self.processes[edge].ready["url"])
        return http.replace("http://", "ws://")

    def kill(self, name: str) -> None:
        """kill -9 one process."""
        self.processes[name].kill()

    def logs(self) -> str:
        """All logs, for a failure's message."""
        return "\n".join(f"--- {p.name}\n{p.log.read_text()[-3000:]}" for p in self.processes.values())
