"""Errors of the operator's commands: one line on stderr, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from linguamesh.errors import MeshRefused, Unreachable
from mesh.errors import ConfigError
from mesh.process import EXIT_CONFIG, EXIT_FAILED, EXIT_UNREACHABLE

#: The edge is full, its store is down or no selector replies: for the caller the mesh is unreachable.
_UNAVAILABLE: Final = (503, 504)


def exit_code_of(command: Callable[[], int]) -> int:
    """The exit code of `command`; its exception becomes one line on stderr."""
    try:
        return command()
    except ConfigError as error:
        return fail(str(error), EXIT_CONFIG)
    except Unreachable as error:
        return fail(f"no mesh running there: {error}. Start one with `lingua up`.", EXIT_UNREACHABLE)
    except MeshRefused as error:
        if error.status in _UNAVAILABLE:
            return fail(f"the mesh cannot answer now: {error}", EXIT_UNREACHABLE)
        return fail(str(error), EXIT_FAILED)


def fail(text: str, code: int) -> int:
    """Print the error on stderr; returns the code."""
    print(f"error: {text}", file=sys.stderr)
    return code
