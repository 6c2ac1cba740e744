"""A static file server for console/, with an empty page that can import its modules."""

from __future__ import annotations

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

CONSOLE = Path(__file__).resolve().parent.parent.parent / "console"
#: Files that only tests need, beside those of console/.
TEST_FILES = {
    "/blank.html": (b'<!doctype html><title>blank</title><link rel="icon" href="data:,">', "text/html"),
    "/session-recorder.js": (Path(__file__).with_name("session-recorder.js").read_bytes(), "text/javascript"),
}


class _Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        file = TEST_FILES.get(self.path)
        if file is None:
            super().do_GET()
            return
        body, kind = file
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


class PageServer:
    """Runs in its own thread until the block ends."""

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
