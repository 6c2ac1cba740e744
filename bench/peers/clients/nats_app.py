"""NATS request-reply over a queue group: `nats_app.py worker SLOTS` and `nats_app.py client`. Nothing is stored.

Environment: PEER_NATS, PEER_BYTES.
"""

from __future__ import annotations

import asyncio
import os
import sys

import nats
from window import RESULT_BYTES, Work, serve

URL = os.environ["PEER_NATS"]
RESULT = bytes(RESULT_BYTES)


async def worker(slots: int) -> None:
    """A connection per slot."""

    async def reply(message) -> None:
        await message.respond(RESULT)

    for _ in range(slots):
        connection = await nats.connect(URL)
        await connection.subscribe("job", queue="workers", cb=reply)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def client() -> None:
    """One connection."""
    connection = await nats.connect(URL)

    async def submit(payload: bytes) -> bytes:
        return (await connection.request("job", payload, timeout=30)).data

    await serve(submit, Work(int(os.environ["PEER_BYTES"])).payload)


if __name__ == "__main__":
    asyncio.run(worker(int(sys.argv[2])) if sys.argv[1] == "worker" else client())
