"""Compile cache of the kernel: finds a writable directory, and compiles before the first request.

numba caches beside the source. Where that is read-only (a system package, a container) a private directory of the user
is used; if nothing can be written the kernel is compiled at each start.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Final

from mesh.frames import Dispatch

CACHE_DIR: Final = "NUMBA_CACHE_DIR"
#: How long a selector waits for another one that compiles, before it compiles itself.
LOCK_WAIT_S: Final = 30.0
LOCK_POLL_S: Final = 0.05


def find_cache_dir(environ: MutableMapping[str, str], beside: Path) -> Path:
    """Point numba to a directory it can write: its own choice beside the source, the user's, or a private one."""
    given = environ.get(CACHE_DIR)
    if given:
        if _can_write(Path(given)):
            return Path(given)
    elif _can_write(beside / "__pycache__"):
        return beside / "__pycache__"
    chosen = _private_dir()
    environ[CACHE_DIR] = str(chosen)
    return chosen


def _can_write(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def _private_dir() -> Path:
    """A directory under the temporary one that other users cannot write: cached code is executed."""
    shared = Path(tempfile.gettempdir()) / f"lingua-mesh-numba-{os.getuid()}"
    try:
        shared.mkdir(mode=0o700, exist_ok=True)
        found = shared.lstat()
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
        if is_ours and _can_write(shared):
            return shared
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="lingua-mesh-numba-"))


@contextlib.contextmanager
def alone(directory: Path, wait_s: float = LOCK_WAIT_S) -> Iterator[bool]:
    """Hold the directory's lock, so that of several selectors that start together one compiles and the others read.

    False after the timeout: compiling twice is slow, not wrong. The operating system releases the lock when its
    holder dies.
    """
    try:
        lock = (directory / "compiling.lock").open("w")
    except OSError:
        yield False
        return
    with lock:
        yield _lock(lock.fileno(), wait_s)


def _lock(descriptor: int, wait_s: float) -> bool:
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(LOCK_POLL_S)
        else:
            return True


def warm_up() -> None:
    """Run the kernel once, with the types of real requests."""
    # Imported here and not above: numba reads its settings from the environment when it is imported.
    from mesh.config.scheduler import PoolsConfig
    from mesh.config.weights import Weights
    from selector.core.job_rows import job_rows
    from selector.core.kernel import Rules, choose, examine
    from selector.core.node_table import NodeTable
    from selector.core.pool_index import index_of
    from selector.core.pools import PoolPlan

    rules = Rules.of(
        Weights(),
        now_ms=0,
        heartbeat_timeout_ms=1,
        heartbeat_interval_ms=1,
        running_fresh_ms=1,
        resource_threshold_percent=100.0,
        reconnect_grace_ms=1,
        compared_max=1,
    )
    table = NodeTable(nodes_max=1)
    # An empty table would return before the compiled part: pretend that there is a node.
    index = index_of(table.columns, 1)
    rows = job_rows([_no_job()], table, PoolPlan(PoolsConfig()))
    choose(table.columns, index, rows, table.speeds.prior(), rules, 1)
    examine(table.columns, index, rows, table.speeds.prior(), rules)


def _no_job() -> Dispatch:
    return Dispatch(
        request_id="",
        attempt=1,
        session_id="",
        utterance_index=0,
        edge="",
        tenant_id="",
        src_lang="",
        tgt_lang="",
        lang_a="",
        lang_b="",
        services=[],
        public=True,
        audio_ms=0,
        deadline_ms=0,
        trace_id="",
    )
