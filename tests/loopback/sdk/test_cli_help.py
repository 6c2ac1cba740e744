"""`lingua --help` in a process of its own: imports, and the commands and options that the README lists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from linguamesh.cli.main import build_parser
from tests.support.conditions import DEADLINE_S

README = (Path(__file__).resolve().parents[3] / "README.md").read_text()


def test_help_does_not_import_heavy_modules() -> None:
    code = (
        "import sys; from linguamesh.cli.main import build_parser; build_parser().format_help();"
        "print([m for m in ('numpy', 'numba', 'zmq', 'redis', 'websockets', 'msgspec', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stdout.strip() == "[]"


def test_commands_and_options_of_the_readme_exist() -> None:
    lines = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
    commands = [line.removeprefix(".venv/bin/") for line in lines if "lingua" in line]
    assert commands
    for command in commands:
        build_parser().parse_args(shlex.split(command)[1:])
    table = re.search(r"## The command\n(.*?)\n## ", README, re.DOTALL)
    assert table is not None
    helps = {
        name: subprocess.run(
            [sys.executable, "-m", "linguamesh.cli.main", *name.split(), "--help"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in ("up", "translate", "node", "node drain", "explain", "weights")
    }
    for name, text in helps.items():
        row = next(line for line in table[1].splitlines() if re.match(rf"\| `lingua {name}[` ](?!drain)", line))
        listed = set(re.findall(r"`(--[a-z-]+)", row))
        real = set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)) - {"--simulated", "--die-with-parent"}
        assert listed == real
