from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from linguamesh.redis_server import RedisServer
from lua.runner import Call, Runner
from lua.store import Store
from mesh.config import Config, RedisConfig
from mesh.errors import ConfigError, StoreError
from mesh.keys import Keys
from tests.lua.conftest import RedisClient
from tests.lua.samples import NOBODY, register, request


def look(keys: Keys, number: int) -> Call:
    return Call([keys.session(number % 16, f"s-{number}")], {})


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that a test may stop, pause and restart."""
    server = RedisServer.start(tmp_path)
    yield server
    server.stop()


async def test_a_lost_script_cache_is_not_noticed(store: Store, raw: RedisClient) -> None:
    await register(store, "node-1", max_jobs=64)
    for number in range(5):
        raw.script_flush()
        placed = await store.commit([request(f"r-{number}-{n}", ["node-1"]) for n in range(3)])
        assert [one.verdict for one in placed] == ["new"] * 3


async def test_more_calls_than_one_batch_holds_keep_their_order(
    redis_config: RedisConfig, keys: Keys, raw: RedisClient
) -> None:
    runner = await Runner.connect(msgspec.structs.replace(redis_config, batch_max=7))
    for number in range(100):
        raw.hset(keys.session(number % 16, f"s-{number}"), mapping={"owner": f"edge-{number}", "epoch": number})
    answers = await runner.call_many("session_look", [look(keys, number) for number in range(100)])
    assert answers == [[f"edge-{number}", number, 0, 0] for number in range(100)]
    await runner.close()


async def test_calls_of_different_scripts_at_once(runner: Runner, store: Store, keys: Keys) -> None:
    await register(store, "node-1", max_jobs=64)
    work = [store.commit([request(f"r-{n}", ["node-1"])]) for n in range(20)]
    looks = [runner.call_many("session_look", [look(keys, n)]) for n in range(20)]
    placed, owners = await asyncio.gather(asyncio.gather(*work), asyncio.gather(*looks))
    assert [one[0].verdict for one in placed] == ["new"] * 20
    assert owners == [[NOBODY]] * 20


async def test_a_full_queue_refuses(redis_config: RedisConfig, keys: Keys) -> None:
    runner = await Runner.connect(msgspec.structs.replace(redis_config, queue_max=10))
    answers = await runner.call_many("session_look", [look(keys, n) for n in range(11)])
    assert all(isinstance(answer, StoreError) for answer in answers) and len(answers) == 11
    assert await runner.call_many("session_look", [look(keys, n) for n in range(10)]) == [NOBODY] * 10
    await runner.close()


async def test_a_caller_that_gave_up_costs_nothing(runner: Runner, keys: Keys) -> None:
    tasks = [asyncio.create_task(runner.call_many("session_look", [look(keys, n)])) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert answers[1::2] == [[NOBODY]] * 10
    assert await runner.call("session_look", *look(keys, 1)) == NOBODY


async def test_a_wrong_argument_is_our_own_bug(runner: Runner, keys: Keys) -> None:
    with pytest.raises(AssertionError, match="session_look"):
        await runner.call("session_look", [keys.session(0, "s")], {"surprise": 1})


@pytest.mark.parametrize("redis_config", ["cluster"], indirect=True)
async def test_keys_of_two_slots_are_our_own_bug(runner: Runner, keys: Keys) -> None:
    assert not runner.same_slot([keys.nodes(1), keys.nodes(2)])
    with pytest.raises(AssertionError, match="different slots"):
        await runner.call("session_look", [keys.session(1, "s"), keys.session(2, "s")], {})


async def test_a_closed_runner_refuses(redis_config: RedisConfig, keys: Keys) -> None:
    runner = await Runner.connect(redis_config)
    await runner.close()
    with pytest.raises(StoreError, match="closed"):
        await runner.call("session_look", *look(keys, 1))


async def test_nobody_listens(free_port: int) -> None:
    with pytest.raises(StoreError, match="cannot use Redis"):
        await Runner.connect(RedisConfig(url=f"redis://127.0.0.1:{free_port}/0", timeout_ms=500))


async def test_a_wrong_url_or_mode_is_a_configuration_error(redis_config: RedisConfig) -> None:
    with pytest.raises(ConfigError, match=r"redis\.url"):
        await Runner.connect(RedisConfig(url="http://127.0.0.1:1/0"))
    with pytest.raises(ConfigError, match=r"redis\.cluster"):
        await Runner.connect(msgspec.structs.replace(redis_config, cluster=not redis_config.cluster))


async def test_a_wrong_password_is_named(own_server: RedisServer) -> None:
    with own_server.client() as client:
        client.config_set("requirepass", "secret")
    for password in ("", ":wrong@"):
        with pytest.raises(StoreError, match=r"(?i)auth|password"):
            await Runner.connect(RedisConfig(url=f"redis://{password}127.0.0.1:{own_server.port}/0"))
    runner = await Runner.connect(RedisConfig(url=f"redis://:secret@127.0.0.1:{own_server.port}/0"))
    await runner.close()


async def test_a_restart_is_survived(tmp_path: Path, own_server: RedisServer, keys: Keys) -> None:
    runner = await Runner.connect(RedisConfig(url=own_server.url))
    assert await runner.call("session_look", *look(keys, 1)) == NOBODY
    own_server.stop()
    with pytest.raises(StoreError, match="Redis cannot be used"):
        await runner.call("session_look", *look(keys, 1))
    again = RedisServer.start(tmp_path, own_server.port)
    try:
        assert await runner.call("session_look", *look(keys, 1)) == NOBODY
    finally:
        await runner.close()
        again.stop()


async def test_an_idle_connection_that_broke_is_not_noticed(own_server: RedisServer, keys: Keys) -> None:
    runner = await Runner.connect(RedisConfig(url=own_server.url))
    for _ in range(3):
        with own_server.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
        assert await runner.call("session_look", *look(keys, 1)) == NOBODY
    await runner.close()


async def test_a_paused_server_is_an_error_and_then_forgotten(own_server: RedisServer, keys: Keys) -> None:
    runner = await Runner.connect(RedisConfig(url=own_server.url, timeout_ms=200))
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        answers = await asyncio.gather(*(runner.call_many("session_look", [look(keys, n)]) for n in range(5)))
        assert all(isinstance(answer, StoreError) for [answer] in answers)
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
    assert await runner.call("session_look", *look(keys, 1)) == NOBODY
    await runner.close()


async def test_close_fails_what_is_under_way(own_server: RedisServer, keys: Keys) -> None:
    runner = await Runner.connect(RedisConfig(url=own_server.url, timeout_ms=60_000))
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        waiting = [asyncio.create_task(runner.call_many("session_look", [look(keys, n)])) for n in range(3)]
        await asyncio.sleep(0.05)
        waiting.append(asyncio.create_task(runner.call_many("session_look", [look(keys, 9)])))
        await asyncio.sleep(0)
        await runner.close()
        answers = await asyncio.gather(*waiting)
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
    assert all("closed" in str(answer) for [answer] in answers)


async def test_no_connection_is_left_open(own_server: RedisServer, keys: Keys) -> None:
    with own_server.client() as client:
        before = len(client.client_list())
        for _ in range(5):
            runner = await Runner.connect(RedisConfig(url=own_server.url))
            await asyncio.gather(*(runner.call_many("session_look", [look(keys, n)]) for n in range(50)))
            assert len(client.client_list()) == before + 1
            await runner.close()
        for _ in range(200):
            if len(client.client_list()) == before:
                break
            await asyncio.sleep(0.01)
        assert len(client.client_list()) == before


async def test_a_full_server_says_so(own_server: RedisServer, keys: Keys) -> None:
    config = Config(redis=RedisConfig(url=own_server.url))
    runner = await Runner.connect(config.redis)
    store = Store(runner, keys, config)
    with own_server.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreError, match="OOM"):
            await store.claim_session("s-1", "edge", 0, "", "en", "es")
        client.config_set("maxmemory", 0)
    assert (await store.claim_session("s-1", "edge", 0, "", "en", "es")).ok
    await runner.close()
