"""`lingua up`: start a whole mesh on this machine."""

from __future__ import annotations

import argparse
import sys

from linguamesh.local.process import ProcessFailed
from linguamesh.local.stack import Stack, StackOptions
from mesh.errors import ConfigError
from mesh.process import EXIT_CONFIG
from mesh.process import run as run_process


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C; the exit code."""
    names = ("port", "edges", "brokers", "selectors", "nodes", "redis", "state_dir", "json")
    try:
        stack = Stack(StackOptions(**{name: getattr(options, name) for name in names}))
        return run_process(stack.run)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except ProcessFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
