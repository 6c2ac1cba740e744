"""Lifecycle of a process of the mesh: death with its parent, CPU scheduling, ready line, signals, exit codes.

Must not know what the process does. Exit codes: 0 stopped by a signal, 1 a bug of ours, 2 invalid configuration or
usage, 69 a dependency (Redis, a broker, the mesh) cannot be reached; 128 + signal after a second signal.
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

from mesh.config.network import ProcessConfig
from mesh.errors import ConfigError, StoreError
from mesh.log import get_logger

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2
#: EX_UNAVAILABLE of sysexits.h.
EXIT_UNREACHABLE: Final = 69

#: Environment variable with the pid of the parent, for a child that must die with it.
PARENT_PID: Final = "MESH_PARENT_PID"

_PR_SET_PDEATHSIG: Final = 1
#: Allocations, less deallocations, between two runs of the youngest generation; Python's own is 700.
_GC_THRESHOLD: Final = 50_000


def die_with_parent() -> None:
    """Make the kernel kill this process (SIGKILL) when its parent dies; does nothing off Linux.

    A parent that died before the call sends no signal, so its pid is checked afterwards. The parent passes it in
    MESH_PARENT_PID (no setting, hence not named LINGUA_).
    """
    if sys.platform != "linux":
        return
    parent = int(os.environ.pop(PARENT_PID, "0")) or os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(EXIT_FAILED)


def set_scheduling(config: ProcessConfig) -> None:
    """Apply `process.scheduling`; call it before any thread starts, because threads inherit it. Linux only.

    A host that forbids the call (a seccomp filter) costs throughput only: it is logged.
    """
    if sys.platform != "linux" or config.scheduling == "normal":
        return
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError as error:
        get_logger().warning("scheduling_not_set", policy=config.scheduling, error=error.strerror)


def announce_ready(kind: str, name: str, identity: str, **more: Any) -> None:
    """Print the ready line: one JSON object on stdout, when the process serves."""
    # All objects so far live as long as the process: exclude them from garbage collection. The others are freed by
    # their reference counts; cycles are rare, so the collector may look for them about 70 times less often.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 20)
    line = {"ready": True, "kind": kind, "id": name, "identity": identity, "pid": os.getpid(), **more}
    print(json.dumps(line), flush=True)


def run(
    main: Callable[[asyncio.Event], Awaitable[None]],
    *,
    unreachable: tuple[type[Exception], ...] = (),
) -> int:
    """Run `main` on uvloop and return the exit code. SIGTERM or SIGINT sets its event; a second signal exits at once.

    `unreachable`: further errors, besides StoreError, that mean that a dependency cannot be reached.
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
            # The second signal: do not wait for the drain.
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    await main(stop)
