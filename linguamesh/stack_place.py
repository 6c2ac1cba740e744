"""Where a local stack lives: its port, its directory, its socket paths. Two stacks never share any of them."""

from __future__ import annotations

import fcntl
import shutil
import socket
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from mesh.errors import ConfigError

#: A path of a Unix socket may have 107 bytes; the names that go into the directory need the rest.
SOCKET_DIRECTORY_MAX: Final = 80


class PortGuard:
    """Holds a TCP port for the edges of one stack and nobody else.

    Edges share the port by SO_REUSEPORT, so a second stack would silently join in. The guard binds alone first, which
    fails if anybody is there, and only then allows sharing. It never listens, so it gets no connections.
    """

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            # Without this a port whose old connections are in TIME_WAIT would look taken.
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
        """Let the port go."""
        self._socket.close()


class StateDirectory:
    """The directory for logs, sockets and Redis: the user's own, which stays, or a temporary one, which does not."""

    def __init__(self, wanted: str | None) -> None:
        self._temporary: list[Path] = []
        self._lock: IO[bytes] | None = None
        self.is_kept = wanted is not None
        self.path = Path(wanted).expanduser().resolve() if wanted else self._new_temporary()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / "lock").open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise ConfigError(f"{self.path} is used by another `lingua up`; give another --state-dir") from None
        except OSError as error:
            self.close()
            raise ConfigError(f"cannot use the state directory {self.path}: {error.strerror}") from None
        self.sockets = self._socket_directory()

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
        """Let it go, and remove what is temporary."""
        if self._lock:
            self._lock.close()
        for path in self._temporary:
            shutil.rmtree(path, ignore_errors=True)

    def _socket_directory(self) -> Path:
        path = self.path / "run"
        if len(str(path).encode()) > SOCKET_DIRECTORY_MAX:
            path = self._new_temporary()
        path.mkdir(exist_ok=True)
        return path

    def _new_temporary(self) -> Path:
        too_long = len(tempfile.gettempdir()) > SOCKET_DIRECTORY_MAX - len("/lingua-12345678/run")
        path = Path(tempfile.mkdtemp(prefix="lingua-", dir="/tmp" if too_long else None))
        self._temporary.append(path)
        return path
