"""The Redis of a local stack: an embedded server, an embedded cluster, or somebody else's."""

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
#: Replicas of the embedded cluster that confirm a binding.
CLUSTER_WAIT_REPLICAS: Final = 1
#: Restarts of the embedded server before the stack gives up.
RESTARTS_MAX: Final = 8
#: With a state directory of the user's own: a copy on disk every minute if anything changed, and at the end.
SAVE_POINTS: Final = "60 1"
SCHEMES: Final = frozenset({"redis", "rediss", "unix"})


class StackRedis:
    """What `--redis` asked for. Start it in the main thread: the kernel ties a child to the thread that started it."""

    def __init__(self, wanted: str) -> None:
        if wanted not in ("embedded", "cluster") and urlsplit(wanted).scheme not in SCHEMES:
            raise ConfigError(f"--redis is `embedded`, `cluster` or a redis:// URL, not {wanted!r}")
        self._wanted = wanted
        self._directory = Path()
        self._keep = False
        self._server: RedisServer | None = None
        self._cluster: RedisCluster | None = None

    def start(self, directory: Path, *, keep: bool) -> dict[str, str]:
        """Start it, if it is ours, and return the settings that lead to it. Blocks until it serves."""
        self._directory, self._keep = directory, keep
        if self._wanted == "cluster":
            self._cluster = RedisCluster.start(directory, CLUSTER_MASTERS, CLUSTER_REPLICAS)
            return {
                "LINGUA_REDIS_URL": self._cluster.url,
                "LINGUA_REDIS_CLUSTER": "true",
                "LINGUA_REDIS_WAIT_REPLICAS": str(CLUSTER_WAIT_REPLICAS),
            }
        if self._wanted == "embedded":
            self._server = self._start_server(0)
            return {"LINGUA_REDIS_URL": self._server.url, "LINGUA_REDIS_CLUSTER": "false"}
        return {"LINGUA_REDIS_URL": self._wanted}

    @property
    def shown_url(self) -> str:
        """The URL without its password."""
        ours = self._server or self._cluster
        url = ours.url if ours else self._wanted
        password = urlsplit(url).password
        return url.replace(f":{password}@", ":***@") if password else url

    async def watch(self, say: Callable[[str], None]) -> None:
        """Start the embedded server again when it ends; of a cluster's servers only say so: it heals itself."""
        pids = self._cluster.pids if self._cluster else [self._server.pid] if self._server else []
        restarts = 0
        while pids and sys.platform == "linux":
            ended = await _first_ended(pids)
            pids.remove(ended)
            if self._server is None:
                say(f"a Redis of the cluster (pid {ended}) ended")
                continue
            restarts += 1
            if restarts > RESTARTS_MAX:
                raise ProcessFailed(f"the embedded Redis ended {restarts} times; giving up")
            say(f"the embedded Redis (pid {ended}) ended; starting it again on port {self._server.port}")
            self._server.stop()
            self._server = self._start_server(self._server.port)
            pids.append(self._server.pid)
        await asyncio.Event().wait()  # nothing of ours to watch

    def stop(self) -> None:
        """End what is ours; safe to repeat."""
        for ours in (self._server, self._cluster):
            if ours:
                ours.stop()

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
