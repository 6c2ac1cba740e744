"""The port, state directory and socket paths of a local stack. Two stacks never share any of them."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from mesh.clock import wall_ms
from mesh.errors import ConfigError

#: A Unix socket path has at most 107 bytes; the file names in the directory need the rest.
SOCKET_DIRECTORY_MAX: Final = 80
TEMPORARY_PREFIX: Final = "lingua-up-"
#: A younger directory may not be locked by its stack yet.
ABANDONED_AFTER_S: Final = 60
LOCK_NAME: Final = "lock"


class PortGuard:
    """Reserves a TCP port for the edges of one stack.

    Edges share the port by SO_REUSEPORT, so a second stack would silently join. The guard first binds exclusively,
    which fails if the port is in use, and only then allows sharing. It never listens, so it gets no connections.
    """

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            # Without this a port whose old connections are in TIME_WAIT would count as in use.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                f"port {port} on {host} cannot be used: {error.strerror}. Is another mesh running? Try --port."
            ) from None
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Release the port."""
        self._socket.close()


class StateDirectory:
    """The directory for logs, sockets and Redis: the user's own, which is kept, or a temporary one, which is not."""

    def __init__(self, wanted: str | None) -> None:
        self._temporary: list[Path] = []
        self._locks: list[IO[bytes]] = []
        self.is_kept = wanted is not None
        remove_abandoned()
        try:
            self.path = self._lock(Path(wanted).expanduser().resolve()) if wanted else self._new_temporary()
            self.sockets = self._socket_directory()
        except BaseException:
            self.close()
            raise

    def log(self, name: str) -> Path:
        """The log file of one process."""
        logs = self.path / "logs"
        logs.mkdir(exist_ok=True)
        return logs / f"{name}.log"

    def __enter__(self) -> StateDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the locks and remove temporary directories."""
        for lock in self._locks:
            lock.close()
        for path in self._temporary:
            shutil.rmtree(path, ignore_errors=True)

    def _lock(self, path: Path) -> Path:
        """`path`, created and locked until this process ends, even by a kill; ConfigError if that fails."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = (path / LOCK_NAME).open("wb")
            self._locks.append(lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{path} is used by another `lingua up`; give another --state-dir") from None
        except OSError as error:
            raise ConfigError(f"cannot use the state directory {path}: {error.strerror}") from None
        return path

    def _socket_directory(self) -> Path:
        path = self.path / "run"
        if len(str(path).encode()) > SOCKET_DIRECTORY_MAX:
            path = self._new_temporary()
        path.mkdir(exist_ok=True)
        return path

    def _new_temporary(self) -> Path:
        path = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=_temporary_parent()))
        self._temporary.append(path)
        return self._lock(path)


def remove_abandoned() -> None:
    """Remove temporary directories whose `lingua up` was killed: their lock is free."""
    for path in _temporary_parent().glob(f"{TEMPORARY_PREFIX}*"):
        try:
            if path.stat().st_uid != os.getuid() or wall_ms() / 1_000 - path.stat().st_mtime < ABANDONED_AFTER_S:
                continue
            with (path / LOCK_NAME).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # in use, not a stack's directory, or removed meanwhile


def _temporary_parent() -> Path:
    usual = Path(tempfile.gettempdir())
    too_long = len(str(usual)) > SOCKET_DIRECTORY_MAX - len(f"/{TEMPORARY_PREFIX}12345678/run")
    return Path("/tmp") if too_long else usual
