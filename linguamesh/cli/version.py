"""`lingua version`."""

from __future__ import annotations

import argparse
from importlib.metadata import version


def run(options: argparse.Namespace) -> int:
    """Print the version of the installed package."""
    print(version("lingua-mesh"))
    return 0
