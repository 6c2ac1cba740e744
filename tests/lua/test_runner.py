from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from linguamesh.local.redis_server import RedisServer
from lua.engine.batch import Answer
from lua.engine.runner import Call, Runner
from lua.store import Store
from mesh.config import Config
from mesh.config.network import RedisConfig
from mesh.errors import ConfigError, StoreError
from mesh.keys import Keys
from tests.lua.conftest import Connect, RedisClient
from tests.support.builders.store import NO_SESSION, claim_session, register, request
from tests.support.conditions import DEADLINE_S


def look(keys: Keys, number: int) -> Call:
    return Call([keys.session(number % 16, f"s-{number}")], {})


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that a test may stop, pause and restart."""
    server = RedisServer.start(tmp_path)
    yield server
    server.stop()


async def test_calls_survive_a_flushed_script_cache(store: Store, raw: RedisClient) -> None:
    await register(store, "node-1", max_jobs=64)
    for number in range(5):
        raw.script_flush()
        placed = await store.commits.commit([request(f"r-{number}-{n}", ["node-1"]) for n in range(3)])
        assert [one.verdict for one in placed] == ["new"] * 3


async def test_more_calls_than_one_batch_holds_keep_their_order(
    connect: Connect, redis_config: RedisConfig, keys: Keys, raw: RedisClient
) -> None:
    runner = await connect(msgspec.structs.replace(redis_config, batch_max=7))
    for number in range(100):
        raw.hset(keys.session(number % 16, f"s-{number}"), mapping={"owner": f"edge-{number}", "epoch": number})
    answers = await runner.call_many("session_get", [look(keys, number) for number in range(100)])
    assert answers == [[f"edge-{number}", number, 0, 0] for number in range(100)]


async def test_calls_of_different_scripts_at_once(runner: Runner, store: Store, keys: Keys) -> None:
    await register(store, "node-1", max_jobs=64)
    work = [store.commits.commit([request(f"r-{n}", ["node-1"])]) for n in range(20)]
    looks = [runner.call_many("session_get", [look(keys, n)]) for n in range(20)]
    placed, owners = await asyncio.gather(asyncio.gather(*work), asyncio.gather(*looks))
    assert [one[0].verdict for one in placed] == ["new"] * 20
    assert owners == [[NO_SESSION]] * 20


async def test_call_beyond_queue_max_is_refused(connect: Connect, redis_config: RedisConfig, keys: Keys) -> None:
    runner = await connect(msgspec.structs.replace(redis_config, queue_max=10))
    answers = await runner.call_many("session_get", [look(keys, n) for n in range(11)])
    assert all(isinstance(answer, StoreError) for answer in answers) and len(answers) == 11
    assert await runner.call_many("session_get", [look(keys, n) for n in range(10)]) == [NO_SESSION] * 10


async def test_batch_with_too_few_replies_fails_and_leaves_no_pending_call(
    connect: Connect, redis_config: RedisConfig, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = await connect(msgspec.structs.replace(redis_config, queue_max=16))
    read_replies = runner._read_replies

    def drop_one(*given: Any) -> list[object]:
        return [reply[:-1] if isinstance(reply, list) else reply for reply in read_replies(*given)]

    for _ in range(3):
        monkeypatch.setattr(runner, "_read_replies", drop_one)
        answers = await runner.call_many("session_get", [look(keys, 16 * n) for n in range(16)])
        assert all("15 replies to 16 calls" in str(answer) for answer in answers), answers
        monkeypatch.undo()
        assert await runner.call_many("session_get", [look(keys, n) for n in range(16)]) == [NO_SESSION] * 16


async def test_cancelled_caller_leaves_no_pending_call(runner: Runner, keys: Keys) -> None:
    tasks = [asyncio.create_task(runner.call_many("session_get", [look(keys, n)])) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert answers[1::2] == [[NO_SESSION]] * 10
    assert await runner.call("session_get", *look(keys, 1)) == NO_SESSION


async def test_wrong_argument_is_an_assertion(runner: Runner, keys: Keys) -> None:
    with pytest.raises(AssertionError, match="session_get"):
        await runner.call("session_get", [keys.session(0, "s")], {"surprise": 1})


@pytest.mark.parametrize("redis_config", ["cluster"], indirect=True)
async def test_keys_of_two_slots_are_an_assertion(runner: Runner, keys: Keys) -> None:
    assert not runner.same_slot([keys.nodes(1), keys.nodes(2)])
    with pytest.raises(AssertionError, match="different slots"):
        await runner.call("session_get", [keys.session(1, "s"), keys.session(2, "s")], {})


async def test_closed_runner_refuses_calls(connect: Connect, redis_config: RedisConfig, keys: Keys) -> None:
    runner = await connect(redis_config)
    await runner.close()
    with pytest.raises(StoreError, match="closed"):
        await runner.call("session_get", *look(keys, 1))


async def test_connect_to_a_closed_port_is_a_store_error(free_port: int) -> None:
    with pytest.raises(StoreError, match="cannot use Redis"):
        await Runner.connect(RedisConfig(url=f"redis://127.0.0.1:{free_port}/0", timeout_ms=500))


async def test_wrong_url_or_mode_is_a_configuration_error(redis_config: RedisConfig) -> None:
    with pytest.raises(ConfigError, match=r"redis\.url"):
        await Runner.connect(RedisConfig(url="http://127.0.0.1:1/0"))
    with pytest.raises(ConfigError, match=r"redis\.cluster"):
        await Runner.connect(msgspec.structs.replace(redis_config, cluster=not redis_config.cluster))


async def test_wrong_password_is_named_in_the_error(connect: Connect, own_server: RedisServer) -> None:
    with own_server.client() as client:
        client.config_set("requirepass", "secret")
    for password in ("", ":wrong@"):
        with pytest.raises(StoreError, match=r"(?i)auth|password"):
            await Runner.connect(RedisConfig(url=f"redis://{password}127.0.0.1:{own_server.port}/0"))
    await connect(RedisConfig(url=f"redis://:secret@127.0.0.1:{own_server.port}/0"))


async def test_calls_are_retried_after_a_restart(
    tmp_path: Path, own_server: RedisServer, connect: Connect, keys: Keys
) -> None:
    runner = await connect(RedisConfig(url=own_server.url))
    assert await runner.call("session_get", *look(keys, 1)) == NO_SESSION
    own_server.stop()
    with pytest.raises(StoreError, match="Redis cannot be used"):
        await runner.call("session_get", *look(keys, 1))
    again = RedisServer.start(tmp_path, own_server.port)
    try:
        assert await runner.call("session_get", *look(keys, 1)) == NO_SESSION
    finally:
        again.stop()


async def test_call_on_a_broken_idle_connection_is_retried_at_once(
    own_server: RedisServer, connect: Connect, keys: Keys
) -> None:
    runner = await connect(RedisConfig(url=own_server.url))
    for _ in range(3):
        with own_server.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
        assert await runner.call("session_get", *look(keys, 1)) == NO_SESSION


async def test_paused_server_is_a_timeout_and_later_calls_succeed(
    own_server: RedisServer, connect: Connect, keys: Keys
) -> None:
    runner = await connect(RedisConfig(url=own_server.url, timeout_ms=500))
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        answers = await asyncio.gather(*(runner.call_many("session_get", [look(keys, n)]) for n in range(5)))
        assert all(isinstance(answer, StoreError) for [answer] in answers)
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
    answer: Answer = StoreError("not asked yet")
    async with asyncio.timeout(DEADLINE_S):
        while isinstance(answer, StoreError):  # it may take its time to wake up
            [answer] = await runner.call_many("session_get", [look(keys, 1)])
    assert answer == NO_SESSION


async def test_close_fails_pending_calls(own_server: RedisServer, connect: Connect, keys: Keys) -> None:
    runner = await connect(RedisConfig(url=own_server.url, timeout_ms=60_000))
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        waiting = [asyncio.create_task(runner.call_many("session_get", [look(keys, n)])) for n in range(3)]
        for _ in range(3):  # the calls, then their lane, which sends at once
            await asyncio.sleep(0)
        waiting.append(asyncio.create_task(runner.call_many("session_get", [look(keys, 9)])))
        await asyncio.sleep(0)
        await runner.close()
        answers = await asyncio.gather(*waiting)
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
    assert all("closed" in str(answer) for [answer] in answers)


async def test_close_fails_a_call_that_waits_for_its_retry(
    own_server: RedisServer, connect: Connect, keys: Keys
) -> None:
    runner = await connect(RedisConfig(url=own_server.url))
    own_server.stop()
    waiting = asyncio.create_task(runner.call_many("session_get", [look(keys, 1)]))
    async with asyncio.timeout(DEADLINE_S):
        while not runner._tasks:  # noqa: ASYNC110 - the task that repeats it; it runs after us
            await asyncio.sleep(0)
        await runner.close()
        [answer] = await waiting
    assert "closed" in str(answer)


def sockets_of(runner: Runner) -> list[Any]:
    """The sockets of its connections, made and half made."""
    queues = [runner._default, *runner._queues.values()]
    writers = [queue.connection._connection._writer for queue in queues]
    return [writer.transport.get_extra_info("socket") for writer in writers if writer is not None]


async def test_no_socket_is_open_after_close(connect: Connect, redis_config: RedisConfig, keys: Keys) -> None:
    runner = await connect(redis_config)
    assert await runner.call_many("session_get", [look(keys, n) for n in range(16)]) == [NO_SESSION] * 16
    sockets = sockets_of(runner)
    assert len(sockets) == (4 if redis_config.cluster else 1), "one per server, and one that showed us the cluster"
    await runner.close()
    assert [one.fileno() for one in sockets] == [-1] * len(sockets), "at once: the loop may end here"


@pytest.fixture(params=["", ":secret@"], ids=["at the first command", "at the login"])
def mute_server(own_server: RedisServer, request: pytest.FixtureRequest) -> Iterator[RedisConfig]:
    """Takes connections, but does not answer."""
    os.kill(own_server.pid, signal.SIGSTOP)
    yield RedisConfig(url=f"redis://{request.param}127.0.0.1:{own_server.port}/0", timeout_ms=60_000)
    os.kill(own_server.pid, signal.SIGCONT)


async def half_made(runner: Runner) -> list[Any]:
    """The socket of a connection that it is making."""
    async with asyncio.timeout(DEADLINE_S):
        while not sockets_of(runner):  # noqa: ASYNC110 - no event marks it
            await asyncio.sleep(0.01)
    return sockets_of(runner)


async def test_close_closes_a_connection_that_is_connecting(mute_server: RedisConfig, keys: Keys) -> None:
    runner = Runner(mute_server)
    waiting = asyncio.create_task(runner.call_many("session_get", [look(keys, 1)]))
    [socket] = await half_made(runner)
    await runner.close()
    [answer] = await waiting
    assert "closed" in str(answer)
    assert (socket.fileno(), sockets_of(runner)) == (-1, [])


async def test_cancelled_connect_leaves_no_connection(mute_server: RedisConfig) -> None:
    class Seen(Runner):
        def __init__(self, config: RedisConfig) -> None:
            super().__init__(config)
            made.append(self)

    made: list[Runner] = []
    connecting = asyncio.create_task(Seen.connect(mute_server))
    await asyncio.sleep(0)
    [socket] = await half_made(made[0])
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert (socket.fileno(), sockets_of(made[0])) == (-1, [])


async def test_no_connection_is_left_open(own_server: RedisServer, connect: Connect, keys: Keys) -> None:
    async def until_connected(client: redis.Redis, count: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while len(client.client_list()) != count:  # noqa: ASYNC110 - only the server can tell, when it notices
                await asyncio.sleep(0.01)

    with own_server.client() as client:
        await until_connected(client, 1)
        for _ in range(5):
            runner = await connect(RedisConfig(url=own_server.url))
            await asyncio.gather(*(runner.call_many("session_get", [look(keys, n)]) for n in range(50)))
            assert len(client.client_list()) == 2
            await runner.close()
            await until_connected(client, 1)


async def test_server_out_of_memory_is_a_store_error(own_server: RedisServer, connect: Connect, keys: Keys) -> None:
    config = Config(redis=RedisConfig(url=own_server.url))
    runner = await connect(config.redis)
    store = Store(runner, keys, config)
    with own_server.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreError, match="OOM"):
            await claim_session(store, "s-1", "edge", 0, "", "en", "es")
        client.config_set("maxmemory", 0)
    assert (await claim_session(store, "s-1", "edge", 0, "", "en", "es")).ok
