"""Our mesh by both SDKs, in binary: `mesh_sdk.py nodes URL NODES SLOTS` and `mesh_sdk.py client SESSIONS URL...`.
Environment: PEER_BYTES."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack

import uvloop
from window import RESULT_BYTES, Work, serve

from linguamesh.node import Job, Node, Result
from linguamesh.session import Session

RESULT = Result(text_asr="a", text_translated="b", tts_audio=bytes(RESULT_BYTES))


async def _handler(job: Job) -> Result:
    assert job.audio  # decoded, as any pipeline would
    return RESULT


async def nodes(url: str, count: int, slots: int) -> None:
    """All nodes in one process."""
    async with AsyncExitStack() as stack:
        for number in range(count):
            node = Node(url, _handler, asr=["en"], semantic=["es"], node_id=f"node-sdk-{number}", max_jobs=slots)
            await stack.enter_async_context(node)
        print("ready", flush=True)
        await asyncio.Event().wait()


async def client(sessions: int, urls: list[str]) -> None:
    """Sessions by turns at each address."""
    async with AsyncExitStack() as stack:
        free = [
            await stack.enter_async_context(Session(urls[number % len(urls)], src="en", tgt="es"))
            for number in range(sessions)
        ]

        async def submit(audio: bytes) -> bytes:
            session = free.pop()
            try:
                return (await session.translate(audio)).tts_audio
            finally:
                free.append(session)

        await serve(submit, Work(int(os.environ["PEER_BYTES"])).payload)


if __name__ == "__main__":
    if sys.argv[1] == "nodes":
        uvloop.run(nodes(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    else:
        uvloop.run(client(int(sys.argv[2]), sys.argv[3:]))
