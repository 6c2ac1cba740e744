"""`lingua replay`: fetches the recordings of all selectors and runs `python -m selector.operators.replay` on them."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import quote

from linguamesh.cli.errors import exit_code_of
from linguamesh.operator import Operator

MODULE: Final = "selector.operators.replay"
#: A selector compresses its whole recording before it replies.
TIMEOUT_S: Final = 30.0


def run(options: argparse.Namespace) -> int:
    """Print the replay of one recording, or of all; the exit code."""
    return exit_code_of(lambda: _replay(options))


def _replay(options: argparse.Namespace) -> int:
    arguments = [*(["--weights", options.weights] if options.weights else []), *(["--json"] if options.json else [])]
    if options.recording:
        return _decide([*arguments, "--recording", options.recording])
    operator = Operator(options.url, timeout_s=TIMEOUT_S)
    with TemporaryDirectory(prefix="lingua-replay-") as directory:
        files = []
        for selector in operator.query("selectors").get("selectors", []):
            file = Path(directory, quote(selector, safe=":"))  # a name from the network must stay in there
            file.write_bytes(operator.fetch("recording", selector=selector))
            files.append(str(file))
        return _decide([*arguments, *files])


def _decide(arguments: list[str]) -> int:
    # -P: a folder of that name in the working directory must not win.
    return subprocess.run([sys.executable, "-P", "-m", MODULE, *arguments], check=False).returncode
