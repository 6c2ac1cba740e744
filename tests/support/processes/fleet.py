"""A process of SDK nodes to kill or freeze: `python -m tests.support.processes.fleet --name N --url U ...`.

Nodes are called NAME-0, NAME-1, ... Their results name node and attempt. Each event (an assigned job, a heartbeat) is
one JSON line in the file named by --events; `events_of` reads it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from linguamesh.node import Job, Node, Result, Usage
from mesh import process


def events_of(path: Path, kind: str) -> list[dict[str, Any]]:
    """The events of one kind so far; a line that is being written is left for the next look."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--max-jobs", type=int, default=4)
    parser.add_argument("--work-ms", type=int, default=0)
    parser.add_argument("--heartbeat-ms", type=int, default=15_000)
    parser.add_argument("--services", default="asr,nmt,semantic,tts")
    parser.add_argument("--events", type=Path, required=True)
    parser.add_argument("--die-with-parent", action="store_true")
    options = parser.parse_args()
    if options.die_with_parent:
        process.die_with_parent()
    return process.run(lambda stop: serve(options, stop))


async def serve(options: argparse.Namespace, stop: asyncio.Event) -> None:
    nodes = [one(options, f"{options.name}-{number}") for number in range(options.count)]
    running = [asyncio.create_task(node.run()) for node in nodes]
    for node in nodes:
        await node.registered()
    process.announce_ready("nodes", options.name, "", nodes=[node.node_id for node in nodes])
    await stop.wait()
    for task in running:
        task.cancel()
    await asyncio.wait(running)


def one(options: argparse.Namespace, node_id: str) -> Node:
    def note(event: str, **more: Any) -> None:
        # O_APPEND: lines of this and of a killed predecessor never mix.
        with options.events.open("a") as file:
            file.write(json.dumps({"event": event, "node": node_id, "at_s": time.time(), **more}) + "\n")

    async def handler(job: Job) -> Result:
        note("assigned", job_id=job.job_id, attempt=job.attempt)
        await asyncio.sleep(options.work_ms / 1_000)
        return Result(text_asr=f"{node_id}#{job.attempt}", text_translated=f"{job.session_id}/{job.utterance_index}")

    def usage() -> Usage:
        note("heartbeat")
        return Usage()

    return Node(
        options.url,
        handler,
        node_id=node_id,
        asr=["en"],
        semantic=["es", "en"],
        services=options.services.split(","),
        max_jobs=options.max_jobs,
        usage=usage,
        heartbeat_interval_s=options.heartbeat_ms / 1_000,
    )


if __name__ == "__main__":
    sys.exit(main())
