"""Celery with Redis as broker and backend: the application, its task, and (as a script) the client.

Environment: PEER_REDIS (URL without a database), PEER_BYTES. The worker is `celery -A celery_app worker`.
"""

from __future__ import annotations

import os

from celery import Celery
from window import RESULT_BYTES, Work, serve_callbacks

REDIS = os.environ["PEER_REDIS"]
RESULT = bytes(range(256)) * (RESULT_BYTES // 256)

app = Celery("celery_app", broker=f"{REDIS}/0", backend=f"{REDIS}/1")
app.conf.update(result_expires=300, worker_prefetch_multiplier=4)


@app.task(name="job")
def job(payload: bytes) -> bytes:
    """No work: what remains is the queue."""
    return RESULT


def main() -> None:
    """Results come by the backend's own publish-subscribe; nothing is polled."""
    consumer = app.backend.result_consumer

    def submit(payload: bytes, done) -> None:
        job.delay(payload).then(lambda result: done(result.result))

    job.delay(b"").get(timeout=60)
    work = Work(int(os.environ["PEER_BYTES"]))
    serve_callbacks(submit, lambda: consumer.drain_events(timeout=1), work.payload)


if __name__ == "__main__":
    main()
