"""`lingua node`: demo nodes with a simulated pipeline, any number in one process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from functools import partial
from typing import Final

from linguamesh.errors import NodeRefused, Unreachable
from linguamesh.local import demo_pipeline
from linguamesh.node import Gpu, Node
from mesh import process
from mesh.errors import ConfigError

BANNER = "The pipeline of these nodes is SIMULATED: nothing is recognised or translated, and each result says so."

#: Milliseconds per second of audio; at a slower pace no demo ends.
SPEED_MAX: Final = 60_000.0

_log = logging.getLogger("linguamesh.node")


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C; the exit code."""
    if options.die_with_parent:
        process.die_with_parent()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("websockets").setLevel(logging.WARNING)
    try:
        return process.run(lambda stop: _serve(options, stop))
    except NodeRefused as error:
        print(f"error: the mesh refused a node: {error}. {error.hint}", file=sys.stderr)
        return process.EXIT_FAILED


async def _serve(options: argparse.Namespace, stop: asyncio.Event) -> None:
    nodes = _nodes(options)
    if not options.json:
        print(BANNER, flush=True)
    running = [asyncio.create_task(node.run()) for node in nodes]
    announcing = asyncio.create_task(_announce(nodes, options))
    stopped = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait({stopped, *running}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*(node.drain() for node in nodes))
    for task in (announcing, stopped, *running):
        task.cancel()
    await asyncio.wait({announcing, stopped, *running})
    for task in done - {stopped}:
        task.result()  # raises the error that ended a node


def _nodes(options: argparse.Namespace) -> list[Node]:
    languages = [word.strip() for word in options.languages.split(",") if word.strip()]
    if options.count < 1 or options.max_jobs < 1 or not languages:
        raise ConfigError("--count and --max-jobs are at least 1, and --languages names at least one")
    if not 0 < options.speed <= SPEED_MAX:
        raise ConfigError(f"--speed is above 0 and at most {SPEED_MAX:g}")
    return [
        Node(
            options.url,
            partial(demo_pipeline.translate, ms_per_s=options.speed),
            node_id=f"{options.name}-{number}" if options.name else None,
            asr=languages,
            semantic=languages,
            tts=languages,
            max_jobs=options.max_jobs,
            gpus=[Gpu("Simulated GPU", 8)],
            region=options.region,
            gpu_tier=options.gpu_tier,
            tenant_id=options.tenant,
        )
        for number in range(options.count)
    ]


async def _announce(nodes: list[Node], options: argparse.Namespace) -> None:
    """Print the ready line once all of them are registered."""
    for node in nodes:
        await node.registered()
    ids = [str(node.node_id) for node in nodes]
    codes = [await _pairing_code(node) for node in nodes] if options.pair else []
    if options.json:
        more = {"pairing_codes": dict(zip(ids, codes, strict=True))} if options.pair else {}
        process.announce_ready("nodes", "nodes", "", nodes=ids, **more)
        return
    print(f"Registered at {nodes[0].url}: {', '.join(ids)}. Ctrl-C stops.", flush=True)
    for node_id, code in zip(ids, codes, strict=False):
        print(f"Pairing code of {node_id}: {code or 'none, see the log'}", flush=True)


async def _pairing_code(node: Node) -> str:
    """A pairing code; "" if the mesh refuses it: the node serves without one."""
    try:
        code, _ = await node.pairing_code()
    except (NodeRefused, Unreachable) as error:
        _log.warning("no pairing code for %s: %s", node.node_id, error)
        return ""
    return code
