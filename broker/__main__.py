"""`python -m broker`: one broker process."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import sys

from broker.core.switch import Switch, SwitchLimits
from broker.loop import BrokerLoop
from broker.metrics import BrokerCollector
from mesh import clock, config, log, metrics
from mesh.errors import ConfigError
from mesh.loopback import LOOPBACK
from mesh.process import EXIT_CONFIG, EXIT_OK, announce_ready, die_with_parent, set_scheduling
from mesh.random_ids import new_peer_identity
from mesh.words import ProcessKind

#: Leaves 2^30 connection numbers above it in a signed 64-bit counter of 32-bit spans.
_CONNECTION_START_MAX = 1 << 30


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit code."""
    options = _parse(arguments)
    if options.die_with_parent:
        die_with_parent()
    try:
        return _serve(options)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return EXIT_CONFIG


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m broker", description="One broker of the mesh.")
    parser.add_argument("--name", required=True, help="this broker's name, unique in the mesh")
    parser.add_argument("--config", help="TOML file; LINGUA_* in the environment overrides it")
    parser.add_argument("--index", type=int, default=0, help="index of this broker in link.frontends and link.backends")
    parser.add_argument("--frontend", help="endpoint for edges, instead of link.frontends")
    parser.add_argument("--backend", help="endpoint for selectors, instead of link.backends")
    parser.add_argument("--die-with-parent", action="store_true", help="end when the starting process ends")
    return parser.parse_args(arguments)


def _serve(options: argparse.Namespace) -> int:
    settings = config.load(options.config)
    frontend = options.frontend or _endpoint(settings.link.frontends, options.index, "link.frontends", "--frontend")
    backend = options.backend or _endpoint(settings.link.backends, options.index, "link.backends", "--backend")
    identity = new_peer_identity(ProcessKind.BROKER, options.name)
    log.configure(settings.log, ProcessKind.BROKER, identity)
    set_scheduling(settings.process)
    switch = Switch(
        broker_id=options.name,
        boot_id=identity.rpartition(":")[2],
        limits=limits_of(settings),
        connection_start=secrets.randbelow(_CONNECTION_START_MAX),
        now_ms=clock.now_ms(),
    )
    wake_read, wake_write = socket.socketpair()
    wake_write.setblocking(False)
    metrics.REGISTRY.register(BrokerCollector(switch))
    loop = BrokerLoop(switch, settings.link, settings.broker, wake_fd=wake_read.fileno())
    try:
        front, back = loop.bind(frontend, backend)
        _stop_on_signals(loop, wake_write)
        metrics_port = metrics.serve(settings.broker.metrics_port)
        announce_ready(
            ProcessKind.BROKER,
            options.name,
            identity,
            url=f"http://{LOOPBACK}:{metrics_port}",
            metrics_port=metrics_port,
            frontend=front,
            backend=back,
        )
        loop.run()
    finally:
        loop.close()
    return EXIT_OK


def limits_of(settings: config.Config) -> SwitchLimits:
    """The switch's limits, from the configuration."""
    return SwitchLimits(
        cells=settings.mesh.cells,
        beat_ms=settings.link.beat_ms,
        dead_ms=settings.link.dead_ms,
        queue_max=settings.broker.queue_max,
        queue_bytes_max=settings.broker.queue_bytes_max,
        peers_max=settings.broker.peers_max,
        busy_retry_ms=settings.broker.busy_retry_ms,
        batch_frames_max=settings.link.batch_frames_max,
        batch_bytes_max=min(settings.link.batch_bytes_max, settings.link.message_bytes_max),
        inline_bytes_max=settings.link.inline_bytes_max,
    )


def _endpoint(endpoints: list[str], index: int, key: str, flag: str) -> str:
    if not 0 <= index < len(endpoints):
        raise ConfigError(f"{key} has no entry {index}: list one endpoint per broker there, or give {flag}")
    return endpoints[index]


def _stop_on_signals(loop: BrokerLoop, wake: socket.socket) -> None:
    """The first signal drains, the second quits. The poll is woken by the byte that Python writes to `wake`."""
    is_stopping = False

    def on_signal(number: int, _frame: object) -> None:
        nonlocal is_stopping
        if is_stopping:
            os._exit(128 + number)
        is_stopping = True
        loop.stop()

    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


if __name__ == "__main__":
    sys.exit(main())
