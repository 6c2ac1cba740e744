from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from mesh import log
from mesh.config.network import LogConfig


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers, root.level = handlers, level


def configure(**settings: Any) -> None:
    log.configure(LogConfig(**{"format": "json", **settings}), "edge", "edge:a:1")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    out, err = capsys.readouterr()
    assert out == "", "stdout belongs to the ready line"
    return [json.loads(line) for line in err.splitlines()]


def test_line_has_time_event_role_and_identity(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    log.get_logger().bind(job_id="job-1").info("job_placed", node_id="n")
    (line,) = lines(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "job_placed",
        "level": "info",
        "role": "edge",
        "identity": "edge:a:1",
        "job_id": "job-1",
        "node_id": "n",
    }


def test_bound_ids_are_on_every_line_inside(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    with log.bound(session_id="s-1"):
        log.get_logger().info("inside")
    log.get_logger().info("outside")
    inside, outside = lines(capsys)
    assert inside["session_id"] == "s-1"
    assert "session_id" not in outside


def test_text_format_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    configure(format="text")
    log.get_logger().info("job_placed", node_id="n")
    err = capsys.readouterr().err
    assert "job_placed" in err and "node_id=n" in err and not err.startswith("{")


def test_auto_format_is_json_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure(format="auto")
    log.get_logger().info("event")
    assert lines(capsys)[0]["event"] == "event"


def test_lines_below_the_level_are_omitted(capsys: pytest.CaptureFixture[str]) -> None:
    configure(level="warning")
    log.get_logger().info("quiet")
    log.get_logger().warning("loud")
    assert [line["event"] for line in lines(capsys)] == ["loud"]


@pytest.mark.parametrize("field", sorted(log.FORBIDDEN))
def test_private_field_is_redacted(field: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    log.get_logger().info("event", **{field: "h-u-s-h", "nested": {"deeper": [{field.upper(): "h-u-s-h"}]}})
    assert "h-u-s-h" not in capsys.readouterr().err


def test_bytes_long_values_and_credentials_are_truncated(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    log.get_logger().info(
        "event",
        frame=b"x" * 1_000,
        note="y" * 10_000,
        url="redis://user:hunter2@host:6379/0",
        many=list(range(1_000)),
        deep=[[[[["z"]]]]],
        odd=object(),
    )
    text = capsys.readouterr().err
    assert "hunter2" not in text
    assert len(text) < 2_000
    line = json.loads(text)
    assert line["frame"] == "[1000 bytes]"
    assert line["url"] == "redis://***@host:6379/0"


def test_exception_is_one_bounded_field(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    try:
        raise ValueError("v" * 50_000)
    except ValueError:
        log.get_logger().exception("failed")
    (line,) = lines(capsys)
    assert "ValueError" in line["exception"]
    assert len(line["exception"]) < 9_000


def test_repeated_event_is_rate_limited(capsys: pytest.CaptureFixture[str]) -> None:
    configure(repeats_max=3)
    for number in range(10):
        log.get_logger().info("flood", number=number)
    log.get_logger().info("other")
    assert [line["event"] for line in lines(capsys)] == ["flood", "flood", "flood", "other"]


def test_first_line_of_next_window_counts_suppressed_lines() -> None:
    now = 0
    limit = log.RepeatLimit(2, 1_000, lambda: now)

    def say() -> Any:
        try:
            return limit(None, "info", {"event": "flood"})
        except structlog.DropEvent:
            return None

    assert [say() for _ in range(5)] == [{"event": "flood"}, {"event": "flood"}, None, None, None]
    now = 1_000
    assert say() == {"event": "flood", "suppressed": 3}
    assert say() == {"event": "flood"}
    now = 5_000
    assert say() == {"event": "flood"}


def test_rate_limit_tracks_a_bounded_number_of_events() -> None:
    limit = log.RepeatLimit(1, 1_000, lambda: 0)
    passed = 0
    for number in range(log.EVENTS_MAX + 50):
        try:
            limit(None, "info", {"event": f"event-{number}"})
            passed += 1
        except structlog.DropEvent:
            pass
    assert passed == log.EVENTS_MAX + 1


def test_library_records_use_the_same_format(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    configure()  # a second time must not double the lines
    logging.getLogger("websockets.server").info("connection open")
    logging.getLogger("asyncio").error("Task exception was never retrieved: %s", "x")
    (line,) = lines(capsys)
    assert line["event"] == "log.asyncio"
    assert line["message"].endswith("retrieved: x")
    assert line["role"] == "edge"


def test_closed_stderr_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def isatty(self) -> bool:
            return False

        def write(self, text: str) -> int:
            raise BrokenPipeError

    configure()
    monkeypatch.setattr("sys.stderr", Closed())
    log.get_logger().info("event")
