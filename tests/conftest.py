"""Real servers for every test that needs one. A missing server is a failure, never a skip."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from linguamesh import redis_server as servers


@pytest.fixture(scope="session")
def _redis_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.RedisServer]:
    server = servers.RedisServer.start(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def _cluster_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.RedisCluster]:
    cluster = servers.RedisCluster.start(tmp_path_factory.mktemp("cluster"), masters=3)
    yield cluster
    cluster.stop()


def _flush(server: servers.RedisServer) -> None:
    with server.client() as client:
        client.flushall()


@pytest.fixture
def redis_server(_redis_process: servers.RedisServer) -> servers.RedisServer:
    """One running server, empty."""
    _flush(_redis_process)
    return _redis_process


@pytest.fixture
def redis_cluster(_cluster_processes: servers.RedisCluster) -> servers.RedisCluster:
    """A running cluster of three masters, empty."""
    for server in _cluster_processes.servers:
        _flush(server)
    return _cluster_processes


@pytest.fixture
def free_port() -> int:
    """A TCP port on loopback that nobody listens on."""
    return servers.free_port()


@pytest.fixture
def tmp() -> Iterator[Path]:
    """A short temporary directory: an ipc:// path must stay below 108 bytes, and tmp_path may not."""
    directory = Path(tempfile.mkdtemp(prefix="lm-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
