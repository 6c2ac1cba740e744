"""`lingua`: reads the command line and hands over to a subcommand. Imports nothing heavy, so that --help is instant."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Final

DEFAULT_PORT: Final = 5010
DEFAULT_URL: Final = f"ws://127.0.0.1:{DEFAULT_PORT}"
ROLES: Final = ("broker", "edge", "selector")
INTERRUPTED: Final = 130

EPILOG: Final = """\
exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 69 the mesh, Redis or a broker cannot be reached.
settings: LINGUA_<SECTION>_<KEY> in the environment, or a TOML file named by LINGUA_CONFIG; see config.example.toml."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in ROLES:
        return _become(words[0], words[1:])
    options = build_parser().parse_args(words)
    try:
        return _run(options)
    except KeyboardInterrupt:
        return INTERRUPTED


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(
        prog="lingua",
        description="Lingua Mesh: a scheduler mesh for real-time speech translation.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_up(commands.add_parser("up", help="start a whole mesh on this machine; Ctrl-C stops it"))
    for role in ROLES:
        commands.add_parser(role, help=f"run one {role} process (`lingua {role} --help` for its options)")
    _add_node(commands.add_parser("node", help="run demo nodes; their pipeline is simulated"))
    _add_translate(commands.add_parser("translate", help="send a WAV file through a running mesh"))
    commands.add_parser("version", help="print the version")
    return parser


def _add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument("--port", type=int, default=DEFAULT_PORT, help="port that all edges share (%(default)s; 0 = any)")
    up.add_argument("--edges", type=int, default=2, metavar="N", help="edge processes (%(default)s)")
    up.add_argument("--brokers", type=int, default=1, metavar="N", help="broker processes (%(default)s)")
    up.add_argument("--selectors", type=int, default=2, metavar="N", help="selector processes (%(default)s)")
    up.add_argument(
        "--nodes", type=int, default=4, metavar="N", help="demo nodes, simulated, in one process (%(default)s)"
    )
    up.add_argument(
        "--redis",
        default="embedded",
        metavar="embedded|cluster|URL",
        help="a server of its own (default), a cluster of its own (3 masters, 3 replicas), or yours; "
        "set LINGUA_REDIS_CLUSTER=true if yours is a cluster",
    )
    up.add_argument("--state-dir", metavar="D", help="keep logs and Redis here (default: a temporary directory)")
    up.add_argument("--json", action="store_true", help="print the ready line as one JSON object")


def _add_node(node: argparse.ArgumentParser) -> None:
    node.add_argument("--url", default=DEFAULT_URL, help="an edge (%(default)s)")
    node.add_argument("--simulated", action="store_true", help="simulate the pipeline: the only one so far")
    node.add_argument("--count", type=int, default=1, metavar="N", help="nodes in this process (%(default)s)")
    node.add_argument("--name", default="", help="node ids are NAME-0, NAME-1, ... (default: the mesh assigns them)")
    node.add_argument("--languages", default="en,es,zh,ja,ko,fr,de", help="comma-separated (%(default)s)")
    node.add_argument("--max-jobs", type=int, default=4, metavar="N", help="jobs at once, per node (%(default)s)")
    node.add_argument("--json", action="store_true", help="print the ready line as one JSON object")
    node.add_argument("--die-with-parent", action="store_true", help="end when the starting process ends")


def _add_translate(translate: argparse.ArgumentParser) -> None:
    translate.add_argument("file", metavar="FILE.wav", help="16-bit PCM, mono or stereo")
    translate.add_argument("--from", dest="src", default="auto", metavar="LANG", help="spoken language (%(default)s)")
    translate.add_argument("--to", dest="tgt", required=True, metavar="LANG", help="language to translate to")
    translate.add_argument("--url", default=f"{DEFAULT_URL}/ws/session", help="an edge (%(default)s)")
    translate.add_argument("--timeout", type=float, default=35.0, metavar="S", help="seconds to wait (%(default)s)")
    translate.add_argument("--json", action="store_true", help="print the result as one JSON object")


def _run(options: argparse.Namespace) -> int:
    # Each command's module is imported only when it runs.
    command = importlib.import_module(f"linguamesh.cli.{options.command}")
    return int(command.run(options))


def _become(role: str, arguments: list[str]) -> int:
    """Turn into `python -m <role>`. -P: a folder of that name where the user stands must not win."""
    os.execv(sys.executable, [sys.executable, "-P", "-m", role, *arguments])


if __name__ == "__main__":
    sys.exit(main())
