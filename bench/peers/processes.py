"""Processes of one contender: started, waited for, stopped, and their CPU by kind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

import psutil

from linguamesh.local.redis_server import RedisServer
from mesh.process import die_with_parent

CLIENTS: Final = Path(__file__).parent / "clients"
ROOT: Final = Path(__file__).resolve().parents[2]
READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 20.0


class ContenderFailed(Exception):
    """A process did not start, or ended in the middle of a window."""


@dataclass(frozen=True, slots=True)
class Window:
    """The measurements of one window: latencies, jobs per second, CPU seconds by kind of process."""

    latencies: list[float]
    seconds: float
    cpu_s: dict[str, float]
    #: Cores that other programs used meanwhile.
    foreign_cores: float

    @property
    def jobs_per_s(self) -> float:
        """Throughput."""
        return len(self.latencies) / self.seconds

    def cpu_ms(self, *without: str) -> float:
        """CPU milliseconds per job, of all kinds but those."""
        used = sum(seconds for kind, seconds in self.cpu_s.items() if kind not in without)
        return used * 1_000 / max(1, len(self.latencies))


@dataclass(slots=True)
class Processes:
    """A block: all of its processes end with it. `client` is the one that serves windows."""

    directory: Path
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _redis: list[RedisServer] = field(default_factory=list)
    _kinds: dict[int, str] = field(default_factory=dict)
    _client: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._started):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for server in self._redis:
            server.stop()

    # --- start ------------------------------------------------------------------------------------

    def redis(self) -> str:
        """A Redis server of its own, the one that our mesh embeds; its URL without a database."""
        server = RedisServer.start(self.directory / f"redis-{len(self._redis)}")
        self._redis.append(server)
        with server.client() as client:
            self._kinds[int(client.info("server")["process_id"])] = "redis"
        return server.url.rpartition("/")[0] if server.url.count("/") > 2 else server.url

    def start(
        self, kind: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None, *, is_ready: bool = True
    ) -> dict[str, Any]:
        """Start a process; with `is_ready` wait for its first line and return it, if it is JSON."""
        log = (self.directory / f"{kind}-{len(self._started)}.log").open("wb")
        process = subprocess.Popen(
            [str(word) for word in command],
            env={**os.environ, **(env or {})},
            cwd=CLIENTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if is_ready else log,
            stderr=log,
            preexec_fn=die_with_parent,
        )
        log.close()
        self._started.append(process)
        self._kinds[process.pid] = kind
        if kind == "client":
            self._client = process
        return self._ready_line(process.stdout, kind) if is_ready and process.stdout else {}

    def mesh(self, *options: str) -> dict[str, Any]:
        """`lingua up` without nodes; its ready line. Its processes count by their kind."""
        command = [sys.executable, "-m", "linguamesh.cli.main", "up", "--json", "--port", "0", "--nodes", "0", *options]
        ready = self.start("up", command)
        for plural in ("edges", "brokers", "selectors"):
            for entry in ready[plural]:
                self._kinds[entry["pid"]] = plural.removesuffix("s")
        for child in psutil.Process(self._started[-1].pid).children():
            self._kinds.setdefault(child.pid, "redis")
        return ready

    def _ready_line(self, stdout: IO[bytes], kind: str) -> dict[str, Any]:
        line = stdout.readline()
        if not line:
            logs = b"".join(path.read_bytes()[-2_000:] for path in self.directory.glob(f"{kind}-*.log"))
            raise ContenderFailed(f"{kind} did not start: {logs.decode(errors='replace')}")
        return dict(json.loads(line)) if line.startswith(b"{") else {}

    # --- measure ----------------------------------------------------------------------------------

    def measure(self, **request: Any) -> Window:
        """One window of the client, with the CPU of every process."""
        assert self._client and self._client.stdin and self._client.stdout
        before, machine_before, began = self._cpu_seconds(), _machine_busy_s(), time.perf_counter()
        self._client.stdin.write(json.dumps(request).encode() + b"\n")
        self._client.stdin.flush()
        line = self._client.stdout.readline()
        if not line:
            logs = b"".join(path.read_bytes()[-2_000:] for path in self.directory.glob("client-*.log"))
            raise ContenderFailed(f"the client failed: {logs.decode(errors='replace')}")
        after, machine_after, seconds = self._cpu_seconds(), _machine_busy_s(), time.perf_counter() - began
        reply = json.loads(line)
        used = {kind: after[kind] - before.get(kind, 0.0) for kind in after}
        ours = sum(used.values()) + 0.0
        foreign = max(0.0, machine_after - machine_before - ours) / seconds
        return Window(reply["latencies"], reply["seconds"], used, foreign)

    def _cpu_seconds(self) -> dict[str, float]:
        """CPU by kind. A descendant without a kind of its own (a worker's pool) counts as its ancestor's."""
        used: dict[str, float] = {}
        seen: set[int] = set()
        todo = [(process.pid, self._kinds[process.pid]) for process in self._started if process.poll() is None]
        todo += [(pid, kind) for pid, kind in self._kinds.items() if kind == "redis"]
        while todo:
            pid, kind = todo.pop()
            if pid in seen:
                continue
            seen.add(pid)
            try:
                process = psutil.Process(pid)
                times = process.cpu_times()
                todo += [(child.pid, self._kinds.get(child.pid, kind)) for child in process.children()]
            except psutil.NoSuchProcess:
                continue
            kind = self._kinds.get(pid, kind)
            used[kind] = used.get(kind, 0.0) + times.user + times.system
        return used


def wait_for_port(port: int) -> None:
    """Returns once a server accepts connections on loopback."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline_s:
                raise ContenderFailed(f"nothing listens on port {port}") from None
            time.sleep(0.05)


def _machine_busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + getattr(times, "irq", 0) + getattr(times, "softirq", 0))
