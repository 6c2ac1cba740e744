"""One process of the stress test: commits its share of requests, releases each slot, prints its results.

python -m tests.support.processes.committer '{"url": ..., "cluster": ..., "seed": ..., "nodes": [...], ...}'
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import sys
import time
from collections import deque
from typing import Any

from lua.engine.runner import Runner
from lua.store import Store
from lua.store.types.commits import CommitRequest, Committed
from lua.store.types.jobs import Release
from mesh.config import Config
from mesh.config.jobs import JobConfig, NodeConfig
from mesh.config.network import RedisConfig
from mesh.keys import Keys
from tests.support.builders.store import advance_job

BATCH = 32
HELD = 4
DEADLINE_S = 270.0
#: Longer than the test: on a busy machine no heartbeat times out, and no lease expires before it is bound.
PATIENT_MS = 600_000


class Committer:
    def __init__(self, store: Store, nodes: list[str], seed: int) -> None:
        self.store = store
        self.nodes = nodes
        self.random = random.Random(seed)
        self.held: deque[Committed] = deque()
        self.new: dict[str, str] = {}
        self.bound: list[tuple[str, str]] = []
        self.used_max = 0
        self.full = 0

    def ask(self, request_id: str) -> CommitRequest:
        session = f"s-{request_id}"
        candidates = self.random.sample(self.nodes, 3)
        return CommitRequest(request_id, session, "edge:s:1", 0, 1, secrets.token_hex(16), candidates, 0, "t")

    async def work(self, requests: list[str]) -> None:
        todo = deque(requests)
        end = time.monotonic() + DEADLINE_S
        while todo:
            assert time.monotonic() < end, f"{len(todo)} requests left at the deadline"
            taken = [todo.popleft() for _ in range(min(BATCH, len(todo)))]
            answers = await self.store.commits.commit([self.ask(request_id) for request_id in taken])
            for request_id, answer in zip(taken, answers, strict=True):
                if answer.verdict == "new":
                    assert request_id not in self.new
                    self.new[request_id] = answer.job_id
                    self.held.append(answer)
                    self.used_max = max(self.used_max, answer.used)
                elif answer.verdict == "bound":
                    self.bound.append((request_id, answer.job_id))
                else:
                    assert answer.verdict == "full", answer
                    self.full += 1
                    todo.append(request_id)
            await self.release_all_but(HELD if todo else 0)

    async def release_all_but(self, keep: int) -> None:
        ending = [self.held.popleft() for _ in range(max(0, len(self.held) - keep))]
        await asyncio.gather(*(self.end(job) for job in ending))

    async def end(self, job: Committed) -> None:
        if self.random.random() < 0.5:
            released = await self.store.jobs.release(Release(job.job_id, 1, job.node_id, "test"))
            assert released.verdict == "released", released
        else:
            advanced = await advance_job(self.store, job.job_id, 1, job.node_id, "dispatch finish release")
            assert advanced.verdict == "moved" and advanced.finished, advanced


async def main(task: dict[str, Any]) -> dict[str, Any]:
    config = Config(
        redis=RedisConfig(url=task["url"], cluster=task["cluster"], timeout_ms=60_000),
        node=NodeConfig(heartbeat_timeout_ms=PATIENT_MS),
        job=JobConfig(lease_ms=PATIENT_MS, provisional_lease_ms=PATIENT_MS),
    )
    runner = await Runner.connect(config.redis)
    committer = Committer(Store(runner, Keys(), config), task["nodes"], task["seed"])
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)  # all start together
    await committer.work(task["requests"])
    await runner.close()
    return {
        "new": committer.new,
        "bound": committer.bound,
        "used_max": committer.used_max,
        "full": committer.full,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
