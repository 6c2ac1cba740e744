from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

import pytest

from lua.store import Store
from mesh.config.network import RedisConfig
from mesh.keys import Keys
from tests.lua.conftest import RedisClient
from tests.support.builders.store import beat, in_cell, register, request
from tests.support.conditions import DEADLINE_S

NODE, SESSION = in_cell("node-", 5), in_cell("s-", 6)
PROVISIONAL_MS = 1_000


def killed_when_it_speaks(task: dict[str, Any]) -> str:
    command = [sys.executable, "-m", "tests.support.processes.staller", json.dumps(task)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.kill()
    return said


@pytest.mark.parametrize("redis_config", ["cluster"], indirect=True)
async def test_slot_of_a_process_killed_before_the_bind_is_free_after_the_provisional_lease(
    store: Store, redis_config: RedisConfig, raw: RedisClient, keys: Keys
) -> None:
    epoch = (await register(store, NODE, max_jobs=1)).epoch
    task = {"url": redis_config.url, "node": NODE, "session": SESSION, "provisional_ms": PROVISIONAL_MS}
    assert killed_when_it_speaks(task) == "reserved\n"
    assert raw.zcard(keys.leases(5, NODE)) == 1, "the place is held"
    assert not raw.exists(keys.binding(6, "r-1")), "and nothing is bound"

    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if (await beat(store, NODE, epoch)).used == 0:
            break
        await asyncio.sleep(0.05)
    assert raw.zcard(keys.leases(5, NODE)) == 0, "it came back by itself"
    [again] = await store.commits.commit([request("r-1", [NODE], session_id=SESSION)])
    assert (again.verdict, again.used) == ("new", 1)
