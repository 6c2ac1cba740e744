"""`lingua`: parses the command line and runs a subcommand. Imports nothing heavy, so that --help is instant."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Final

from mesh.words import ProcessKind

DEFAULT_PORT: Final = 5010
DEFAULT_URL: Final = f"ws://127.0.0.1:{DEFAULT_PORT}"
#: Commands of other modules: `lingua <name> ...` becomes `python -m <module> ...`.
ROLES: Final = tuple(kind.value for kind in ProcessKind)
MODULES: Final = {role: role for role in ROLES}
INTERRUPTED: Final = 130

EPILOG: Final = """\
exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 69 the mesh, Redis or a broker cannot be reached.
settings: LINGUA_<SECTION>_<KEY> in the environment, or a TOML file named by LINGUA_CONFIG; see config.example.toml."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in MODULES:
        return _exec(MODULES[arguments[0]], arguments[1:])
    options = build_parser().parse_args(arguments)
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
    _add_node(commands.add_parser("node", help="run demo nodes; their pipeline is simulated. `node drain` empties one"))
    _add_pair(commands.add_parser("pair", help="get a code by which a client can select a node"))
    _add_translate(commands.add_parser("translate", help="send a WAV file through a running mesh"))
    _add_explain(commands.add_parser("explain", help="explain why a job was placed on its node"))
    _add_weights(commands.add_parser("weights", help="show or set the weights of node selection"))
    _add_replay(commands.add_parser("replay", help="repeat recorded decisions, with other weights"))
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
    node.add_argument(
        "--speed", type=float, default=80.0, metavar="MS", help="milliseconds per second of audio (%(default)g)"
    )
    node.add_argument("--region", metavar="WORD", help="their location")
    node.add_argument("--gpu-tier", metavar="WORD", help="their GPU class")
    node.add_argument("--tenant", metavar="ID", help="they run jobs of this tenant only")
    node.add_argument("--pair", action="store_true", help="print a pairing code of each node once it is registered")
    node.add_argument("--json", action="store_true", help="print the ready line as one JSON object")
    node.add_argument("--die-with-parent", action="store_true", help="end when the starting process ends")
    _add_drain(
        node.add_subparsers(metavar="drain").add_parser(
            "drain", help="assign a node no new jobs and wait until it is empty"
        )
    )


def _add_drain(drain: argparse.ArgumentParser) -> None:
    drain.description = (
        "Assign a node no new jobs and wait until it is empty. Jobs that it has not finished by the deadline go to "
        "other nodes. It gets no jobs until --resume, or until it reconnects after the deadline. Exit code 0 once it "
        "is empty, 1 otherwise."
    )
    drain.set_defaults(module="drain")
    drain.add_argument("node_id", metavar="ID", help="the node")
    drain.add_argument(
        "--deadline", type=float, metavar="S", help="seconds for its jobs (default: node.drain_deadline_ms of the mesh)"
    )
    drain.add_argument("--resume", action="store_true", help="end the drain instead: the node gets jobs again")
    drain.add_argument("--reason", default="operator", metavar="TEXT", help="sent to the node (%(default)s)")
    # Without defaults of their own, so that `lingua node --url X drain ...` keeps its URL.
    drain.add_argument("--url", default=argparse.SUPPRESS, help=f"an edge ({DEFAULT_URL})")
    drain.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print the final state as one JSON object"
    )


def _add_pair(pair: argparse.ArgumentParser) -> None:
    pair.description = (
        "Print a code of six digits. The first client that sends it in session_init is paired with the node: its "
        "utterances go there whenever possible. The node's previous code is revoked."
    )
    pair.add_argument("node_id", metavar="NODE_ID", help="the node")
    _add_query_options(pair, "print one JSON object")


def _add_explain(explain: argparse.ArgumentParser) -> None:
    explain.add_argument("job_id", metavar="JOB_ID", help="as in a result; a request id is accepted too")
    _add_query_options(explain, "print the whole decision record as one JSON object")


def _add_replay(replay: argparse.ArgumentParser) -> None:
    replay.description = "Decide again what was decided."
    source = replay.add_mutually_exclusive_group()
    source.add_argument("--recording", metavar="FILE", help="one selector's recording (default: those of a mesh)")
    source.add_argument("--url", default=DEFAULT_URL, help="an edge (%(default)s)")
    replay.add_argument("--weights", metavar="FILE.toml", help="other weights, at its top or in its table [weights]")
    replay.add_argument("--json", action="store_true", help="print one JSON object")


def _add_weights(weights: argparse.ArgumentParser) -> None:
    weights.description = "The weights of node selection; one set is in force in the whole deployment."
    verbs = weights.add_subparsers(dest="verb", metavar="show|set")
    show = verbs.add_parser("show", help="print the weights in force, as TOML (the default)")
    put = verbs.add_parser("set", help="put the weights of a file in force everywhere")
    put.add_argument("file", metavar="FILE.toml", help="a missing weight has its default; see `weights show`")
    _add_query_options(weights, "print one JSON object")
    for verb in (show, put):
        verb.add_argument("--url", default=argparse.SUPPRESS, help=f"an edge ({DEFAULT_URL})")
        verb.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")


def _add_query_options(parser: argparse.ArgumentParser, json_help: str) -> None:
    parser.add_argument("--url", default=DEFAULT_URL, help="an edge (%(default)s)")
    parser.add_argument("--json", action="store_true", help=json_help)


def _add_translate(translate: argparse.ArgumentParser) -> None:
    translate.add_argument("file", metavar="FILE.wav", help="16-bit PCM, mono or stereo")
    translate.add_argument("--from", dest="src", default="auto", metavar="LANG", help="spoken language (%(default)s)")
    translate.add_argument("--to", dest="tgt", required=True, metavar="LANG", help="language to translate to")
    translate.add_argument("--url", default=f"{DEFAULT_URL}/ws/session", help="an edge (%(default)s)")
    translate.add_argument("--timeout", type=float, default=35.0, metavar="S", help="seconds to wait (%(default)s)")
    translate.add_argument(
        "--stream", action="store_true", help="stream the file: the mesh finds the utterances; any length is accepted"
    )
    translate.add_argument("--timing", action="store_true", help="print how long each stage of the way took")
    translate.add_argument("--json", action="store_true", help="print each result as one JSON object")


def _run(options: argparse.Namespace) -> int:
    # Each command's module is imported only when it runs.
    command = importlib.import_module(f"linguamesh.cli.{getattr(options, 'module', options.command)}")
    return int(command.run(options))


def _exec(module: str, arguments: list[str]) -> int:
    """Replace this process by `python -m <module>`. -P: a folder of that name in the working directory is ignored."""
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])


if __name__ == "__main__":
    sys.exit(main())
