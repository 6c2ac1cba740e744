"""`lingua pair`: a pairing code, by which a client can select a node."""

from __future__ import annotations

import argparse
import json

from linguamesh.cli.errors import exit_code_of
from linguamesh.errors import MeshRefused
from linguamesh.operator import Operator
from mesh.process import EXIT_OK


def run(options: argparse.Namespace) -> int:
    """Print a code; the exit code."""
    return exit_code_of(lambda: _pair(options))


def _pair(options: argparse.Namespace) -> int:
    try:
        reply = Operator(options.url).command("pair", node_id=options.node_id)
    except MeshRefused as error:
        if error.status == 404:
            raise MeshRefused(404, f"the mesh knows no node {options.node_id}") from None
        raise
    print(json.dumps(reply) if options.json else _as_text(reply))
    return EXIT_OK


def _as_text(reply: dict[str, object]) -> str:
    minutes = int(str(reply["expires_in_ms"])) / 60_000
    return f"{reply['code']}\nFor {reply['node_id']}, one client, within {minutes:.3g} minutes."
