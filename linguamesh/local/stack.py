"""`lingua up`: a whole mesh on this machine, as real processes.

Starts Redis, brokers, edges, selectors and demo nodes, announces when all of them serve, restarts crashed processes,
and stops them in the order that loses nothing: nodes, edges, selectors, brokers, Redis.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from linguamesh.local.paths import PortGuard, StateDirectory
from linguamesh.local.process import ProcessSpec, SupervisedProcess
from linguamesh.local.stack_redis import StackRedis
from mesh import config
from mesh.errors import ConfigError
from mesh.words import ProcessKind

#: Bound on processes of one kind; more are taken for a typing error.
PROCESSES_MAX: Final = 64
DEMO_NODES_MAX: Final = 1_000
_STOP_ORDER: Final = ("nodes", ProcessKind.EDGE, ProcessKind.SELECTOR, ProcessKind.BROKER)


@dataclass(frozen=True, slots=True)
class StackOptions:
    """The options of `lingua up`."""

    port: int = 5010
    edges: int = 2
    brokers: int = 1
    selectors: int = 2
    nodes: int = 4
    #: "embedded", "cluster" or a URL.
    redis: str = "embedded"
    state_dir: str | None = None
    json: bool = False

    def check(self) -> None:
        """ConfigError for a value out of range."""
        for name in ("edges", "brokers", "selectors"):
            if not 1 <= getattr(self, name) <= PROCESSES_MAX:
                raise ConfigError(f"--{name} is 1 to {PROCESSES_MAX}")
        if not 0 <= self.nodes <= DEMO_NODES_MAX:
            raise ConfigError(f"--nodes is 0 to {DEMO_NODES_MAX}")
        if not 0 <= self.port <= 65_535:
            raise ConfigError("--port is 0 (any free one) to 65535")


class Stack:
    """All processes of one local mesh."""

    def __init__(self, options: StackOptions) -> None:
        options.check()
        self._options = options
        self._host = config.load().edge.host
        self._redis = StackRedis(options.redis)
        self._processes: list[SupervisedProcess] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`; ConfigError or ProcessFailed if a process does not start or crashes too often."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, stop.set)  # the terminal was closed
        guard = PortGuard(self._host, self._options.port)
        try:
            with StateDirectory(self._options.state_dir) as directory:
                await self._serve(directory, guard.port, stop)
        finally:
            guard.close()

    async def _serve(self, directory: StateDirectory, port: int, stop: asyncio.Event) -> None:
        stop_requested = asyncio.create_task(stop.wait())
        starting = asyncio.create_task(self._start(directory, port))
        try:
            await asyncio.wait({starting, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                await asyncio.wait({starting})
                return
            starting.result()
            self._announce(directory, port)
            await self._supervise(stop_requested)
        finally:
            stop_requested.cancel()
            await self._stop()

    # --- starting ---------------------------------------------------------------------------------

    async def _start(self, directory: StateDirectory, port: int) -> None:
        """Start all processes; those that do not depend on one another at the same time."""
        env = self._environment(directory, port)
        first = self._processes_of(ProcessKind.BROKER, self._options.brokers, directory, env)
        first += self._processes_of(ProcessKind.EDGE, self._options.edges, directory, env)
        try:
            async with asyncio.TaskGroup() as group:
                for child in first:
                    group.create_task(child.start())
                await asyncio.sleep(0)  # lets them start before Redis blocks the thread
                env = {**env, **self._redis.start(directory.path / "redis", keep=directory.is_kept)}
                for child in self._processes_of(ProcessKind.SELECTOR, self._options.selectors, directory, env):
                    group.create_task(child.start())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        if self._options.nodes:
            await self._demo_nodes(directory, port, env).start()

    def _environment(self, directory: StateDirectory, port: int) -> dict[str, str]:
        brokers = range(self._options.brokers)
        return {
            "LINGUA_LINK_FRONTENDS": ",".join(f"ipc://{directory.sockets}/f{number}" for number in brokers),
            "LINGUA_LINK_BACKENDS": ",".join(f"ipc://{directory.sockets}/b{number}" for number in brokers),
            "LINGUA_EDGE_PORT": str(port),
            "LINGUA_EDGE_OWN_PORT": "0",
            "LINGUA_BROKER_METRICS_PORT": "0",
            "LINGUA_SELECTOR_METRICS_PORT": "0",
            "LINGUA_LOG_FORMAT": os.environ.get("LINGUA_LOG_FORMAT", "json"),
        }

    def _processes_of(
        self, kind: str, count: int, directory: StateDirectory, env: dict[str, str]
    ) -> list[SupervisedProcess]:
        """The processes of one kind, not started yet."""
        children = []
        for number in range(count):
            name = f"{kind}-{number}"
            index = ["--index", str(number)] if kind == ProcessKind.BROKER else []
            command = [sys.executable, "-P", "-m", kind, "--name", name, "--die-with-parent", *index]
            children.append(self._child(ProcessSpec(kind, name, command, env), directory))
        return children

    def _demo_nodes(self, directory: StateDirectory, port: int, env: dict[str, str]) -> SupervisedProcess:
        """All demo nodes, in one process: an idle node costs a timer, not an interpreter."""
        command = [sys.executable, "-P", "-m", "linguamesh.cli.main", "node", "--simulated", "--json"]
        command += [
            "--url",
            f"ws://{self._client_host()}:{port}",
            "--count",
            str(self._options.nodes),
            "--name",
            "demo",
        ]
        return self._child(ProcessSpec("nodes", "nodes", [*command, "--die-with-parent"], env), directory)

    def _child(self, spec: ProcessSpec, directory: StateDirectory) -> SupervisedProcess:
        child = SupervisedProcess(spec, directory.log(spec.name), _notify)
        self._processes.append(child)
        return child

    def _client_host(self) -> str:
        """A host by which clients reach the edges."""
        if self._host in ("0.0.0.0", "::", ""):
            return "127.0.0.1"
        return f"[{self._host}]" if ":" in self._host else self._host

    # --- running ----------------------------------------------------------------------------------

    async def _supervise(self, stop_requested: asyncio.Task[Any]) -> None:
        """Until a stop is requested, or a process crashes too often."""
        supervisors = {child.supervise() for child in self._processes}
        redis = asyncio.create_task(self._redis.watch(_notify))
        done, _ = await asyncio.wait({stop_requested, redis, *supervisors}, return_when=asyncio.FIRST_COMPLETED)
        redis.cancel()
        await asyncio.wait({redis})
        for task in done:
            task.result()

    async def _stop(self) -> None:
        for kind in _STOP_ORDER:
            await asyncio.gather(*(child.stop() for child in self._processes if child.spec.kind == kind))
        self._redis.stop()

    # --- the ready line ---------------------------------------------------------------------------

    def _announce(self, directory: StateDirectory, port: int) -> None:
        ready = self._description(port, directory.path)
        if self._options.json:
            print(json.dumps(ready), flush=True)
            return
        counts = ", ".join(_counted(len(ready[kind]), kind) for kind in ("edges", "brokers", "selectors"))
        print(
            f"Lingua Mesh is up: {ready['http']}   sessions: {ready['session_ws']}   nodes: {ready['node_ws']}\n"
            f"{counts}, {_counted(len(ready['nodes']), 'demo nodes')} (simulated pipeline). "
            f"Logs: {directory.path / 'logs'}. Ctrl-C stops it.",
            flush=True,
        )

    def _description(self, port: int, state_dir: Path) -> dict[str, Any]:
        address = f"{self._client_host()}:{port}"

        def of(kind: str) -> list[SupervisedProcess]:
            return [child for child in self._processes if child.spec.kind == kind]

        return {
            "ready": True,
            "http": f"http://{address}",
            "session_ws": f"ws://{address}/ws/session",
            "node_ws": f"ws://{address}/ws/node",
            "redis": self._redis.shown_url,
            "edges": [
                {"id": child.name, "pid": child.pid, "url": child.ready["url"]} for child in of(ProcessKind.EDGE)
            ],
            "brokers": [{"id": child.name, "pid": child.pid} for child in of(ProcessKind.BROKER)],
            "selectors": [{"id": child.name, "pid": child.pid} for child in of(ProcessKind.SELECTOR)],
            "nodes": [{"id": node_id, "pid": child.pid} for child in of("nodes") for node_id in child.ready["nodes"]],
            "state_dir": str(state_dir),
        }


def _counted(count: int, plural: str) -> str:
    return f"{count} {plural.removesuffix('s') if count == 1 else plural}"


def _notify(text: str) -> None:
    print(f"lingua: {text}", file=sys.stderr, flush=True)
