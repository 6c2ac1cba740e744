"""SDK nodes that return the name of their utterance, and sessions that check it: a result at a wrong place shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from linguamesh.node import Job, Node, Result
from linguamesh.session import Session
from tests.support.clients.sdk import AUDIO
from tests.support.conditions import DEADLINE_S

#: Session id, utterance index and text of one result.
Answer = tuple[str, int, str]


async def echo(job: Job) -> Result:
    """A job handler whose result names its utterance."""
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


async def translate_all(url: str, utterances: int, on_each: Callable[[], None] | None = None) -> list[Answer]:
    """One session that sends `utterances` at once; its results."""
    async with Session(f"{url}/ws/session", src="en", tgt="es", open_timeout=DEADLINE_S) as session:

        async def one() -> Answer:
            result = await session.translate(AUDIO, timeout=DEADLINE_S)
            if on_each is not None:
                on_each()
            return session.session_id, result.utterance_index, result.text_asr

        return list(await asyncio.gather(*(one() for _ in range(utterances))))


def assert_each_once(answers: list[list[Answer]], utterances: int) -> None:
    """Every result reached its own session, for its own utterance, once."""
    for of_session in answers:
        assert [text for _, _, text in of_session] == [f"{sid}/{index}" for sid, index, _ in of_session]
        assert sorted(index for _, index, _ in of_session) == list(range(utterances))
    assert len({of_session[0][0] for of_session in answers}) == len(answers)
