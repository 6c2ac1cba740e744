"""The `lingua` command as a user types it: run to its end, or `lingua up` for as long as a block."""

from __future__ import annotations

import json
import selectors as io_selectors
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.support.conditions import DEADLINE_S

LINGUA = [sys.executable, "-P", "-m", "linguamesh.cli.main"]


class Up:
    """A running `lingua up --json`."""

    def __init__(self, popen: subprocess.Popen[bytes], errors: Path) -> None:
        self.popen = popen
        self._errors = errors
        self.ready: dict[str, Any] = {}
        self.tree: list[psutil.Process] = []  # all processes at the time of the ready line

    @property
    def errors(self) -> str:
        """Its stderr."""
        return self._errors.read_text()

    def wait_ready(self) -> None:
        """Read the ready line."""
        assert self.popen.stdout is not None
        with io_selectors.DefaultSelector() as selector:
            selector.register(self.popen.stdout, io_selectors.EVENT_READ)
            assert selector.select(DEADLINE_S), f"not ready in time: {self.errors}"
        line = self.popen.stdout.readline()
        assert line, f"`lingua up` ended: {self.errors}"
        self.ready = json.loads(line)
        parent = psutil.Process(self.popen.pid)
        self.tree = [parent, *parent.children(recursive=True)]

    def port(self) -> int:
        """The shared port of the edges."""
        return int(self.ready["http"].rsplit(":", 1)[1])

    def translate(self, wav: Path, *more: str) -> subprocess.CompletedProcess[str]:
        """Translate a file by `lingua translate`."""
        return lingua("translate", str(wav), "--from", "en", "--to", "es", "--url", self.ready["session_ws"], *more)

    def assert_all_gone(self) -> None:
        """No process of the tree is left."""
        _, alive = psutil.wait_procs(self.tree, timeout=DEADLINE_S)
        alive = [process for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
        assert not alive, f"left behind: {[(process.pid, process.cmdline()) for process in alive]}"


def lingua(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run([*LINGUA, *words], capture_output=True, text=True, timeout=DEADLINE_S, cwd="/", check=False)


@contextmanager
def lingua_up(directory: Path, *options: str, wait: bool = True) -> Iterator[Up]:
    """A stack on a free port, stopped at the end of the block. No process may be left."""
    errors = directory / "lingua-up.err"
    command = [*LINGUA, "up", "--json", "--port", "0", *options]
    with errors.open("wb") as stderr:
        popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, cwd="/")
    up = Up(popen, errors)
    try:
        if wait:
            up.wait_ready()
        yield up
    finally:
        try:
            popen.terminate()
            popen.wait(DEADLINE_S)
        finally:
            popen.kill()
            popen.wait(DEADLINE_S)
        assert popen.stdout is not None
        popen.stdout.close()
        up.assert_all_gone()
