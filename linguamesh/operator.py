"""A client for operators of a running mesh: queries by HTTP, commands by the WebSocket /ws/control.

Blocking, because a command has nothing else to do. Knows no query by name; cli/ does.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlencode, urlsplit, urlunsplit

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import connect

from linguamesh.errors import MeshRefused, Unreachable
from mesh.loopback import is_loopback

#: An edge calls selectors before it replies, so this is longer than the edge's own timeout.
TIMEOUT_S: Final = 10.0
#: Bound on a reply; a selector's recording is the largest.
REPLY_BYTES_MAX: Final = 64 * 1024 * 1024

CONTROL_PATH: Final = "/ws/control"
_HTTP: Final = {"ws": "http", "wss": "https", "http": "http", "https": "https"}


class Operator:
    """Queries and commands of one mesh. `url`: any of its edges, as ws:// or http://; its path is ignored."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        parts = _address(url)
        scheme = _HTTP[parts.scheme]
        self.base = urlunsplit((scheme, parts.netloc, "", "", ""))
        self._control = urlunsplit((scheme.replace("http", "ws"), parts.netloc, CONTROL_PATH, "", ""))
        self._timeout_s = timeout_s
        self._is_loopback = is_loopback(parts.hostname)
        # A proxy from the environment cannot reach this machine's loopback.
        self._open = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if self._is_loopback else [])).open

    def query(self, *path: str, **params: str) -> Any:
        """The JSON at /api/v1/<path>; MeshRefused for any status but 200, Unreachable without a reply."""
        return _decoded(self.fetch(*path, **params), self.base)

    def fetch(self, *path: str, **params: str) -> bytes:
        """The same as bytes."""
        address = f"{self.base}/api/v1/{'/'.join(quote(part, safe='') for part in path)}"
        if params:
            address += f"?{urlencode(params)}"
        try:
            with self._open(address, timeout=self._timeout_s) as response:
                body: bytes = response.read(REPLY_BYTES_MAX)
                return body
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error.code, error.read(REPLY_BYTES_MAX)) from None
        except urllib.error.URLError as error:
            raise Unreachable(f"cannot connect to {self.base}: {_reason(error.reason)}") from None
        except (OSError, HTTPException) as error:
            raise Unreachable(f"no answer from {self.base}: {_reason(error)}") from None

    def command(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Execute a command; its result. MeshRefused if it is refused, Unreachable without a reply."""
        try:
            with connect(
                self._control,
                open_timeout=self._timeout_s,
                close_timeout=1.0,
                compression=None,
                proxy=None if self._is_loopback else True,
            ) as socket:
                socket.send(json.dumps({"type": kind, **fields}))
                return _result(_decoded(socket.recv(self._timeout_s), self._control))
        except TimeoutError:
            raise Unreachable(f"no answer from {self._control} within {self._timeout_s:g} s") from None
        except ConnectionClosed as error:
            raise Unreachable(f"{self._control} closed the connection: {error}") from None
        except (InvalidURI, InvalidHandshake) as error:
            raise Unreachable(f"{self._control} accepts no commands: {error}") from None
        except OSError as error:
            raise Unreachable(f"cannot connect to {self._control}: {_reason(error)}") from None


def _address(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in _HTTP and bool(parts.hostname) and parts.port != 0  # an invalid port raises
    except ValueError:
        is_address = False
    if not is_address:
        raise Unreachable(f"{url} is not an address of a mesh; the form is http://127.0.0.1:5010")
    return parts


def _result(reply: Any) -> dict[str, Any]:
    if not isinstance(reply, dict):
        raise Unreachable(f"not a reply of a mesh: {str(reply)[:100]}")
    if reply.get("type") != "done":
        raise MeshRefused(int(reply.get("status", 500)), str(reply.get("message") or reply.get("code") or "error"))
    return dict(reply.get("answer") or {})


def _refusal(status: int, body: bytes) -> MeshRefused:
    """A reply that is not 200, with its text: JSON with a message, or a line of text."""
    text = body.decode(errors="replace").strip()
    try:
        content = json.loads(text)
    except ValueError:
        content = text
    if isinstance(content, dict):
        content = content.get("message") or content.get("error") or content.get("code") or ""
    return MeshRefused(status, str(content).partition("\n")[0])


def _decoded(body: bytes | str, address: str) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise Unreachable(f"{address} is not a mesh: its reply is not JSON") from None


def _reason(error: object) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "it took too long"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
