"""Listener: the ports of an edge. Routes each connection to its endpoint by path; bounds connections and messages.

Knows endpoints by their protocols only: sessions, nodes and operators are above it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

from websockets.asyncio.server import Server as Listener
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from edge.metrics import EdgeMetrics
from edge.transport.connection import EdgeConnection
from mesh.config.network import EdgeConfig
from mesh.errors import ConfigError
from mesh.loopback import LOOPBACK, is_loopback
from mesh.metrics import CONTENT_TYPE, render
from mesh.words import ConnectionRefusal

SESSION_PATH: Final = "/ws/session"
NODE_PATH: Final = "/ws/node"
CONTROL_PATH: Final = "/ws/control"

Serve = Callable[[EdgeConnection], Awaitable[None]]


class ControlPort(Protocol):
    """The endpoint of /ws/control."""

    @property
    def is_full(self) -> bool:
        """True while no further operator is accepted."""

    def admits(self, connection: ServerConnection, request: Request) -> bool:
        """True if the peer may send commands."""

    async def serve(self, connection: EdgeConnection) -> None:
        """Serve one operator."""


class HttpPort(Protocol):
    """The endpoint of plain HTTP requests whose path begins with `prefix`."""

    prefix: str

    async def respond(self, target: str) -> Response:
        """The response to a GET of `target`."""


class Endpoints(NamedTuple):
    """The endpoints by path: /ws/session, /ws/node, /ws/control and the HTTP API."""

    client: Serve
    node: Serve
    control: ControlPort
    http: HttpPort


class EdgeListener:
    """The shared port of all edges of this host, and a port of this edge alone."""

    def __init__(self, config: EdgeConfig, endpoints: Endpoints, metrics: EdgeMetrics) -> None:
        check_host(config)
        self._config = config
        self._metrics = metrics
        self._endpoints = endpoints
        self._serve: dict[str, Serve] = {
            SESSION_PATH: endpoints.client,
            NODE_PATH: endpoints.node,
            CONTROL_PATH: endpoints.control.serve,
        }
        self._bytes_max = {
            SESSION_PATH: config.session_message_bytes_max,
            NODE_PATH: config.node_message_bytes_max,
            CONTROL_PATH: config.control_message_bytes_max,
        }
        self._pages = {"/health": self._health, "/metrics": self._metrics_page}
        self._listeners: list[Listener] = []
        self.connections = 0
        self._is_draining = False
        self.port = 0
        self.own_port = 0

    async def start(self) -> None:
        """Listen on both ports; ConfigError if one is not available."""
        shared = await self._listen(self._config.host, self._config.port, shared=True)
        self.port = shared.sockets[0].getsockname()[1]
        own = await self._listen(LOOPBACK, self._config.own_port, shared=False)
        self.own_port = own.sockets[0].getsockname()[1]

    def refuse_more(self) -> None:
        """Refuse new connections; open ones stay."""
        self._is_draining = True

    async def stop(self) -> None:
        """Close the listeners and wait until every connection is closed; abort those that do not close in time."""
        for listener in self._listeners:
            listener.close()
        for listener in self._listeners:
            try:
                async with asyncio.timeout(self._config.send_timeout_ms / 1_000):
                    await listener.wait_closed()
            except TimeoutError:
                for connection in listener.all_connections:
                    connection.transport.abort()

    async def _listen(self, host: str, port: int, *, shared: bool) -> Listener:
        config = self._config
        try:
            listener = await serve(
                self._handle,
                host,
                port,
                process_request=self._admit,
                create_connection=EdgeConnection,
                compression=None,  # costs 3.4 times the memory, and audio does not shrink
                server_header=None,
                open_timeout=config.open_timeout_ms / 1_000,
                ping_interval=config.ping_interval_ms / 1_000,
                ping_timeout=config.ping_timeout_ms / 1_000,
                close_timeout=config.send_timeout_ms / 1_000,
                max_size=max(self._bytes_max.values()),
                max_queue=config.receive_queue_max,
                reuse_port=shared or None,
            )
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        self._listeners.append(listener)
        return listener

    # --- requests -----------------------------------------------------------------------------

    def _admit(self, connection: ServerConnection, request: Request) -> Awaitable[Response] | Response | None:
        """None to continue the WebSocket handshake, or the response to a plain request."""
        path = request.path.partition("?")[0]
        page = self._pages.get(path)
        if page is not None:
            return page(connection)
        if path.startswith(self._endpoints.http.prefix):
            return self._endpoints.http.respond(request.path)
        if path not in self._serve:
            return self._refuse(connection, HTTPStatus.NOT_FOUND, ConnectionRefusal.PATH, "Not found\n")
        if path == CONTROL_PATH and not self._endpoints.control.admits(connection, request):
            text = "Commands are taken from programs on this machine only\n"
            return self._refuse(connection, HTTPStatus.FORBIDDEN, ConnectionRefusal.FORBIDDEN, text)
        if self._is_draining or self._is_full(path):
            reason = ConnectionRefusal.DRAINING if self._is_draining else ConnectionRefusal.FULL
            text = "Try another edge, or again shortly\n"
            return self._refuse(connection, HTTPStatus.SERVICE_UNAVAILABLE, reason, text)
        connection.protocol.max_message_size = self._bytes_max[path]
        return None

    def _is_full(self, path: str) -> bool:
        if path == CONTROL_PATH:
            return self._endpoints.control.is_full
        return self.connections >= self._config.connections_max

    def _refuse(self, connection: ServerConnection, status: HTTPStatus, reason: str, text: str) -> Response:
        self._metrics.refused_total.labels(reason).inc()
        return connection.respond(status, text)

    async def _handle(self, connection: ServerConnection) -> None:
        assert isinstance(connection, EdgeConnection) and connection.request is not None
        path = connection.request.path.partition("?")[0]
        self.connections += 1
        try:
            await self._serve[path](connection)
        finally:
            self.connections -= 1

    def _health(self, connection: ServerConnection) -> Response:
        return connection.respond(HTTPStatus.OK, "OK")

    def _metrics_page(self, connection: ServerConnection) -> Response:
        response = connection.respond(HTTPStatus.OK, render().decode())
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = CONTENT_TYPE
        return response


def check_host(config: EdgeConfig) -> None:
    """ConfigError if the host is reachable from other machines and `edge.insecure` is not set."""
    if not is_loopback(config.host) and not config.insecure:
        raise ConfigError(
            f"edge.host {config.host!r} is reachable from other machines and there is no authentication yet; "
            "use 127.0.0.1, or set edge.insecure = true if that is what you want"
        )
