"""One supervised child process: start, wait for its ready line, start again after a crash, stop.

A child is in a session of its own, so Ctrl-C in the terminal reaches only us and we choose the order of stopping;
it is told to die with us, so nothing is left behind however we end.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mesh.clock import now_ms
from mesh.process import EXIT_CONFIG, EXIT_FAILED, EXIT_UNREACHABLE, PARENT_PID

#: The first start of a selector may compile its kernel.
READY_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 5.0
RESTART_BASE_S: Final = 0.5
RESTART_CAP_S: Final = 10.0
#: Crashes in a row after which a child is given up; one that lived for STEADY_MS starts the count anew.
CRASHES_MAX: Final = 8
STEADY_MS: Final = 30_000
#: Longest ready line.
LINE_BYTES_MAX: Final = 65_536
_LOG_LINES_SHOWN: Final = 3
_PASSED_ON: Final = frozenset({EXIT_CONFIG, EXIT_UNREACHABLE})


class ProcessFailed(Exception):
    """A child did not start, or crashed too often; the text says which and why."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run."""

    kind: str
    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)


class SupervisedProcess:
    """One child process and its successors."""

    def __init__(self, spec: ProcessSpec, log: Path, say: Callable[[str], None]) -> None:
        self.spec = spec
        self.log = log
        self.ready: dict[str, Any] = {}  # the latest ready line
        self._say = say
        self._process: asyncio.subprocess.Process | None = None
        self._life: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The process's name in the mesh."""
        return self.spec.name

    @property
    def pid(self) -> int:
        """Process id of the one that runs now, or ran last."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it and wait until it is ready; ChildFailed if it does not get there."""
        await self._spawn()

    def supervise(self) -> asyncio.Task[None]:
        """From now on start it again when it ends; the task fails with ChildFailed when that is hopeless."""
        self._life = asyncio.create_task(self._restart_for_ever(), name=f"supervise {self.name}")
        return self._life

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL if that takes too long; safe to repeat."""
        if self._life:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal(process.terminate)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._ended()
        except TimeoutError:
            self._say(f"{self.name} (pid {process.pid}) does not stop; killing it")
            _signal(process.kill)
            await process.wait()

    async def _spawn(self) -> None:
        with self.log.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *self.spec.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.spec.env, PARENT_PID: str(os.getpid())},
                limit=LINE_BYTES_MAX,
            )
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                self.ready = await self._ready_line(process)
        except TimeoutError:
            _signal(process.kill)
            await process.wait()
            raise ProcessFailed(f"{self.name} was not ready within {READY_TIMEOUT_S:g} s; {self._why()}") from None

    async def _ready_line(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if line.startswith(b"{"):
                ready: dict[str, Any] = json.loads(line)
                return ready
        code = await process.wait()
        raise ProcessFailed(f"{self.name} did not start: {self._why()}", code if code in _PASSED_ON else EXIT_FAILED)

    async def _ended(self) -> int:
        """The exit code. What the child still prints is read away, so that it never blocks on a full pipe."""
        process = self._process
        assert process is not None and process.stdout is not None
        while await process.stdout.read(LINE_BYTES_MAX):
            pass
        return await process.wait()

    async def _restart_for_ever(self) -> None:
        crashes = 0
        while True:
            born_ms = now_ms()
            code = await self._ended()
            crashes = 1 if now_ms() - born_ms > STEADY_MS else crashes + 1
            while not await self._revived(code, crashes):
                crashes += 1

    async def _revived(self, code: int, crashes: int) -> bool:
        """True if a successor is ready; ChildFailed after too many crashes in a row."""
        if crashes > CRASHES_MAX:
            raise ProcessFailed(f"{self.name} crashed {crashes} times in a row; giving up; {self._why()}")
        delay_s = min(RESTART_CAP_S, RESTART_BASE_S * 2.0 ** (crashes - 1))
        self._say(f"{self.name} (pid {self.pid}) ended with code {code}; starting it again in {delay_s:g} s")
        await asyncio.sleep(delay_s)
        try:
            await self._spawn()
        except ProcessFailed as error:
            self._say(str(error))
            return False
        self._say(f"{self.name} is back (pid {self.pid})")
        return True

    def _why(self) -> str:
        """The end of its log, in one line."""
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:] if self.log.exists() else []
        return " | ".join(line.strip() for line in lines) or f"nothing in {self.log}"


def _signal(send: Callable[[], None]) -> None:
    try:
        send()
    except ProcessLookupError:
        pass  # it ended in the meantime
