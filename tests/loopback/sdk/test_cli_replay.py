from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from linguamesh.cli.main import main


class OneSelector(BaseHTTPRequestHandler):
    """An edge's HTTP API with one selector that has decided nothing yet."""

    def do_GET(self) -> None:
        is_list = self.path == "/api/v1/selectors"
        body = json.dumps({"selectors": ["selector:s1:1"]}).encode() if is_list else b""
        self.send_response(200 if is_list or self.path == "/api/v1/recording?selector=selector%3As1%3A1" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), OneSelector) as server:
        serving = Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def test_recordings_of_all_selectors_are_fetched_and_replayed(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--url", url, "--json"]) == 0
    [found] = json.loads(capfd.readouterr().out)["selectors"]
    assert (found["recording"], found["decisions"]) == ("selector:s1:1", 0)


def test_recording_in_a_file_needs_no_mesh(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert main(["replay", "--recording", str(tmp_path / "empty")]) == 0
    assert "0 decisions" in capfd.readouterr().out


def test_error_of_the_replay_is_the_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--recording", "/nowhere"]) == 2
    assert "cannot read /nowhere" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (
            "http://127.0.0.1:1",
            "error: no mesh running there: cannot connect to http://127.0.0.1:1: connection refused",
        ),
        ("http://[::1", "error: no mesh running there: http://[::1 is not an address"),
        ("127.0.0.1:5010", "error: no mesh running there: 127.0.0.1:5010 is not an address"),
    ],
)
def test_unreachable_mesh_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str], url: str, says: str) -> None:
    assert main(["replay", "--url", url]) == 69
    told = capsys.readouterr().err
    assert told.startswith(says) and told.endswith("Start one with `lingua up`.\n") and told.count("\n") == 1
