"""What the operator's commands share: one line for whatever goes wrong, and the exit code that fits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from linguamesh.errors import MeshRefused, Unreachable
from mesh.errors import ConfigError
from mesh.process import EXIT_CONFIG, EXIT_FAILED, EXIT_UNREACHABLE

#: The edge is full or its store is down; no selector answers it. To the caller that is as good as no mesh.
_UNAVAILABLE: Final = (503, 504)


def answered(work: Callable[[], int]) -> int:
    """The exit code of `work`; what it raises becomes one line on stderr."""
    try:
        return work()
    except ConfigError as error:
        return fail(str(error), EXIT_CONFIG)
    except Unreachable as error:
        return fail(f"no mesh running there: {error}. Start one with `lingua up`.", EXIT_UNREACHABLE)
    except MeshRefused as error:
        if error.status in _UNAVAILABLE:
            return fail(f"the mesh cannot answer now: {error}", EXIT_UNREACHABLE)
        return fail(str(error), EXIT_FAILED)


def fail(text: str, code: int) -> int:
    """Say why on stderr; the code."""
    print(f"error: {text}", file=sys.stderr)
    return code
