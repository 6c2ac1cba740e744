"""`lingua node drain`: assign a node no new jobs, wait until it is empty, and print the progress."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, Final

from linguamesh.cli.errors import exit_code_of, fail
from linguamesh.errors import MeshRefused
from linguamesh.operator import Operator
from mesh.clock import wall_ms
from mesh.errors import ConfigError
from mesh.process import EXIT_FAILED, EXIT_OK

#: The mesh's own bound.
DEADLINE_S_MAX: Final = 86_400
#: Interval between queries of the node's state.
POLL_INTERVAL_S: Final = 0.25
#: Time after the deadline in which the remaining jobs fail over to other nodes.
FAILOVER_S: Final = 10.0


def run(options: argparse.Namespace) -> int:
    """Drain a node, or end its drain; the exit code: 0 once it is empty, 1 otherwise."""
    return exit_code_of(lambda: _resume(options) if options.resume else _drain(options))


def _resume(options: argparse.Namespace) -> int:
    node_id = options.node_id
    reply = _command(options, resume=True)
    print(json.dumps(reply) if options.json else f"{node_id}: {reply['status']}, takes work again")
    return EXIT_OK


def _drain(options: argparse.Namespace) -> int:
    if options.deadline is not None and not 0 < options.deadline <= DEADLINE_S_MAX:
        raise ConfigError(f"--deadline is a number of seconds above 0, at most {DEADLINE_S_MAX}")
    deadline = {} if options.deadline is None else {"deadline_ms": round(options.deadline * 1_000)}
    reply = _command(options, **deadline)
    left_s = (reply["drain_until_ms"] - wall_ms()) / 1_000 if options.deadline is None else options.deadline
    return _wait_until_empty(options, time.monotonic() + max(0.0, left_s))


def _command(options: argparse.Namespace, **fields: Any) -> dict[str, Any]:
    try:
        return Operator(options.url).command("drain", node_id=options.node_id, reason=options.reason, **fields)
    except MeshRefused as error:
        if error.status == 404:
            raise MeshRefused(404, f"the mesh knows no node {options.node_id}") from None
        raise


def _wait_until_empty(options: argparse.Namespace, deadline_s: float) -> int:
    """Print each change until no job is left; `deadline_s` is on the monotonic clock."""
    operator, printed = Operator(options.url), ""
    while True:
        state = _state(operator, options.node_id)
        is_late = time.monotonic() >= deadline_s
        text = _progress(state, is_late)
        if text != printed and not options.json:
            print(f"{options.node_id}: {text}", flush=True)
            printed = text
        if state["used"] == 0 or state["status"] != "draining":
            break
        if time.monotonic() >= deadline_s + FAILOVER_S:
            return fail(f"{options.node_id} still has {state['used']} jobs after its deadline", EXIT_FAILED)
        time.sleep(POLL_INTERVAL_S)
    if options.json:
        print(json.dumps(state))
    if state["used"] == 0 and state["status"] in ("draining", "offline", "gone"):
        return EXIT_OK
    print(f"error: {options.node_id} is {state['status']} again: the drain was ended", file=sys.stderr)
    return EXIT_FAILED


def _state(operator: Operator, node_id: str) -> dict[str, Any]:
    """The node's state; a node that the mesh does not know has no jobs."""
    try:
        return dict(operator.query("nodes", node_id))
    except MeshRefused as error:
        if error.status != 404:
            raise
        return {"node_id": node_id, "status": "gone", "used": 0}


def _progress(state: dict[str, Any], is_late: bool) -> str:
    used = state["used"]
    if not used:
        return f"{state['status']}, empty"
    jobs = f"{used} job{'' if used == 1 else 's'}"
    if is_late:
        return f"{state['status']}, the deadline is over, {jobs} to hand over ..."
    return f"{state['status']}, {jobs} left ..."
