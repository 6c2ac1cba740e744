"""SDK nodes and SDK sessions in the process of the test, and the operator's view of a mesh."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from linguamesh.errors import MeshRefused
from linguamesh.node import Job, Node, Result
from linguamesh.operator import Operator
from linguamesh.session import Session
from tests.support.conditions import DEADLINE_S

#: 100 ms of PCM16 at 16 kHz.
AUDIO = b"\x00\x01" * 1_600


async def query(operator: Operator, *path: str, **params: str) -> Any:
    """The reply to an operator's query, without blocking the nodes and sessions of this event loop."""
    return await asyncio.to_thread(operator.query, *path, **params)


async def status_of(operator: Operator, node_id: str) -> str:
    """The node's status as the mesh reports it; "" for an unknown node."""
    try:
        return str((await query(operator, "nodes", node_id))["status"])
    except MeshRefused as error:
        if error.status != 404:
            raise
        return ""


@dataclass
class Worker:
    """The job handler of an SDK node, and the jobs that it received. `work` is awaited for each."""

    node_id: str
    work: Callable[[Worker, Job], Awaitable[None]]
    jobs: list[Job] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    async def __call__(self, job: Job) -> Result:
        self.jobs.append(job)
        try:
            await self.work(self, job)
        except asyncio.CancelledError:
            self.cancelled.append(job.job_id)
            raise
        return Result(
            text_asr=f"{self.node_id}#{job.attempt}", text_translated=f"{job.session_id}/{job.utterance_index}"
        )


async def at_once(worker: Worker, job: Job) -> None:
    """Work that takes no time."""


def held_by(gate: asyncio.Event) -> Callable[[Worker, Job], Awaitable[None]]:
    """Work that ends when the gate opens."""

    async def wait(worker: Worker, job: Job) -> None:
        await gate.wait()

    return wait


@asynccontextmanager
async def workers(url: str, *of: Worker, **options: Any) -> AsyncIterator[list[Node]]:
    """One registered SDK node for each worker."""
    common: dict[str, Any] = {"asr": ["en"], "semantic": ["es", "en"], "max_jobs": 4, **options}
    async with AsyncExitStack() as stack:
        nodes = [Node(url, worker, node_id=worker.node_id, **common) for worker in of]
        await asyncio.gather(*(stack.enter_async_context(node) for node in nodes))
        yield nodes


@asynccontextmanager
async def sessions(count: int, *urls: str, **options: Any) -> AsyncIterator[list[Session]]:
    """`count` open sessions, spread over the edges at `urls`. Their timeouts allow for a busy machine."""
    common: dict[str, Any] = {"src": "en", "tgt": "es", "timeout": DEADLINE_S, "open_timeout": DEADLINE_S, **options}
    async with AsyncExitStack() as stack:
        opened = [Session(urls[place % len(urls)], **common) for place in range(count)]
        await asyncio.gather(*(stack.enter_async_context(session) for session in opened))
        yield opened


def placements(of: list[Worker]) -> Counter[str]:
    """Node id -> number of jobs that it received."""
    return Counter({worker.node_id: len(worker.jobs) for worker in of})
