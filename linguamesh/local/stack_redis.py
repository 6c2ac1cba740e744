"""The Redis of a local stack: an embedded server, an embedded cluster, or an external one."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from linguamesh.local.process import ProcessFailed
from linguamesh.local.redis_server import RedisCluster, RedisServer
from mesh.errors import ConfigError

CLUSTER_MASTERS: Final = 3
CLUSTER_REPLICAS: Final = 1
#: Replicas of the embedded cluster that acknowledge a commit.
CLUSTER_WAIT_REPLICAS: Final = 1
#: Restarts of the embedded server; the next crash ends the stack.
RESTARTS_MAX: Final = 8
#: With a state directory of the user's own: a snapshot on disk every minute if anything changed, and at the end.
SAVE_POINTS: Final = "60 1"
SCHEMES: Final = frozenset({"redis", "rediss", "unix"})


class StackRedis:
    """The Redis selected by `--redis`. Start it in the main thread: the kernel ties a child to its starting thread."""

    def __init__(self, choice: str) -> None:
        if choice not in ("embedded", "cluster") and urlsplit(choice).scheme not in SCHEMES:
            raise ConfigError(f"--redis is `embedded`, `cluster` or a redis:// URL, not {choice!r}")
        self._choice = choice
        self._directory = Path()
        self._keep = False
        self._server: RedisServer | None = None
        self._cluster: RedisCluster | None = None

    def start(self, directory: Path, *, keep: bool) -> dict[str, str]:
        """Start it, if it is embedded, and return the settings for its clients. Blocks until it serves."""
        self._directory, self._keep = directory, keep
        if self._choice == "cluster":
            self._cluster = RedisCluster.start(directory, CLUSTER_MASTERS, CLUSTER_REPLICAS)
            return {
                "LINGUA_REDIS_URL": self._cluster.url,
                "LINGUA_REDIS_CLUSTER": "true",
                "LINGUA_REDIS_WAIT_REPLICAS": str(CLUSTER_WAIT_REPLICAS),
            }
        if self._choice == "embedded":
            self._server = self._start_server(0)
            return {"LINGUA_REDIS_URL": self._server.url, "LINGUA_REDIS_CLUSTER": "false"}
        return {"LINGUA_REDIS_URL": self._choice}

    @property
    def shown_url(self) -> str:
        """The URL without its password."""
        embedded = self._server or self._cluster
        url = embedded.url if embedded else self._choice
        password = urlsplit(url).password
        return url.replace(f":{password}@", ":***@") if password else url

    async def watch(self, notify: Callable[[str], None]) -> None:
        """Restart the embedded server whenever it ends. A cluster's server is only reported: the cluster fails over."""
        pids = self._cluster.pids if self._cluster else [self._server.pid] if self._server else []
        restarts = 0
        while pids and sys.platform == "linux":
            ended = await _first_ended(pids)
            pids.remove(ended)
            if self._server is None:
                notify(f"a Redis of the cluster (pid {ended}) ended")
                continue
            restarts += 1
            if restarts > RESTARTS_MAX:
                raise ProcessFailed(f"the embedded Redis ended {restarts} times; giving up")
            notify(f"the embedded Redis (pid {ended}) ended; starting it again on port {self._server.port}")
            self._server.stop()
            self._server = self._start_server(self._server.port)
            pids.append(self._server.pid)
        await asyncio.Event().wait()  # nothing left to watch

    def stop(self) -> None:
        """End the embedded servers. Idempotent."""
        for embedded in (self._server, self._cluster):
            if embedded:
                embedded.stop()

    def _start_server(self, port: int) -> RedisServer:
        server = RedisServer.start(self._directory, port)
        if self._keep:
            with server.client() as client:
                client.config_set("save", SAVE_POINTS)
        return server


async def _first_ended(pids: list[int]) -> int:
    """The pid of the first of these processes to end."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def on_end(pid: int) -> None:
        if not ended.done():
            ended.set_result(pid)

    watched = {pid: os.pidfd_open(pid) for pid in pids}
    try:
        for pid, descriptor in watched.items():
            loop.add_reader(descriptor, on_end, pid)
        return await ended
    finally:
        for descriptor in watched.values():
            loop.remove_reader(descriptor)
            os.close(descriptor)
