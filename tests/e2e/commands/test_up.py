"""`lingua up` as a user starts it: ready line, translation, crashes, and nothing left behind however it ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import wave
from pathlib import Path
from typing import Any

import psutil
import pytest

from linguamesh.node import Job, Node, Result
from linguamesh.session import Session
from tests.support.conditions import DEADLINE_S, until, wait_until
from tests.support.processes.lingua_command import lingua, lingua_up

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    path = tmp_path / "speech.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(2 * 16_000))
    return path


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        text: str = answer.read().decode()
        return text


def policies(pid: int) -> set[int]:
    """The scheduling policies of all threads of a process."""
    return {os.sched_getscheduler(int(thread)) for thread in os.listdir(f"/proc/{pid}/task")}


def test_it_serves_translates_and_ctrl_c_leaves_nothing(tmp_path: Path, wav: Path) -> None:
    with lingua_up(tmp_path) as up:
        ready, port = up.ready, up.port()
        assert ready["ready"] is True
        assert ready["session_ws"] == f"ws://127.0.0.1:{port}/ws/session"
        assert ready["node_ws"] == f"ws://127.0.0.1:{port}/ws/node"
        assert ready["redis"].startswith("redis://127.0.0.1:")
        assert [edge["id"] for edge in ready["edges"]] == ["edge-0", "edge-1"]
        assert [broker["id"] for broker in ready["brokers"]] == ["broker-0"]
        assert [selector["id"] for selector in ready["selectors"]] == ["selector-0", "selector-1"]
        assert len(ready["nodes"]) == 4
        assert len({edge["url"] for edge in ready["edges"]} | {ready["http"]}) == 3
        pids = {entry["pid"] for kind in ("edges", "brokers", "selectors", "nodes") for entry in ready[kind]}
        assert pids < {process.pid for process in up.tree}
        served = [entry["pid"] for kind in ("edges", "brokers", "selectors") for entry in ready[kind]]
        assert {policy for pid in served for policy in policies(pid)} == {os.SCHED_BATCH}, "ZeroMQ's threads too"
        for url in [ready["http"], *(edge["url"] for edge in ready["edges"])]:
            assert get(f"{url}/health")
            assert "# HELP" in get(f"{url}/metrics")

        done = up.translate(wav, "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["text_asr"] == "[simulated] 1.0 s of en speech"
        assert result["text_translated"] == "[simulated] 1.0 s of en speech, in es"
        assert result["tts_bytes"] > 0
        assert result["total_ms"] >= result["service_timings"]["total_ms"] > 0

        second = lingua("up", "--port", str(port))
        assert second.returncode == 2
        assert re.fullmatch(rf"error: port {port} on 127\.0\.0\.1 cannot be used: [^\n]+\n", second.stderr)

        state_dir = Path(ready["state_dir"])
        up.popen.send_signal(signal.SIGINT)
        assert up.popen.wait(DEADLINE_S) == 0
        up.assert_all_gone()
        assert not state_dir.exists()
        assert up.errors == ""


def test_kill_9_leaves_nothing(tmp_path: Path) -> None:
    with lingua_up(tmp_path, "--state-dir", str(tmp_path / "state")) as up:
        up.popen.kill()
        up.popen.wait(DEADLINE_S)
        up.assert_all_gone()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_it_starts_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with lingua_up(tmp_path, "--state-dir", str(tmp_path / "state"), wait=False) as up:
        parent = psutil.Process(up.popen.pid)
        wait_until(lambda: len(parent.children(recursive=True)) >= 3, lambda: up.errors)
        up.tree = parent.children(recursive=True)
        up.popen.send_signal(number)
        assert up.popen.wait(DEADLINE_S) == (-number if number == signal.SIGKILL else 0)
        up.assert_all_gone()
        assert up.errors == ""


def test_crashed_processes_are_restarted_and_reported(tmp_path: Path, wav: Path) -> None:
    with lingua_up(tmp_path, "--edges", "1", "--selectors", "1", "--nodes", "1") as up:
        for kind in ("edges", "selectors", "brokers"):
            os.kill(up.ready[kind][0]["pid"], signal.SIGKILL)
        for name in ("edge-0", "selector-0", "broker-0"):
            wait_until(lambda name=name: f"lingua: {name} is back" in up.errors, lambda: up.errors)
        parent = psutil.Process(up.popen.pid)
        up.tree = [parent, *parent.children(recursive=True)]
        wait_until(lambda: up.translate(wav).returncode == 0, lambda: up.translate(wav).stderr)


async def test_a_result_outlives_the_edge_of_its_node(tmp_path: Path) -> None:
    """kill -9 of the edge that holds the node's socket, in mid-job: the SDK reconnects to another and delivers."""
    started, go = asyncio.Event(), asyncio.Event()

    async def handler(job: Job) -> Result:
        started.set()
        await go.wait()
        return Result(text_asr="heard", text_translated="oído")

    with lingua_up(tmp_path, "--nodes", "0", "--selectors", "1") as up:
        async with Node(up.ready["node_ws"], handler, asr=["en"], semantic=["es"]) as node:
            ours = {connection.laddr.port for connection in psutil.Process().net_connections("tcp4")}
            owner, other = sorted(up.ready["edges"], key=lambda edge: not _talks_to(edge["pid"], ours))
            async with Session(other["url"].replace("http", "ws"), src="en", tgt="es") as session:
                translating = asyncio.create_task(session.translate(bytes(3_200), timeout=DEADLINE_S))
                await asyncio.wait_for(started.wait(), DEADLINE_S)
                os.kill(owner["pid"], signal.SIGKILL)
                await until(lambda: not node.is_registered, "the node has lost its edge")
                go.set()
                assert (await translating).text_translated == "oído"


def _talks_to(pid: int, ports: set[int]) -> bool:
    return any(c.raddr and c.raddr.port in ports for c in psutil.Process(pid).net_connections("tcp4"))


def test_a_state_directory_stays_and_belongs_to_one(tmp_path: Path, wav: Path) -> None:
    state = tmp_path / ("long-name-" * 12)
    options = ("--state-dir", str(state), "--edges", "1", "--selectors", "1", "--nodes", "1")
    with lingua_up(tmp_path, *options) as up:
        second = lingua("up", "--port", "0", "--state-dir", str(state))
        assert (second.returncode, second.stderr.count("\n")) == (2, 1)
        assert "is used by another" in second.stderr
        up.popen.terminate()
        assert up.popen.wait(DEADLINE_S) == 0
    assert {path.name for path in (state / "logs").iterdir()} >= {"edge-0.log", "selector-0.log", "broker-0.log"}
    with lingua_up(tmp_path, *options) as up:  # the records of the first run are still there, and do no harm
        done = up.translate(wav)
        assert done.returncode == 0, done.stderr


def test_it_runs_on_a_cluster(tmp_path: Path, wav: Path) -> None:
    with lingua_up(tmp_path, "--redis", "cluster") as up:
        done = up.translate(wav)
        assert done.returncode == 0, done.stderr
        assert "[simulated] 1.0 s of en speech, in es" in done.stdout
        up.popen.send_signal(signal.SIGINT)
        assert up.popen.wait(DEADLINE_S) == 0


def test_it_uses_a_given_redis(tmp_path: Path, wav: Path, redis_server: Any) -> None:
    with lingua_up(tmp_path, "--redis", redis_server.url, "--edges", "1", "--selectors", "1", "--nodes", "1") as up:
        assert up.ready["redis"] == redis_server.url
        assert up.translate(wav).returncode == 0
        up.popen.send_signal(signal.SIGINT)
        assert up.popen.wait(DEADLINE_S) == 0


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (("--redis", "redis://127.0.0.1:1/0"), 69, "did not start: error: "),
        (("--redis", "postgres://x"), 2, "--redis is "),
        (("--edges", "0"), 2, "--edges is 1 to "),
        (("--state-dir", "/dev/null"), 2, "cannot use the state directory"),
    ],
)
def test_what_cannot_work_is_one_line_and_a_code(options: tuple[str, ...], code: int, text: str) -> None:
    done = lingua("up", "--port", "0", *options)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("error: ")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd="/", check=False)


def test_the_readme_s_node_and_client_work_together(tmp_path: Path) -> None:
    """The blocks as they stand, but for the port: the README's node is the only one of the mesh."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with lingua_up(tmp_path, "--nodes", "0", "--edges", "1", "--selectors", "1") as up:
        node_code, session_code, stream_code = (block.replace(":5010", f":{up.port()}") for block in blocks)
        node = subprocess.Popen([sys.executable, "-c", node_code], cwd="/")
        try:
            done = run_python(session_code)
            assert (done.stdout, done.returncode) == ("hola\n", 0), done.stderr
            with wave.open(str(tmp_path / "second.wav"), "wb") as file:
                file.setparams((1, 2, 16_000, 0, "NONE", ""))
                file.writeframes(bytes(32_000))
            done = run_python(stream_code, str(tmp_path / "second.wav"))
            assert (done.stdout, done.returncode) == ("0 hola\n", 0), done.stderr
        finally:
            node.kill()
            node.wait(DEADLINE_S)
