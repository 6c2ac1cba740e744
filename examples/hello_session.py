"""The smallest client: sends one utterance to a running mesh and prints its translation."""

import asyncio

from linguamesh.session import Session


async def main() -> None:
    audio = bytes(32_000)  # one second of PCM16, 16 kHz, mono
    async with Session("ws://127.0.0.1:5010", src="en", tgt="es") as session:
        result = await session.translate(audio)
        print(result.text_translated)


asyncio.run(main())
