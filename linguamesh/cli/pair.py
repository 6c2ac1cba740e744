"""`lingua pair`: a code by which a client can choose a node."""

from __future__ import annotations

import argparse
import json

from linguamesh.cli.errors import answered
from linguamesh.errors import MeshRefused
from linguamesh.operator import Operator
from mesh.process import EXIT_OK


def run(options: argparse.Namespace) -> int:
    """Print a code; the exit code."""
    return answered(lambda: _pair(options))


def _pair(options: argparse.Namespace) -> int:
    try:
        answer = Operator(options.url).command("pair", node_id=options.node_id)
    except MeshRefused as error:
        if error.status == 404:
            raise MeshRefused(404, f"the mesh knows no node {options.node_id}") from None
        raise
    print(json.dumps(answer) if options.json else _told(answer))
    return EXIT_OK


def _told(answer: dict[str, object]) -> str:
    minutes = int(str(answer["expires_in_ms"])) / 60_000
    return f"{answer['code']}\nFor {answer['node_id']}, one client, within {minutes:.3g} minutes."
