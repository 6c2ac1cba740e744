"""`lingua explain`: why a job went to its node, in words."""

from __future__ import annotations

import argparse
import json

from linguamesh.cli.errors import answered, fail
from linguamesh.errors import MeshRefused
from linguamesh.operator import Operator
from mesh.process import EXIT_FAILED, EXIT_OK


def run(options: argparse.Namespace) -> int:
    """Print the decision on one job; the exit code."""
    return answered(lambda: _explain(options))


def _explain(options: argparse.Namespace) -> int:
    try:
        record = Operator(options.url).ask("explain", options.job_id)
    except MeshRefused as error:
        if error.status != 404:
            raise
        return fail(
            f"nobody remembers a decision on {options.job_id}; selectors keep the latest ones and forget them when "
            "they end (selector.decisions_kept)",
            EXIT_FAILED,
        )
    print(json.dumps(record) if options.json else "\n".join(record["words"]))
    return EXIT_OK
