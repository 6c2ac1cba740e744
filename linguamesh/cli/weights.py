"""`lingua weights`: show or set the weights of node selection, for the whole deployment.

`show` prints TOML; its output can be edited and given to `set`.
"""

from __future__ import annotations

import argparse
import getpass
import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from linguamesh.cli.errors import exit_code_of
from linguamesh.errors import MeshRefused
from linguamesh.operator import Operator
from mesh.config.weights import Weights
from mesh.errors import ConfigError
from mesh.process import EXIT_OK


def run(options: argparse.Namespace) -> int:
    """Show or set; the exit code."""
    return exit_code_of(lambda: _set(options) if options.verb == "set" else _show(options))


def _show(options: argparse.Namespace) -> int:
    reply = Operator(options.url).query("weights")
    print(json.dumps(reply) if options.json else as_toml(reply))
    return EXIT_OK


def _set(options: argparse.Namespace) -> int:
    weights = msgspec.to_builtins(read_weights(Path(options.file)))
    operator = Operator(options.url)
    before = operator.query("weights")
    try:
        # The expected version detects a concurrent change: it is not overwritten.
        reply = operator.command("weights_set", weights=weights, expected_version=before["version"], by=_user_name())
    except MeshRefused as error:
        if error.status == 409:
            raise MeshRefused(409, "the weights were changed concurrently; see `lingua weights show`") from None
        raise
    if options.json:
        print(json.dumps({"version": reply["version"], "weights": weights}))
    else:
        print("\n".join([f"Version {reply['version']} is in force.", *_changes(before["weights"], weights)]))
    return EXIT_OK


def read_weights(path: Path) -> Weights:
    """The weights in a TOML file, at its top or in its table [weights]; a missing one has its default."""
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


def as_toml(reply: dict[str, Any]) -> str:
    """The weights in force as TOML, with their version and author in a comment."""
    by = f", set by {reply['by']}" if reply.get("by") else ""
    lines = [f"# version {reply['version']}{by}", "[weights]"]
    return "\n".join([*lines, *(f"{name} = {_toml(value)}" for name, value in reply["weights"].items())])


def _toml(value: Any) -> str:
    # JSON strings and numbers are valid TOML.
    return json.dumps(value)


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    changed = [
        f"{name}: {_toml(before.get(name))} -> {_toml(value)}"
        for name, value in after.items()
        if before.get(name) != value
    ]
    return changed or ["Nothing has changed."]


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        return ""
