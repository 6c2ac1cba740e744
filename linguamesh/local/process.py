"""A supervised child process: start, wait for its ready line, restart with backoff after a crash, stop.

A child has its own process session, so Ctrl-C in the terminal reaches only the parent, which stops its children in
order. It ends with its parent, however that ends, so no process is left behind.
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
#: Exponential backoff: base * 2^(crashes - 1), at most cap.
RESTART_BASE_S: Final = 0.5
RESTART_CAP_S: Final = 10.0
#: Restarts are abandoned after this many crashes in a row; a run of STABLE_MS resets the count.
CRASHES_MAX: Final = 8
STABLE_MS: Final = 30_000
#: Longest ready line.
LINE_BYTES_MAX: Final = 65_536
_LOG_LINES_SHOWN: Final = 3
_FORWARDED_CODES: Final = frozenset({EXIT_CONFIG, EXIT_UNREACHABLE})


class ProcessFailed(Exception):
    """A child did not start, or crashed too often; the text has its name and the reason."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """The command of a child process."""

    kind: str
    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)


class SupervisedProcess:
    """One child process and its restarts. `notify` gets lines for the user."""

    def __init__(self, spec: ProcessSpec, log: Path, notify: Callable[[str], None]) -> None:
        self.spec = spec
        self.log = log
        self.ready: dict[str, Any] = {}  # the latest ready line
        self._notify = notify
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The process's name in the mesh."""
        return self.spec.name

    @property
    def pid(self) -> int:
        """Process id of the current run, or of the last one."""
        assert self._process is not None
        return self._process.pid

    def supervise(self) -> asyncio.Task[None]:
        """Restart it whenever it ends; the task fails with ProcessFailed once restarts are abandoned."""
        self._supervisor = asyncio.create_task(self._keep_running(), name=f"supervise {self.name}")
        return self._supervisor

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL after a timeout. Idempotent."""
        if self._supervisor:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal(process.terminate)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._wait_for_exit()
        except TimeoutError:
            self._notify(f"{self.name} (pid {process.pid}) does not stop; killing it")
            _signal(process.kill)
            await process.wait()

    async def start(self) -> None:
        """Start it and wait for its ready line; ProcessFailed if it does not become ready."""
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
            raise ProcessFailed(f"{self.name} was not ready within {READY_TIMEOUT_S:g} s; {self._log_tail()}") from None

    async def _ready_line(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if line.startswith(b"{"):
                ready: dict[str, Any] = json.loads(line)
                return ready
        code = await process.wait()
        raise ProcessFailed(
            f"{self.name} did not start: {self._log_tail()}", code if code in _FORWARDED_CODES else EXIT_FAILED
        )

    async def _wait_for_exit(self) -> int:
        """The exit code. The child's output is discarded, so that it never blocks on a full pipe."""
        process = self._process
        assert process is not None and process.stdout is not None
        while await process.stdout.read(LINE_BYTES_MAX):
            pass
        return await process.wait()

    async def _keep_running(self) -> None:
        crashes = 0
        while True:
            started_ms = now_ms()
            code = await self._wait_for_exit()
            crashes = 1 if now_ms() - started_ms > STABLE_MS else crashes + 1
            while not await self._restart(code, crashes):
                crashes += 1

    async def _restart(self, code: int, crashes: int) -> bool:
        """True if the new process is ready; ProcessFailed after too many crashes in a row."""
        if crashes > CRASHES_MAX:
            raise ProcessFailed(f"{self.name} crashed {crashes} times in a row; giving up; {self._log_tail()}")
        delay_s = restart_delay_s(crashes)
        self._notify(f"{self.name} (pid {self.pid}) ended with code {code}; starting it again in {delay_s:g} s")
        await asyncio.sleep(delay_s)
        try:
            await self.start()
        except ProcessFailed as error:
            self._notify(str(error))
            return False
        self._notify(f"{self.name} is back (pid {self.pid})")
        return True

    def _log_tail(self) -> str:
        """The last lines of its log, in one line."""
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:] if self.log.exists() else []
        return " | ".join(line.strip() for line in lines) or f"nothing in {self.log}"


def restart_delay_s(crashes: int) -> float:
    """The backoff before the next start, after that many crashes in a row."""
    return min(RESTART_CAP_S, RESTART_BASE_S * 2.0 ** (crashes - 1))


def _signal(send: Callable[[], None]) -> None:
    try:
        send()
    except ProcessLookupError:
        pass  # it has ended meanwhile
