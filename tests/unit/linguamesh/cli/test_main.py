"""The command line: defaults, and the examples that the README shows."""

from __future__ import annotations

import re
from pathlib import Path

from linguamesh.cli.main import build_parser
from linguamesh.local.stack import StackOptions

ROOT = Path(__file__).resolve().parents[4]
README = (ROOT / "README.md").read_text()


def test_defaults_of_the_command_equal_those_of_the_stack() -> None:
    options = build_parser().parse_args(["up"])
    defaults = StackOptions()
    for name in ("port", "edges", "brokers", "selectors", "nodes", "redis", "state_dir", "json"):
        assert getattr(options, name) == getattr(defaults, name)


def test_readme_shows_the_examples() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    for block, name in zip(blocks, ("hello_node.py", "hello_session.py", "stream_session.py"), strict=True):
        docstring, _, code = (ROOT / "examples" / name).read_text().partition('"""\n\n')
        assert docstring.startswith('"""')
        assert block == code
