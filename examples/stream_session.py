"""A client that streams: speaks a WAV file as if into a microphone, and prints each translation as it comes."""

import asyncio
import sys

from linguamesh.session import Session


async def show(session: Session) -> None:
    async for result in session.results():
        print(result.utterance_index, result.error or result.text_translated)


async def main(path: str) -> None:
    async with Session(["ws://127.0.0.1:5010"], src="en", tgt="es") as session:
        showing = asyncio.create_task(show(session))
        await session.stream(path, realtime=True)
    await showing


asyncio.run(main(sys.argv[1]))
