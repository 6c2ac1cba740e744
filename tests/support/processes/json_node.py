"""A process with one node in literal JSON that runs one job at a time and ignores cancellation.

`python -m tests.support.processes.json_node --name N --url U --events FILE --gate FILE`.
Every job that is assigned to it ends in a result: such are the late results of a node that was frozen.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from mesh import process
from tests.support.fakes.original_node import LANGUAGES, REGISTER, heartbeat


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--events", type=Path, required=True)
    parser.add_argument("--gate", type=Path, required=True, help="jobs run until this file exists")
    parser.add_argument("--heartbeat-ms", type=int, default=500)
    parser.add_argument("--die-with-parent", action="store_true")
    options = parser.parse_args()
    if options.die_with_parent:
        process.die_with_parent()
    with connect(f"{options.url}/ws/node", compression=None) as socket:
        register = {**REGISTER, "node_id": options.name, "language_capabilities": LANGUAGES}
        socket.send(json.dumps(register))
        beats = threading.Thread(target=beat, args=(socket, options), daemon=True)
        for text in socket:
            message = json.loads(text)
            if message["type"] == "node_register_ack":
                beats.start()
                process.announce_ready("nodes", options.name, "", nodes=[options.name])
            elif message["type"] == "job_assign":
                work(socket, options, message)
    return 0


def beat(socket: ClientConnection, options: argparse.Namespace) -> None:
    try:
        while True:
            socket.send(json.dumps({**heartbeat(options.name), "language_capabilities": LANGUAGES}))
            time.sleep(options.heartbeat_ms / 1_000)
    except ConnectionClosed:
        pass


def work(socket: ClientConnection, options: argparse.Namespace, job: dict[str, object]) -> None:
    note(options, "assigned", job)
    while not options.gate.exists():
        time.sleep(0.02)
    result = {
        "type": "job_result",
        "node_id": options.name,
        **{name: job[name] for name in ("job_id", "attempt_id", "session_id", "utterance_index", "trace_id")},
        "success": True,
        "text_asr": f"{options.name}#{job['attempt_id']}",
        "text_translated": "late",
    }
    socket.send(json.dumps(result))
    note(options, "answered", job)


def note(options: argparse.Namespace, event: str, job: dict[str, object]) -> None:
    line = {
        "event": event,
        "node": options.name,
        "at_s": time.time(),
        "job_id": job["job_id"],
        "attempt": job["attempt_id"],
    }
    with options.events.open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
