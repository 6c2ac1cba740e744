"""Real servers for every test that needs one. A missing server is a failure, never a skip."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from linguamesh.local import redis_server as servers
from selector import kernel_cache
from tests.browser import chromium

BROWSER = Path(__file__).parent / "browser"
#: Long: without replicas, a server stalled by a busy machine must not count as failed (CLUSTERDOWN).
CLUSTER_NODE_TIMEOUT_MS = 60_000
# A deadline per example measures the load of the machine. pytest's own timeout bounds a test that hangs.
settings.register_profile("mesh", deadline=None)
settings.load_profile("mesh")
IN_CI = os.environ.get("CI", "").lower() in ("1", "true")


# Here and not in tests/browser/conftest.py: only this file is read by the controller of several workers.
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report tests that were left out."""
    missing = _left_out(config)
    if missing:
        terminalreporter.write_line(f"left out: tests/browser, {missing}", red=IN_CI)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI no test may be left out."""
    if IN_CI and _left_out(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _left_out(config: pytest.Config) -> str:
    """The reason why the tests in a browser could not run; "" if they could or were not selected."""
    selected = [(config.rootpath / arg.partition("::")[0]).resolve() for arg in config.args]
    concerned = any(BROWSER.is_relative_to(path) or path.is_relative_to(BROWSER) for path in selected)
    return chromium.what_is_missing() if concerned else ""


#: Folders whose tests run the selection kernel in their own process.
KERNEL_FOLDERS = ("loopback/selector", "lua", "sim", "unit/selector")
KERNEL = Path(__file__).parent.parent / "selector" / "core"


@pytest.fixture(scope="session", autouse=True)
def _compiled_kernel(request: pytest.FixtureRequest) -> None:
    """With a cold cache numba compiles for half a minute. That is no part of any test's own time."""
    folders = [Path(__file__).parent / folder for folder in KERNEL_FOLDERS]
    if any(item.path.is_relative_to(folder) for item in request.session.items for folder in folders):
        with kernel_cache.alone(kernel_cache.find_cache_dir(os.environ, KERNEL)):
            kernel_cache.warm_up()


@pytest.fixture(scope="session")
def _redis_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.RedisServer]:
    server = servers.RedisServer.start(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def _cluster_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.RedisCluster]:
    cluster = servers.RedisCluster.start(tmp_path_factory.mktemp("cluster"), masters=3)
    for server in cluster.servers:
        with server.client() as client:
            client.config_set("cluster-node-timeout", CLUSTER_NODE_TIMEOUT_MS)
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
    """A free TCP port on loopback."""
    return servers.free_port()


@pytest.fixture
def tmp() -> Iterator[Path]:
    """A short temporary directory: an ipc:// path must stay below 108 bytes, and tmp_path may not."""
    directory = Path(tempfile.mkdtemp(prefix="lm-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
