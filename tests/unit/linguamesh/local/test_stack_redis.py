"""The Redis of a local stack, with real servers."""

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
from mesh.errors import ConfigError


def test_a_given_url_is_passed_on_and_its_password_is_not_shown(tmp_path: Path) -> None:
    given = StackRedis("redis://user:secret@10.0.0.1:6379/0")
    assert given.start(tmp_path, keep=False) == {"LINGUA_REDIS_URL": "redis://user:secret@10.0.0.1:6379/0"}
    assert given.shown_url == "redis://user:***@10.0.0.1:6379/0"
    given.stop()


def test_what_is_no_redis_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="not 'postgres://x'"):
        StackRedis("postgres://x")


def client_of(env: dict[str, str]) -> redis.Redis:
    return redis.Redis.from_url(env["LINGUA_REDIS_URL"])


def pid_of(env: dict[str, str]) -> int:
    with client_of(env) as client:
        return int(client.info("server")["process_id"])


async def test_an_embedded_server_that_dies_comes_back_on_its_port(tmp_path: Path) -> None:
    said: asyncio.Queue[str] = asyncio.Queue()
    embedded = StackRedis("embedded")
    env = embedded.start(tmp_path, keep=False)
    first = pid_of(env)
    watching = asyncio.create_task(embedded.watch(said.put_nowait))
    try:
        await asyncio.sleep(0)  # the watch begins
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(20):
            assert f"(pid {first}) ended; starting it again" in await said.get()
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


async def test_a_server_that_keeps_dying_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_redis, "RESTARTS_MAX", 0)
    embedded = StackRedis("embedded")
    env = embedded.start(tmp_path, keep=False)
    try:
        os.kill(pid_of(env), signal.SIGKILL)
        with pytest.raises(ProcessFailed, match="giving up"):
            await asyncio.wait_for(embedded.watch(print), 20)
    finally:
        embedded.stop()


def test_a_kept_directory_keeps_its_data(tmp_path: Path) -> None:
    for round_ in ("first", "second"):
        embedded = StackRedis("embedded")
        env = embedded.start(tmp_path, keep=True)
        with client_of(env) as client:
            if round_ == "first":
                client.set("word", "kept")
            else:
                assert client.get("word") == b"kept"
        embedded.stop()
