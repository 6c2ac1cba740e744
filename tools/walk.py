"""`python -m tools.walk [--stream]`: follow one utterance and its result through all processes, function by function.

Starts a real mesh (`lingua up`), one SDK node at the second edge and one SDK session at the first, and records every
call of this project's functions in every process with `sys.setprofile`. It knows no module inside the packages, only
`lingua`, `linguamesh.session` and `linguamesh.node`, so figures from before and after a move can be compared.

How calls of the utterance are separated from background work (beats, heartbeats, snapshots, timers):

- A session sends ROUNDS utterances, each in a window of WINDOW_S, each after an idle window of the same length.
- Calls are grouped into call trees. The root of a tree is called by an event loop, or by the main loop of a process
  without one. The shape of a tree is its root and the set of functions in it.
- A shape that no idle window has belongs to the utterance. Of a shape that idle windows have too, the utterance has as
  many trees as its windows have more on average, rounded; the earliest, because it is sent when its window begins.
- A function counts if it is in these trees in more than half of the rounds. Figures and order are of the median round.

A step is one call. A coroutine that was called before the window counts once, where the utterance wakes it, without the
coroutines that only await it. Comprehensions belong to the function around them. Code that is not Python of this
project is not a step: Lua scripts in Redis, generated `__init__` methods of data classes, all libraries.
A leaf is a function that calls no other function of the walk: an accessor, a test, a conversion. "Without leaves" is
the walk of a reader who does not open these.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import dis
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, Final

from tools.call_trees import Call, Part, Window, figures_of, walk_of, without_leaves

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("mesh", "lua", "broker", "edge", "selector", "linguamesh")
#: Environment variable with the directory that each process writes its calls to.
CALLS_DIR: Final = "WALK_CALLS_DIR"
ROUNDS: Final = 15
WARM_UPS: Final = 10
#: Long enough for the result and all acknowledgements behind it.
WINDOW_S: Final = 1.0
TIMEOUT_S: Final = 60.0
#: 600 ms of PCM16 at 16 kHz.
AUDIO: Final = b"\x00\x10" * 9_600


# --- inside each process ------------------------------------------------------------------------------


@cache
def name_of(code: CodeType) -> str:
    """`file:function` of this project's code; "" for all other code, and for comprehensions."""
    path = Path(code.co_filename)
    if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in PACKAGES:
        return ""
    if code.co_name.startswith("<") and code.co_name != "<lambda>":
        return ""
    return f"{path.relative_to(ROOT)}:{code.co_qualname.replace('.<locals>', '')}"


@cache
def _start_of(code: CodeType) -> int:
    """Offset of the instruction at which a new call begins; a generator goes on behind it."""
    return next((one.offset for one in dis.get_instructions(code) if one.opname == "RESUME"), 0)


def record() -> None:
    """Record all calls from now on, and write them to the directory in CALLS_DIR when this process ends."""
    calls: list[Call] = []
    stacks: defaultdict[int, list[int]] = defaultdict(list)

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event not in ("call", "return") or not (name := name_of(frame.f_code)):
            return
        thread = threading.get_ident()
        stack = stacks[thread]
        if event == "call":
            is_new = frame.f_lasti <= _start_of(frame.f_code)
            calls.append(Call(time.monotonic_ns(), thread, len(stack), is_new, name))
            stack.append(id(frame))
        elif stack and stack[-1] == id(frame):  # a coroutine that an exception is thrown into returns without a call
            stack.pop()

    def write() -> None:
        sys.setprofile(None)
        Path(os.environ[CALLS_DIR], f"{os.getpid()}.json").write_text(json.dumps(calls))

    atexit.register(write)
    threading.setprofile(profile)
    sys.setprofile(profile)


async def _run_node(url: str) -> None:
    """One SDK node that replies at once, until stdin ends."""
    from linguamesh.node import Job, Node, Result

    async def reply(job: Job) -> Result:
        return Result(text_asr="hello", text_translated="hola")

    async with Node(url, reply, asr=["en"], semantic=["es"], node_id="node-walk"):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def _run_session(url: str, is_streamed: bool) -> None:
    """One SDK session: warms up, then sends one utterance per round; prints the windows."""
    from linguamesh.session import Session

    idle: list[Window] = []
    spoken: list[Window] = []
    async with Session(url, src="en", tgt="es") as session:
        results = session.results()
        for number in range(-WARM_UPS, ROUNDS):
            start_ns = time.monotonic_ns()
            await asyncio.sleep(WINDOW_S if number >= 0 else 0)
            middle_ns = time.monotonic_ns()
            async with asyncio.timeout(TIMEOUT_S):
                if is_streamed:
                    await session.stream(AUDIO)
                    await anext(results)
                else:
                    await session.translate(AUDIO)
            if number >= 0:
                await asyncio.sleep(max(0.0, WINDOW_S - (time.monotonic_ns() - middle_ns) / 1e9))
                idle.append((start_ns, middle_ns))
                spoken.append((middle_ns, time.monotonic_ns()))
    print(json.dumps([idle, spoken]), flush=True)


def printed(parts: Sequence[Part], markdown: bool = False) -> str:
    """The figures, then each process with its functions in order of the first call; in Markdown without the leaves."""
    inner = without_leaves(parts)
    lines = [f"One utterance and its result: {_sentence(parts)}.", f"Without leaves: {_sentence(inner)}."]
    for part in inner if markdown else parts:
        lines += ["", *([f"### {part.process}", ""] if markdown else [f"{part.process}: {_sentence([part])}"])]
        for step, count in Counter(part.steps).items():
            times = f" ×{count}" if count > 1 else ""
            mark = "" if step in part.callers else "· "
            lines.append(f"1. `{step}`{times}" if markdown else f"  {mark}{step}{times}")
    return "\n".join(lines)


def _sentence(parts: Sequence[Part]) -> str:
    return ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in figures_of(parts).items())


# --- the mesh -------------------------------------------------------------------------------------


def measured(is_streamed: bool) -> list[Part]:
    """The walk of one utterance through a mesh that is started for it, and stopped."""
    with TemporaryDirectory(prefix="walk-") as directory:
        Path(directory, "sitecustomize.py").write_text("from tools.walk import record\n\nrecord()\n")
        env = {**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{ROOT}", CALLS_DIR: directory}
        pids: dict[int, str] = {}
        lingua = str(Path(sys.executable).with_name("lingua"))
        counts = ["--port", "0", "--edges", "2", "--brokers", "1", "--selectors", "1", "--nodes", "0"]
        with _started([lingua, "up", "--json", *counts], env) as up:
            try:
                ready = json.loads(_line(up))
                for kind in ("edges", "brokers", "selectors"):
                    pids |= {one["pid"]: one["id"] for one in ready[kind]}
                first, second = (edge["url"].replace("http", "ws", 1) for edge in ready["edges"])
                own = [sys.executable, "-c", "from tools.walk import main; main()"]
                with _started([*own, "--node-at", second], env) as node:
                    _line(node)
                    option = ["--stream"] if is_streamed else []
                    with _started([*own, "--session-at", first, *option], env) as session:
                        idle, spoken = json.loads(_line(session))
                    pids |= {session.pid: "SDK session", node.pid: "SDK node"}
            finally:
                up.terminate()
        texts = {name: Path(directory, f"{pid}.json").read_text() for pid, name in pids.items()}
    calls = {name: [Call(*one) for one in json.loads(text)] for name, text in texts.items()}
    return walk_of(calls, idle, spoken)


def _started(command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    """As a context it closes the child's stdin and waits for its end."""
    return subprocess.Popen(command, cwd=ROOT, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    if not (line := child.stdout.readline()):
        raise SystemExit(f"{child.args!r} ended too early")
    return line


def main(arguments: list[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.walk", description="The walk of one utterance.")
    parser.add_argument("--stream", action="store_true", help="stream the utterance instead of sending it whole")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures and steps to FILE as well")
    parser.add_argument("--markdown", action="store_true", help="print lists for docs/architecture.md")
    parser.add_argument("--node-at", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--session-at", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.node_at or options.session_at:
        asyncio.run(_run_node(options.node_at) if options.node_at else _run_session(options.session_at, options.stream))
        return 0
    parts = measured(options.stream)
    print(printed(parts, options.markdown))
    if options.json:
        walk: dict[str, Any] = {"all": figures_of(parts), "without_leaves": figures_of(without_leaves(parts))}
        walk["processes"] = {part.process: part.steps for part in parts}
        options.json.write_text(json.dumps(walk, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
