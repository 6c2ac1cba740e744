"""Load tests of a running mesh: `locust -f loadtest/locustfile.py --edge ws://127.0.0.1:5010`.

`make load` starts a mesh and runs this file headless; docs/performance.md has the profile and distributed runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import gevent
from locust import User, events
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # locust runs this file as a script

from loadtest import mesh_state
from loadtest.limits import Row, judge
from loadtest.loop_thread import LoopThread
from loadtest.options import UserKind, add_arguments, parse_options
from loadtest.users import (
    ChurnUser,
    NodeUser,
    ResumeUser,
    RoomUser,
    Run,
    StreamBinaryUser,
    StreamJsonUser,
    UtteranceUser,
)

#: After the last session of this process: time for those of other processes, whose jobs need the nodes.
JOBS_DONE_S: Final = 30.0
#: Messages of the master and of its workers.
END_LOAD: Final = "end_load"
LOAD_ENDED: Final = "load_ended"
SESSION_USERS: Final = (UtteranceUser, StreamJsonUser, StreamBinaryUser, RoomUser, ChurnUser, ResumeUser)


@events.init_command_line_parser.add_listener
def _on_parser(parser: Any) -> None:
    add_arguments(parser)


@events.init.add_listener
def _on_init(environment: Environment, **_: Any) -> None:
    try:
        _apply_options(environment)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    if isinstance(environment.runner, MasterRunner):
        environment.runner.register_message(LOAD_ENDED, _on_load_ended)
        return
    if isinstance(environment.runner, WorkerRunner):
        environment.runner.register_message(END_LOAD, _on_end_load, concurrent=True)
    Run.loop = LoopThread()


@events.test_start.add_listener
def _on_start(environment: Environment, **_: Any) -> None:
    """A worker has the master's options from now on: locust copies them before this event."""
    _apply_options(environment)


def _apply_options(environment: Environment) -> None:
    """Set the options and the kinds of users of this process; ValueError if an option is wrong."""
    assert environment.parsed_options is not None
    Run.options = parse_options(environment.parsed_options)
    NodeUser.fixed_count = Run.options.nodes
    wanted: list[type[User]] = [NodeUser] if Run.options.nodes else []
    for user in SESSION_USERS:
        user.weight = Run.options.mix.get(UserKind(user.kind), 0)
        if user.weight:
            wanted.append(user)
    environment.user_classes = wanted


@events.test_stopping.add_listener
def _on_stopping(environment: Environment, **_: Any) -> None:
    """A headless master would quit its workers in the middle of their utterances, and lose their last reports."""
    runner = environment.runner
    if not isinstance(runner, MasterRunner):
        return
    Run.workers_ended.clear()
    workers = {client.id for client in (*runner.clients.ready, *runner.clients.spawning, *runner.clients.running)}
    runner.send_message(END_LOAD)
    with gevent.Timeout(environment.stop_timeout + JOBS_DONE_S, False):
        while not workers <= Run.workers_ended:
            gevent.sleep(0.1)


def _on_end_load(environment: Environment, **_: Any) -> None:
    runner = environment.runner
    assert isinstance(runner, WorkerRunner)
    runner.stop()
    runner._send_stats()  # as locust does before it quits: the report precedes the message
    runner.send_message(LOAD_ENDED)


def _on_load_ended(msg: Any, **_: Any) -> None:
    Run.workers_ended.add(msg.node_id)


@events.test_stop.add_listener
def _on_stop(**_: Any) -> None:
    """The sessions of this process have ended: the nodes leave when the mesh has no job in flight."""
    mesh_state.wait_for(Run.options.edges, lambda state: state.in_flight == 0, JOBS_DONE_S)
    state = mesh_state.read(Run.options.edges)
    Run.broken_invariants = state.broken if state else "the edge does not answer"
    while Run.nodes:
        Run.loop.call(Run.nodes.pop().leave())


@events.quitting.add_listener
def _on_quit(environment: Environment, **_: Any) -> None:
    if isinstance(environment.runner, WorkerRunner):
        return
    rows = [
        Row(kind, name, entry.num_requests, entry.num_failures, entry.get_response_time_percentile(0.95) or 0)
        for (name, kind), entry in environment.stats.entries.items()
    ]
    assert environment.runner is not None
    user_errors = sum(error["count"] for error in environment.runner.exceptions.values())
    verdicts = judge(rows, Run.options.limits, user_errors=user_errors, broken_invariants=Run.broken_invariants)
    Run.verdicts = verdicts
    environment.process_exit_code = 0 if all(verdict.held for verdict in verdicts) else 1


@events.quit.add_listener
def _on_exit(**_: Any) -> None:
    """Print the verdicts after the table, which locust prints between the two events."""
    if Run.verdicts:
        print("\nLimits", *Run.verdicts, sep="\n  ", flush=True)
