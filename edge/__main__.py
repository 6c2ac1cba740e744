"""`python -m edge --name NAME [--config FILE]`: one edge process."""

from __future__ import annotations

import argparse
import asyncio
import sys
from importlib.metadata import version

from edge.app import Edge
from edge.metrics import EdgeMetrics
from mesh import config, log, process
from mesh.errors import ConfigError
from mesh.ids import is_id
from mesh.link.link import LinkError
from mesh.metrics import LinkMetrics, describe_process
from mesh.random_ids import new_peer_identity
from mesh.words import ProcessKind


async def serve(name: str, settings: config.Config, stop: asyncio.Event) -> None:
    """Serve until `stop` is set."""
    identity = new_peer_identity(ProcessKind.EDGE, name)
    log.configure(settings.log, ProcessKind.EDGE, identity)
    process.set_scheduling(settings.process)
    describe_process(ProcessKind.EDGE, version("lingua-mesh"))
    edge = Edge(settings, identity, EdgeMetrics(), LinkMetrics())
    await edge.start()
    process.announce_ready(
        ProcessKind.EDGE,
        name,
        identity,
        url=f"http://127.0.0.1:{edge.server.own_port}",
        port=edge.server.port,
        metrics_port=edge.server.own_port,
    )
    await stop.wait()
    await edge.stop()


def main(arguments: list[str] | None = None) -> int:
    """Exit code of the process."""
    parser = argparse.ArgumentParser(prog="edge", description="WebSocket edge of a Lingua Mesh.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--config")
    parser.add_argument("--die-with-parent", action="store_true")
    options = parser.parse_args(arguments)
    if options.die_with_parent:
        process.die_with_parent()
    try:
        settings = config.load(options.config)
        if not is_id(options.name):
            raise ConfigError(f"--name {options.name!r} is not an id: use 1 to 64 of A-Z a-z 0-9 _ . : -")
        if not settings.link.frontends:
            raise ConfigError("link.frontends is empty: name the front endpoint of every broker")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return process.EXIT_CONFIG
    return process.run(lambda stop: serve(options.name, settings, stop), unreachable=(LinkError,))


if __name__ == "__main__":
    sys.exit(main())
