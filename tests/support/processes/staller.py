"""A process that reserves a slot on a node, prints `reserved` and never binds. For the test that kills it there.

python -m tests.support.processes.staller '{"url": ..., "node": ..., "session": ..., "provisional_ms": ...}'
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from lua.engine.runner import Runner
from lua.store import Store
from mesh.config import Config
from mesh.config.jobs import JobConfig
from mesh.config.network import RedisConfig
from mesh.keys import Keys
from tests.support.builders.store import request


class StalledRunner(Runner):
    async def call(self, script: str, keys: list[str], args: Mapping[str, Any]) -> list[Any]:
        if script == "request_bind":
            print("reserved", flush=True)
            await asyncio.Event().wait()
        return await super().call(script, keys, args)


async def main(task: dict[str, Any]) -> None:
    job = JobConfig(provisional_lease_ms=task["provisional_ms"])
    config = Config(redis=RedisConfig(url=task["url"], cluster=True), job=job)
    runner = await StalledRunner.connect(config.redis)
    await Store(runner, Keys(), config).commits.commit([request("r-1", [task["node"]], session_id=task["session"])])


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
