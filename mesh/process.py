"""How a process of the mesh lives: dies with its parent, says when it is ready, stops on a signal, exits with a code.

Knows nothing of what the process does. Exit codes: 0 stopped as asked, 1 a bug of ours, 2 wrong configuration or usage,
69 something it needs (Redis, a broker, the mesh) cannot be reached; 128 + signal after a second signal.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvloop

from mesh.errors import ConfigError, StoreError

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2
#: EX_UNAVAILABLE of sysexits.h.
EXIT_UNREACHABLE: Final = 69

#: Environment variable by which a parent tells its pid to a child that shall die with it.
PARENT_PID: Final = "MESH_PARENT_PID"

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> None:
    """Make the kernel kill this process (SIGKILL) when its parent dies; does nothing off Linux.

    A parent that is already dead sends no signal, so that case is looked for afterwards. Only the parent knows which
    pid it had when it started us: it says so in MESH_PARENT_PID (not a setting, hence not named LINGUA_).
    """
    if sys.platform != "linux":
        return
    parent = int(os.environ.pop(PARENT_PID, "0")) or os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(EXIT_FAILED)


def announce_ready(kind: str, name: str, identity: str, **more: Any) -> None:
    """Print the one JSON line on stdout that says this process serves now."""
    # All that was made so far lives as long as the process: the garbage collector need never look at it again.
    gc.collect()
    gc.freeze()
    line = {"ready": True, "kind": kind, "id": name, "identity": identity, "pid": os.getpid(), **more}
    print(json.dumps(line), flush=True)


def run(
    main: Callable[[asyncio.Event], Awaitable[None]],
    *,
    unreachable: tuple[type[Exception], ...] = (),
) -> int:
    """Run `main` on uvloop and return the exit code. The event is set on SIGTERM or SIGINT; a second one quits at once.

    `unreachable` names more errors, besides StoreError, that mean that a dependency cannot be reached.
    """
    cannot_reach: tuple[type[Exception], ...] = (StoreError, *unreachable)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_with_signals(main))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return EXIT_CONFIG
    except cannot_reach as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return EXIT_UNREACHABLE
    return EXIT_OK


async def _with_signals(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stop.is_set():
            # Asked twice: whatever still drains is not worth waiting for.
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    await main(stop)
