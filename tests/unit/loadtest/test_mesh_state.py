"""The state of a mesh, read from its page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from linguamesh.local.redis_server import free_port
from loadtest import mesh_state
from loadtest.mesh_state import MeshState

EDGES = [{"counts": {"nodes": 2, "in_flight": 1}}, {"counts": {"nodes": 1, "in_flight": 0}}]
PAGE = {"ok": True, "edges": EDGES, "oversold": [], "jobs": {}}


@contextmanager
def serving(page: dict[str, Any]) -> Iterator[str]:
    """An edge that answers one request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/api/v1/invariants" else 404)
            self.end_headers()
            self.wfile.write(json.dumps(page).encode())

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"ws://127.0.0.1:{server.server_port}"
        thread.join()


def test_the_counts_of_all_edges_are_added() -> None:
    assert MeshState.from_json(PAGE) == MeshState(nodes=3, in_flight=1, broken="")


def test_a_broken_invariant_is_named() -> None:
    state = MeshState.from_json({**PAGE, "ok": False, "oversold": ["node-1"]})
    assert "node-1" in state.broken


def test_the_page_is_read_from_the_first_edge() -> None:
    with serving(PAGE) as url:
        assert mesh_state.read([url, "ws://127.0.0.1:1"]) == MeshState(3, 1, "")


def test_wait_for_ends_when_the_condition_holds() -> None:
    with serving(PAGE) as url:
        assert mesh_state.wait_for([url], lambda state: state.nodes == 3, 60)


def test_an_edge_that_does_not_answer_has_no_state() -> None:
    nowhere = [f"ws://127.0.0.1:{free_port()}"]
    assert mesh_state.read(nowhere) is None
    assert not mesh_state.wait_for(nowhere, lambda _: True, 0)


def test_a_page_without_the_counts_is_no_state() -> None:
    with serving({"ok": True}) as url:
        assert mesh_state.read([url]) is None
