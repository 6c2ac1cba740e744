"""What several end-to-end tests share: waiting for a condition, sessions that speak, nodes that can be held."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from linguamesh.errors import MeshRefused
from linguamesh.node import Job, Node, Result
from linguamesh.operator import Operator
from linguamesh.session import Session

#: 100 ms of PCM16 at 16 kHz.
AUDIO = b"\x00\x01" * 1_600

T = TypeVar("T")


async def until(condition: Callable[[], T | Awaitable[T]], what: str, seconds: float = 30.0) -> T:
    """The first true answer of `condition`; AssertionError that says what did not come."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer:
            return answer  # type: ignore[return-value]
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.02)


async def asked(operator: Operator, *path: str, **params: str) -> Any:
    """The answer of the mesh, without holding up the nodes and sessions of this event loop."""
    return await asyncio.to_thread(operator.query, *path, **params)


async def status_of(operator: Operator, node_id: str) -> str:
    """The node's status as the mesh tells it; "" while it knows none."""
    try:
        return str((await asked(operator, "nodes", node_id))["status"])
    except MeshRefused as error:
        if error.status != 404:
            raise
        return ""


@dataclass
class Worker:
    """What a node of this process does with its jobs, and what it got. `work` is called for each."""

    node_id: str
    work: Callable[[Worker, Job], Awaitable[None]]
    jobs: list[Job] = field(default_factory=list)
    #: When each of them came, by time.monotonic().
    came_s: list[float] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    async def __call__(self, job: Job) -> Result:
        self.jobs.append(job)
        self.came_s.append(time.monotonic())
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
    """One registered SDK node for each of them."""
    common: dict[str, Any] = {"asr": ["en"], "semantic": ["es", "en"], "max_jobs": 4, **options}
    async with AsyncExitStack() as stack:
        nodes = [Node(url, worker, node_id=worker.node_id, **common) for worker in of]
        await asyncio.gather(*(stack.enter_async_context(node) for node in nodes))
        yield nodes


@asynccontextmanager
async def sessions(count: int, *urls: str, **options: Any) -> AsyncIterator[list[Session]]:
    """So many open sessions, spread over the edges at `urls`."""
    async with AsyncExitStack() as stack:
        opened = [Session(urls[place % len(urls)], src="en", tgt="es", **options) for place in range(count)]
        await asyncio.gather(*(stack.enter_async_context(session) for session in opened))
        yield opened


def placements(of: list[Worker]) -> Counter[str]:
    """Node id -> jobs it was given."""
    return Counter({worker.node_id: len(worker.jobs) for worker in of})
