"""taskiq with taskiq-redis: the broker, its task, and (as a script) the client.

Payload and result are base64 text: taskiq converts messages to JSON types, which have no bytes. A result is polled for
every millisecond; taskiq's own default is 200. Environment: PEER_REDIS, PEER_BYTES.
"""

from __future__ import annotations

import asyncio
import base64
import os

from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend
from window import RESULT_BYTES, Work, serve

URL = os.environ["PEER_REDIS"]
POLL_S = 0.001
RESULT = base64.b64encode(bytes(range(256)) * (RESULT_BYTES // 256)).decode()

# Without a socket timeout: a blocking pop of an idle worker must not end with an error.
broker = ListQueueBroker(URL, socket_timeout=None).with_result_backend(
    RedisAsyncResultBackend(URL, result_ex_time=60, keep_results=False)
)


@broker.task(task_name="job")
async def job(payload: str) -> str:
    """No work but to decode what came."""
    base64.b64decode(payload)
    return RESULT


async def main() -> None:
    """The client."""
    await broker.startup()

    async def submit(payload: bytes) -> bytes:
        task = await job.kiq(base64.b64encode(payload).decode())
        result = await task.wait_result(check_interval=POLL_S, timeout=30)
        return base64.b64decode(result.return_value)

    work = Work(int(os.environ["PEER_BYTES"]))
    await submit(work.payload)
    await serve(submit, work.payload)


if __name__ == "__main__":
    asyncio.run(main())
