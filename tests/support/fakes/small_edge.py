"""A small server that replies to an operator as an edge would, with the replies of a test."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve


@dataclass
class SmallEdge:
    """`pages`: path -> replies, each used once and the last one repeatedly. `answers`: one reply per command."""

    url: str = ""
    pages: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    answers: list[dict[str, Any]] = field(default_factory=list)
    commands: list[dict[str, Any]] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    def admit(self, connection: ServerConnection, request: Request) -> Response | None:
        self.requested.append(request.path)
        if request.path == "/ws/control":
            return None
        answers = self.pages.get(request.path, [(404, {"code": "NOT_FOUND", "message": "nothing here"})])
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        return connection.respond(HTTPStatus(status), body if isinstance(body, str) else json.dumps(body))

    def obey(self, connection: ServerConnection) -> None:
        self.commands.append(json.loads(connection.recv()))
        if self.answers:
            connection.send(json.dumps(self.answers.pop(0)))


@contextmanager
def small_edge() -> Iterator[SmallEdge]:
    """A running one on a free port of loopback."""
    edge = SmallEdge()
    with serve(edge.obey, "127.0.0.1", 0, process_request=edge.admit) as server:
        edge.url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield edge
        finally:
            server.shutdown()
            thread.join()
