"""`lingua weights`: the prices by which nodes are compared, as they are in force, and how to put others in force.

`show` prints TOML, so what it prints can be changed and given to `set`.
"""

from __future__ import annotations

import argparse
import getpass
import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from linguamesh.cli.errors import answered
from linguamesh.errors import MeshRefused
from linguamesh.operator import Operator
from mesh.config.weights import Weights
from mesh.errors import ConfigError
from mesh.process import EXIT_OK


def run(options: argparse.Namespace) -> int:
    """Show or set; the exit code."""
    return answered(lambda: _set(options) if options.verb == "set" else _show(options))


def _show(options: argparse.Namespace) -> int:
    answer = Operator(options.url).ask("weights")
    print(json.dumps(answer) if options.json else as_toml(answer))
    return EXIT_OK


def _set(options: argparse.Namespace) -> int:
    wanted = msgspec.to_builtins(read_weights(Path(options.file)))
    operator = Operator(options.url)
    before = operator.ask("weights")
    try:
        # Whoever else sets weights at this moment is not overwritten unseen.
        answer = operator.command("weights_set", weights=wanted, expected_version=before["version"], by=_who())
    except MeshRefused as error:
        if error.status == 409:
            raise MeshRefused(409, "somebody else set weights just now; look with `lingua weights show`") from None
        raise
    if options.json:
        print(json.dumps({"version": answer["version"], "weights": wanted}))
    else:
        print("\n".join([f"Version {answer['version']} is in force.", *_changes(before["weights"], wanted)]))
    return EXIT_OK


def read_weights(path: Path) -> Weights:
    """The weights in a TOML file, at its top or in its table [weights]; what it leaves out has its default."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    try:
        return msgspec.convert(tree.get("weights", tree), Weights)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from None


def as_toml(answer: dict[str, Any]) -> str:
    """The weights in force as a file, with where they come from in a comment."""
    by = f", set by {answer['by']}" if answer.get("by") else ""
    lines = [f"# version {answer['version']}{by}", "[weights]"]
    return "\n".join([*lines, *(f"{name} = {_toml(value)}" for name, value in answer["weights"].items())])


def _toml(value: Any) -> str:
    # JSON's strings and numbers are TOML's as well.
    return json.dumps(value)


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    changed = [
        f"{name}: {_toml(before.get(name))} -> {_toml(value)}"
        for name, value in after.items()
        if before.get(name) != value
    ]
    return changed or ["Nothing has changed."]


def _who() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        return ""
