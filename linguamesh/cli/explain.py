"""`lingua explain`: why a job was placed on its node, as text."""

from __future__ import annotations

import argparse
import json

from linguamesh.cli.errors import exit_code_of, fail
from linguamesh.errors import MeshRefused
from linguamesh.operator import Operator
from mesh.process import EXIT_FAILED, EXIT_OK


def run(options: argparse.Namespace) -> int:
    """Print the decision on one job; the exit code."""
    return exit_code_of(lambda: _explain(options))


def _explain(options: argparse.Namespace) -> int:
    try:
        record = Operator(options.url).query("explain", options.job_id)
    except MeshRefused as error:
        if error.status != 404:
            raise
        return fail(
            f"no selector has a decision on {options.job_id}; selectors keep the most recent ones, in memory "
            "(selector.decisions_kept)",
            EXIT_FAILED,
        )
    print(json.dumps(record) if options.json else "\n".join(record["words"]))
    return EXIT_OK
