"""Serves console/ as any static file server does, and an empty page to import its modules in."""

from __future__ import annotations

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

CONSOLE = Path(__file__).resolve().parent.parent.parent / "console"
#: Beside the files of console/: those that only tests need.
OWN = {
    "/blank.html": (b'<!doctype html><title>blank</title><link rel="icon" href="data:,">', "text/html"),
    "/watching.js": (Path(__file__).with_name("watching.js").read_bytes(), "text/javascript"),
}


class _Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        own = OWN.get(self.path)
        if own is None:
            super().do_GET()
            return
        body, kind = own
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the test tells."""


class PageServer:
    """Runs in a thread of its own until the block ends."""

    def __enter__(self) -> PageServer:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(CONSOLE)))
        self._thread = threading.Thread(target=self._server.serve_forever, name="pages")
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
