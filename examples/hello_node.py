"""The smallest node: answers every utterance with "hola". Run it beside `lingua up --nodes 0`."""

import asyncio

from linguamesh.node import Job, Node, Result


async def handler(job: Job) -> Result:
    return Result(text_asr=f"{job.audio_s:.1f} s of {job.src}", text_translated="hola")


asyncio.run(Node("ws://127.0.0.1:5010", handler, asr=["en"], semantic=["es"]).run())
