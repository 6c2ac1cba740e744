"""The embedded Redis of a local stack, with real servers."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
import redis

from linguamesh.local import stack_redis
from linguamesh.local.process import ProcessFailed
from linguamesh.local.stack_redis import StackRedis
from tests.support.conditions import DEADLINE_S


def client_of(env: dict[str, str]) -> redis.Redis:
    return redis.Redis.from_url(env["LINGUA_REDIS_URL"])


def pid_of(env: dict[str, str]) -> int:
    with client_of(env) as client:
        return int(client.info("server")["process_id"])


async def test_killed_embedded_server_is_restarted_on_its_port(tmp_path: Path) -> None:
    lines: asyncio.Queue[str] = asyncio.Queue()
    embedded = StackRedis("embedded")
    env = embedded.start(tmp_path, keep=False)
    first = pid_of(env)
    watching = asyncio.create_task(embedded.watch(lines.put_nowait))
    try:
        await asyncio.sleep(0)  # the watch begins
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(DEADLINE_S):
            assert f"(pid {first}) ended; starting it again" in await lines.get()
            while True:
                try:
                    second = pid_of(env)
                    break
                except redis.ConnectionError:
                    await asyncio.sleep(0.02)
        assert second != first
    finally:
        watching.cancel()
        await asyncio.wait({watching})
        embedded.stop()


async def test_restarts_are_abandoned_after_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_redis, "RESTARTS_MAX", 0)
    embedded = StackRedis("embedded")
    env = embedded.start(tmp_path, keep=False)
    try:
        os.kill(pid_of(env), signal.SIGKILL)
        with pytest.raises(ProcessFailed, match="giving up"):
            await asyncio.wait_for(embedded.watch(print), DEADLINE_S)
    finally:
        embedded.stop()


def test_kept_directory_keeps_its_data(tmp_path: Path) -> None:
    for round_ in ("first", "second"):
        embedded = StackRedis("embedded")
        env = embedded.start(tmp_path, keep=True)
        with client_of(env) as client:
            if round_ == "first":
                client.set("word", "kept")
            else:
                assert client.get("word") == b"kept"
        embedded.stop()
