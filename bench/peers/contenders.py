"""Who takes part, and how each is started: our mesh, its floor, and task queues from their normal packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.peers.processes import CLIENTS, ROOT, Processes, wait_for_port
from linguamesh.local.redis_server import free_port

SLOTS: Final = 8
NODES: Final = 8
SESSIONS: Final = 64
SMALL_BYTES: Final = 10_240
LARGE_BYTES: Final = 51_200
#: Kinds of processes that are the user's, not the queue's own.
USERS: Final = ("client", "node", "worker", "up")
_FLOOR: Final = Path(__file__).parent / "floor.py"
_NOT_INSTALLED: Final = 'not installed; `make bench ARGS="peers --install"` does it'


@dataclass(frozen=True, slots=True)
class Contender:
    """A queue. `start` leaves it ready for windows; `missing` says why it cannot take part, "" if it can."""

    name: str
    payload_bytes: int
    start: Callable[[Processes, Contender], None]
    missing: Callable[[], str] = lambda: ""
    #: What `--install` runs.
    install: Callable[[], None] = lambda: None

    @property
    def env(self) -> dict[str, str]:
        """The environment of its client."""
        return {"PEER_BYTES": str(self.payload_bytes), "PYTHONPATH": str(ROOT)}


def cache_dir() -> Path:
    """Where peers are installed: outside of the project, so that `make clean` keeps them."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("LINGUA_PEERS_DIR") or Path(base) / "lingua-mesh" / "peers")


# --- our mesh and its floor -----------------------------------------------------------------------


def websocket_urls(ready: dict[str, Any], path: str) -> list[str]:
    """The addresses of all edges, for clients or nodes."""
    return [edge["url"].replace("http", "ws", 1) + path for edge in ready["edges"]]


def start_mesh(
    processes: Processes,
    contender: Contender,
    *,
    script: str = "mesh_raw.py",
    edges: int = 2,
    selectors: int = 1,
    slots_each: int = SLOTS // NODES,
) -> None:
    """A mesh: nodes at its first edge, sessions at the others by turns, so that every result crosses a broker."""
    ready = processes.mesh("--edges", str(edges), "--selectors", str(selectors))
    program = [sys.executable, CLIENTS / script]
    node_url = websocket_urls(ready, "/ws/node")[0]
    processes.start("node", [*program, "nodes", node_url, str(NODES), str(slots_each)], contender.env)
    urls = websocket_urls(ready, "/ws/session")[1:]
    processes.start("client", [*program, "client", str(SESSIONS), *urls], contender.env)


def _start_sdk_mesh(processes: Processes, contender: Contender) -> None:
    start_mesh(processes, contender, script="mesh_sdk.py")


def _start_floor(processes: Processes, contender: Contender) -> None:
    endpoint = f"ipc://{processes.directory}/floor"
    floor = [sys.executable, _FLOOR]
    redis_url = processes.redis()
    processes.start("broker", [*floor, "broker", endpoint])
    processes.start("selector", [*floor, "selector", endpoint, redis_url, str(SLOTS)])
    ports = {"a": free_port(), "b": free_port()}
    for name, port in ports.items():
        processes.start("edge", [*floor, "edge", name, endpoint, str(port)])
    program = [sys.executable, CLIENTS / "mesh_raw.py"]
    processes.start("node", [*program, "nodes", f"ws://127.0.0.1:{ports['b']}", str(NODES), "1"], contender.env)
    processes.start("client", [*program, "client", str(SESSIONS), f"ws://127.0.0.1:{ports['a']}"], contender.env)


# --- peers ----------------------------------------------------------------------------------------


def _start_celery(processes: Processes, contender: Contender) -> None:
    python, env = _python("celery"), {**contender.env, "PEER_REDIS": processes.redis(), "PYTHONPATH": ""}
    worker = [python, "-m", "celery", "-A", "celery_app", "worker", "--concurrency", str(SLOTS), "-l", "WARNING"]
    processes.start("worker", [*worker, "--without-gossip", "--without-mingle"], env, is_ready=False)
    processes.start("client", [python, "celery_app.py"], env)


def _start_taskiq(processes: Processes, contender: Contender) -> None:
    python, env = _python("taskiq"), {**contender.env, "PEER_REDIS": processes.redis(), "PYTHONPATH": ""}
    slots = ["--workers", str(SLOTS), "--max-async-tasks", "1", "--max-prefetch", "1"]
    worker = [python.parent / "taskiq", "worker", "taskiq_app:broker", *slots, "--no-parse", "--log-level", "WARNING"]
    processes.start("worker", worker, env, is_ready=False)
    processes.start("client", [python, "taskiq_app.py"], env)


def _start_nats(processes: Processes, contender: Contender) -> None:
    port = free_port()
    processes.start("server", ["nats-server", "-a", "127.0.0.1", "-p", str(port)], is_ready=False)
    wait_for_port(port)
    python, env = _python("nats"), {**contender.env, "PEER_NATS": f"nats://127.0.0.1:{port}", "PYTHONPATH": ""}
    processes.start("worker", [python, "nats_app.py", "worker", str(SLOTS)], env)
    processes.start("client", [python, "nats_app.py", "client"], env)


def _start_bullmq(processes: Processes, contender: Contender) -> None:
    port = processes.redis().rpartition(":")[2]
    env = {**contender.env, "PEER_PORT": port, "PEER_MODULES": str(cache_dir() / "bullmq")}
    processes.start("worker", ["node", "bullmq_app.mjs", "worker", str(SLOTS)], env)
    processes.start("client", ["node", "bullmq_app.mjs", "client"], env)


def _python(peer: str) -> Path:
    return cache_dir() / peer / "bin" / "python"


def _python_peer(name: str, *packages: str, programs: tuple[str, ...] = ()) -> dict[str, Callable[[], Any]]:
    """`missing` and `install` of a peer in a virtual environment of its own."""

    def missing() -> str:
        absent = [program for program in programs if shutil.which(program) is None]
        if absent:
            return f"{', '.join(absent)} is not on the PATH"
        return "" if _python(name).exists() else _NOT_INSTALLED

    def install() -> None:
        subprocess.run([sys.executable, "-m", "venv", cache_dir() / name], check=True)
        subprocess.run([_python(name), "-m", "pip", "install", "--quiet", *packages], check=True)

    return {"missing": missing, "install": install}


def _bullmq_missing() -> str:
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node and npm are not on the PATH"
    is_there = (cache_dir() / "bullmq" / "node_modules" / "ioredis").is_dir()
    return "" if is_there else _NOT_INSTALLED


def _install_bullmq() -> None:
    directory = cache_dir() / "bullmq"
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "bullmq", "ioredis"], cwd=directory, check=True
    )


CONTENDERS: Final = (
    Contender("mesh", SMALL_BYTES, start_mesh),
    Contender("floor", SMALL_BYTES, _start_floor),
    Contender("celery", SMALL_BYTES, _start_celery, **_python_peer("celery", "celery[redis]")),
    Contender("taskiq", SMALL_BYTES, _start_taskiq, **_python_peer("taskiq", "taskiq", "taskiq-redis")),
    Contender("bullmq", SMALL_BYTES, _start_bullmq, _bullmq_missing, _install_bullmq),
    Contender("nats", SMALL_BYTES, _start_nats, **_python_peer("nats", "nats-py", programs=("nats-server",))),
    Contender("mesh, SDK, 50 KB", LARGE_BYTES, _start_sdk_mesh),
    Contender("bullmq, 50 KB", LARGE_BYTES, _start_bullmq, _bullmq_missing, _install_bullmq),
)
