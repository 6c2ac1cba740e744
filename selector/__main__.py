"""`python -m selector`: one selector process."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from lua.engine.runner import Runner
from lua.store import Store
from mesh import config
from mesh.config import Config
from mesh.errors import ConfigError
from mesh.keys import Keys
from mesh.link.link import LinkError
from mesh.log import configure
from mesh.metrics import describe_process, serve, stop_serving
from mesh.process import announce_ready, die_with_parent, run, set_scheduling
from mesh.random_ids import new_peer_identity
from mesh.words import ProcessKind
from selector import kernel_cache
from selector.metrics import SelectorMetrics

#: Timeout for the first reply of a broker.
START_TIMEOUT_MS: Final = 10_000


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit code."""
    options = _parse(arguments)
    if options.die_with_parent:
        die_with_parent()
    # Before anything imports the kernel: numba reads its settings when it is imported.
    cache = kernel_cache.find_cache_dir(os.environ, Path(__file__).parent / "core")
    return run(lambda stop: _serve(options, cache, stop), unreachable=(LinkError,))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m selector", description="One selector of the mesh.")
    parser.add_argument("--name", required=True, help="this selector's name, unique in the mesh")
    parser.add_argument("--config", help="TOML file; LINGUA_* in the environment overrides it")
    parser.add_argument("--die-with-parent", action="store_true", help="end when the starting process ends")
    return parser.parse_args(arguments)


async def _serve(options: argparse.Namespace, cache: Path, stop: asyncio.Event) -> None:
    settings = config.load(options.config)
    if not settings.link.backends:
        raise ConfigError("link.backends is empty: list one endpoint per broker")
    identity = new_peer_identity(ProcessKind.SELECTOR, options.name)
    configure(settings.log, ProcessKind.SELECTOR, identity)
    set_scheduling(settings.process)
    runner = await Runner.connect(settings.redis)
    try:
        store = Store(runner, Keys(settings.mesh.key_prefix), settings)
        await store.deployment.check(settings.mesh.cells)
        with kernel_cache.alone(cache):
            kernel_cache.warm_up()
        await _select(options.name, identity, store, settings, stop)
    finally:
        await runner.close()


async def _select(name: str, identity: str, store: Store, settings: Config, stop: asyncio.Event) -> None:
    from selector.app import Selector  # imports the kernel

    release = version("lingua-mesh")
    describe_process(ProcessKind.SELECTOR, release)
    metrics_port = serve(settings.selector.metrics_port)
    selector = Selector(identity, store, settings, SelectorMetrics(), release)
    try:
        await selector.start(START_TIMEOUT_MS)
        url = f"http://127.0.0.1:{metrics_port}"
        announce_ready(ProcessKind.SELECTOR, name, identity, url=url, metrics_port=metrics_port)
        await selector.run(stop)
    finally:
        await selector.close()
        stop_serving()


if __name__ == "__main__":
    sys.exit(main())
