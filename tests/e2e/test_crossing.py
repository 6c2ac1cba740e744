"""One utterance and many, across real processes: node on one edge, sessions on another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from linguamesh.node import Job, Node, Result
from linguamesh.session import Session
from tests.support.processes.running_mesh import RunningMesh

SESSIONS = 20
UTTERANCES_EACH = 10
AUDIO = b"\x00\x01" * 1_600  # 100 ms of PCM16 at 16 kHz


async def echo(job: Job) -> Result:
    """A node's work: names the utterance it got, so that a mixed-up result would show."""
    await asyncio.sleep(0)
    return Result(text_asr=f"{job.session_id}/{job.utterance_index}", text_translated=f"t:{job.utterance_index}")


@asynccontextmanager
async def nodes_on(url: str, count: int, handler: Callable[[Job], object] = echo) -> AsyncIterator[list[Node]]:
    """`count` SDK nodes on one edge, registered and schedulable."""
    async with AsyncExitStack() as stack:
        nodes = []
        for index in range(count):
            node = Node(
                f"{url}/ws/node",
                handler,  # type: ignore[arg-type]
                node_id=f"node-e2e-{index}",
                asr=["en"],
                semantic=["es", "en"],
                tts=["es", "en"],
                max_jobs=16,
            )
            nodes.append(await stack.enter_async_context(node))
        yield nodes


async def speak(url: str, utterances: int, on_each: Callable[[], None] | None = None) -> list[tuple[str, int, str]]:
    """One session that sends `utterances` at once and collects what comes back for each."""
    async with Session(f"{url}/ws/session", src="en", tgt="es") as session:

        async def one() -> tuple[str, int, str]:
            result = await session.translate(AUDIO, timeout=60)
            if on_each is not None:
                on_each()
            return session.session_id, result.utterance_index, result.text_asr

        return list(await asyncio.gather(*(one() for _ in range(utterances))))


def assert_each_once(answers: list[list[tuple[str, int, str]]], utterances: int) -> None:
    """Every result reached its own session, for its own utterance, once."""
    for of_session in answers:
        assert [text for _, _, text in of_session] == [f"{sid}/{index}" for sid, index, _ in of_session]
        assert sorted(index for _, index, _ in of_session) == list(range(utterances))
    assert len({of_session[0][0] for of_session in answers}) == len(answers)


async def test_results_reach_their_session_once(redis_server, mesh_dir) -> None:
    with RunningMesh(mesh_dir, redis_server.url, brokers=2, edges=2, selectors=3) as mesh:
        async with nodes_on(mesh.url("edge-0"), 4):
            answers = await asyncio.gather(*(speak(mesh.url("edge-1"), UTTERANCES_EACH) for _ in range(SESSIONS)))
    assert_each_once(list(answers), UTTERANCES_EACH)


async def test_results_reach_their_session_once_on_a_cluster(redis_cluster, mesh_dir) -> None:
    with RunningMesh(mesh_dir, redis_cluster.url, cluster=True, brokers=2, edges=2, selectors=3) as mesh:
        async with nodes_on(mesh.url("edge-0"), 4):
            answers = await asyncio.gather(*(speak(mesh.url("edge-1"), UTTERANCES_EACH) for _ in range(SESSIONS)))
    assert_each_once(list(answers), UTTERANCES_EACH)
