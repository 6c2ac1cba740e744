"""Every production module has a test of its own subject: its partner.

The partner of edge/jobs/core/tracker.py is tests/unit/edge/jobs/test_tracker.py. A module that only works with real
sockets, processes or scripts has its partner elsewhere; such modules are listed below. Each partner imports its module,
or, where a process stands between them, contains a word (a command, a message, a metric) that the module contains too.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "edge", "linguamesh", "loadtest", "lua", "mesh", "selector", "tools")
#: Where a partner that is no unit test may be.
ELSEWHERE = ("tests/loopback/", "tests/lua/", "tests/sim/", "tests/e2e/")


class Partner(NamedTuple):
    """A test outside of tests/unit, and the word that it shares with its module; "" if it imports the module."""

    path: str
    shared_word: str = ""


#: Reason -> module -> its partner.
PARTNERS: dict[str, dict[str, Partner]] = {
    "it is the command line of a process, which the test starts": {
        "broker/__main__.py": Partner("tests/loopback/broker/test_broker.py"),
        "broker/loop.py": Partner("tests/loopback/broker/test_broker.py", "backend"),
        "edge/__main__.py": Partner("tests/loopback/edge/test_process.py"),
        "selector/__main__.py": Partner("tests/loopback/selector/test_redis.py"),
    },
    "it runs in a process of locust, which the test starts": {
        "loadtest/__main__.py": Partner("tests/e2e/load/test_load.py"),
        "loadtest/fleet.py": Partner("tests/e2e/load/test_load.py", "Metric.NODE"),
        "loadtest/locustfile.py": Partner("tests/e2e/load/test_load.py", "Limits"),
        "loadtest/room.py": Partner("tests/e2e/load/test_load.py", "Metric.ROOM"),
        "loadtest/session.py": Partner("tests/e2e/load/test_load.py", "Metric.PARTIAL"),
        "loadtest/users.py": Partner("tests/e2e/load/test_load.py", "Metric.RESUMED_RESULT"),
    },
    "it moves messages between real sockets; the rules are in a core": {
        "edge/app.py": Partner("tests/loopback/edge/test_roundtrip.py"),
        "edge/nodes/endpoint.py": Partner("tests/loopback/edge/test_nodes.py", "StatusChanged"),
        "edge/nodes/pairing.py": Partner("tests/loopback/edge/test_pairing.py", "PairingAsk"),
        "edge/operators/control.py": Partner("tests/loopback/edge/test_control.py", "expected_version"),
        "edge/operators/http_api.py": Partner("tests/loopback/edge/test_http_api.py", "no-store"),
        "edge/rooms/relay.py": Partner("tests/loopback/edge/test_rooms.py", "Post"),
        "edge/rooms/rooms.py": Partner("tests/loopback/edge/test_rooms.py", "RoomRequest"),
        "edge/sessions/actor.py": Partner("tests/loopback/edge/test_leaks.py"),
        "edge/sessions/endpoint.py": Partner("tests/loopback/edge/test_resume.py", "SessionTaken"),
        "edge/sessions/mail_reader.py": Partner("tests/loopback/edge/test_resume.py", "SESSION_SUPERSEDED"),
        "edge/sessions/messages.py": Partner("tests/loopback/edge/test_streaming.py", "UNSUPPORTED_FEATURE"),
        "edge/sessions/open.py": Partner("tests/loopback/edge/test_hostile.py", "session_init_ack"),
        "edge/sessions/ownership.py": Partner("tests/loopback/edge/test_resume.py", "SessionClaim"),
        "edge/transport/connection.py": Partner("tests/loopback/edge/test_send_buffer.py"),
        "edge/transport/send_buffer.py": Partner("tests/loopback/edge/test_send_buffer.py"),
        "linguamesh/node/node.py": Partner("tests/loopback/sdk/test_node.py", "report_error"),
        "linguamesh/operator.py": Partner("tests/loopback/sdk/test_operator.py"),
        "linguamesh/session/connection.py": Partner("tests/loopback/sdk/test_connection.py"),
        "linguamesh/session/session.py": Partner("tests/loopback/sdk/test_session.py", "open_timeout"),
    },
    "it runs scripts in a real Redis, or holds the values of such a script": {
        "linguamesh/local/redis_server.py": Partner("tests/lua/test_redis_server.py"),
        "lua/engine/runner.py": Partner("tests/lua/test_runner.py"),
        "lua/store/commits.py": Partner("tests/lua/test_commits.py", "CommitRequest"),
        "lua/store/deployment.py": Partner("tests/lua/test_weights.py", "set_weights"),
        "lua/store/jobs.py": Partner("tests/lua/test_jobs.py"),
        "lua/store/nodes.py": Partner("tests/lua/test_marks.py"),
        "lua/store/pairing.py": Partner("tests/lua/test_pairing.py", "PairingAttempt"),
        "lua/store/rooms.py": Partner("tests/lua/test_rooms.py", "reserve_code"),
        "lua/store/turnovers.py": Partner("tests/lua/test_turnovers.py", "turn_over"),
        "lua/store/types/turnovers.py": Partner("tests/lua/test_turnovers.py"),
        "lua/store/sessions.py": Partner("tests/lua/test_mail.py"),
        "lua/store/types/commits.py": Partner("tests/lua/test_commits.py"),
        "lua/store/types/deployment.py": Partner("tests/lua/test_weights.py"),
        "lua/store/types/jobs.py": Partner("tests/lua/test_jobs.py"),
        "lua/store/types/nodes.py": Partner("tests/lua/test_nodes.py"),
        "lua/store/types/pairing.py": Partner("tests/lua/test_pairing.py"),
        "lua/store/types/rooms.py": Partner("tests/lua/test_rooms.py"),
        "lua/store/types/sessions.py": Partner("tests/lua/test_sessions.py"),
    },
    "it connects brokers, scripts and a core; the test has all of them": {
        "selector/context.py": Partner("tests/loopback/selector/test_burst.py"),
        "selector/fleet/missing_models.py": Partner("tests/loopback/selector/test_missing_models.py", "ModelMissing"),
        "selector/fleet/presence.py": Partner("tests/loopback/selector/test_sessions.py", "EdgeReport"),
        "selector/fleet/registration.py": Partner("tests/loopback/selector/test_heartbeats.py"),
        "selector/fleet/snapshot.py": Partner("tests/loopback/selector/test_snapshot.py"),
        "selector/operators/queries.py": Partner("tests/loopback/selector/test_queries.py", "by_reason"),
        "selector/placement/placer.py": Partner("tests/loopback/selector/test_burst.py"),
        "selector/placement/turnover.py": Partner("tests/loopback/selector/test_turnover.py"),
        "selector/sessions/handler.py": Partner("tests/loopback/selector/test_sessions.py", "SessionReleased"),
        "selector/sessions/pairing.py": Partner("tests/loopback/selector/test_pairing.py", "INVALID_PAIRING_CODE"),
        "selector/sessions/rooms.py": Partner("tests/loopback/selector/test_rooms.py", "INVALID_ROOM_CODE"),
    },
}

MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__init__.py"
)
LISTED = {module: partner for rows in PARTNERS.values() for module, partner in rows.items()}


def unit_partners(module: str) -> list[str]:
    """The unit tests that carry the module's name: in the same folders, with or without `core`."""
    *folders, name = module.removesuffix(".py").split("/")
    test = f"test_{name.strip('_')}.py"
    without_core = [folder for folder in folders if folder != "core"]
    places = {"/".join(["tests/unit", *path, test]) for path in (folders, without_core)}
    return sorted(place for place in places if (ROOT / place).exists())


def imported_modules(path: str) -> set[str]:
    """Dotted names of all modules that a file may import: for `from a import b` both a and a.b."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def mentions(path: str, module: str) -> bool:
    """True if the test imports the module or starts it as a process, itself or by a file of tests/support."""
    dotted = module.removesuffix(".py").replace("/", ".")
    package, _, name = dotted.rpartition(".")
    support = [f"{one.replace('.', '/')}.py" for one in imported_modules(path) if one.startswith("tests.support.")]
    files = [path, *(one for one in support if (ROOT / one).exists())]
    texts = [(ROOT / one).read_text(encoding="utf-8") for one in files]
    started = f'"{package}"' if name == "__main__" else f"\nfrom {package} import {name}\n"
    return any(dotted in imported_modules(one) for one in files) or any(started in text for text in texts)


def test_every_module_has_a_partner() -> None:
    missing = [module for module in MODULES if module not in LISTED and not unit_partners(module)]
    assert not missing, "modules without a partner test:\n" + "\n".join(missing)


def test_every_unit_partner_imports_its_module() -> None:
    strangers = [
        f"{partner} does not import {module}"
        for module in MODULES
        for partner in unit_partners(module)
        if not mentions(partner, module)
    ]
    assert not strangers, "\n".join(strangers)


def test_no_row_is_listed_twice() -> None:
    assert len(LISTED) == sum(len(rows) for rows in PARTNERS.values())


def test_no_row_is_stale() -> None:
    problems = [f"{module}: {problem}" for module, row in LISTED.items() if (problem := problem_of(module, row))]
    assert not problems, "\n".join(problems)


def problem_of(module: str, row: Partner) -> str:
    """The reason why a row must go or change; "" for a good one."""
    if module not in MODULES:
        return "no such module"
    if unit_partners(module):
        return f"{unit_partners(module)[0]} is its partner"
    if not row.path.startswith(ELSEWHERE) or not (ROOT / row.path).exists():
        return f"{row.path} is no test outside of tests/unit"
    if mentions(row.path, module):
        return "its partner imports it: a shared word is not needed" if row.shared_word else ""
    if not row.shared_word:
        return f"{row.path} does not import it"
    without = [path for path in (module, row.path) if row.shared_word not in (ROOT / path).read_text(encoding="utf-8")]
    return f"{row.shared_word!r} is not in {without}" if without else ""
