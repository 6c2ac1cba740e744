"""`lingua node drain`: give a node no more work, wait until it has none left, and tell how far it is."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, Final

from linguamesh.cli.errors import answered, fail
from linguamesh.errors import MeshRefused
from linguamesh.operator import Operator
from mesh.clock import wall_ms
from mesh.errors import ConfigError
from mesh.process import EXIT_FAILED, EXIT_OK

#: The mesh takes no longer one.
DEADLINE_S_MAX: Final = 86_400
#: How often the mesh is asked how many jobs are left.
ASK_EVERY_S: Final = 0.25
#: After the deadline the mesh hands over what is left; so long that may take.
HAND_OVER_S: Final = 10.0


def run(options: argparse.Namespace) -> int:
    """Drain a node, or end its drain; the exit code: 0 once it is empty, 1 if it did not get so."""
    return answered(lambda: _resume(options) if options.resume else _drain(options))


def _resume(options: argparse.Namespace) -> int:
    node_id = options.node_id
    answer = _commanded(options, resume=True)
    print(json.dumps(answer) if options.json else f"{node_id}: {answer['status']}, takes work again")
    return EXIT_OK


def _drain(options: argparse.Namespace) -> int:
    if options.deadline is not None and not 0 < options.deadline <= DEADLINE_S_MAX:
        raise ConfigError(f"--deadline is a number of seconds above 0, at most {DEADLINE_S_MAX}")
    deadline = {} if options.deadline is None else {"deadline_ms": round(options.deadline * 1_000)}
    answer = _commanded(options, **deadline)
    left_s = (answer["drain_until_ms"] - wall_ms()) / 1_000 if options.deadline is None else options.deadline
    return _wait_until_empty(options, time.monotonic() + max(0.0, left_s))


def _commanded(options: argparse.Namespace, **fields: Any) -> dict[str, Any]:
    try:
        return Operator(options.url).command("drain", node_id=options.node_id, reason=options.reason, **fields)
    except MeshRefused as error:
        if error.status == 404:
            raise MeshRefused(404, f"the mesh knows no node {options.node_id}") from None
        raise


def _wait_until_empty(options: argparse.Namespace, deadline_s: float) -> int:
    """Tell each change until no job is left; `deadline_s` is on the monotonic clock."""
    operator, told = Operator(options.url), ""
    while True:
        state = _state(operator, options.node_id)
        is_late = time.monotonic() >= deadline_s
        text = _progress(state, is_late)
        if text != told and not options.json:
            print(f"{options.node_id}: {text}", flush=True)
            told = text
        if state["used"] == 0 or state["status"] != "draining":
            break
        if time.monotonic() >= deadline_s + HAND_OVER_S:
            return fail(f"{options.node_id} still has {state['used']} jobs after its deadline", EXIT_FAILED)
        time.sleep(ASK_EVERY_S)
    if options.json:
        print(json.dumps(state))
    if state["used"] == 0 and state["status"] in ("draining", "offline", "gone"):
        return EXIT_OK
    print(f"error: {options.node_id} is {state['status']} again: somebody ended the drain", file=sys.stderr)
    return EXIT_FAILED


def _state(operator: Operator, node_id: str) -> dict[str, Any]:
    """What the mesh knows of the node; a node that it has forgotten is gone and has nothing left."""
    try:
        return dict(operator.ask("nodes", node_id))
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
