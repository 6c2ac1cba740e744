"""Control endpoint: the rim of /ws/control. Receives operators' commands from this machine, calls a selector, replies.

One command at a time per socket. A command is not retried: if no selector replies, whether it took effect is unknown,
and the error message states that.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request

from edge.link.core.rpc import QueryReply
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.transport.connection import EdgeConnection
from edge.transport.send_buffer import SendLimits
from edge.transport.websocket import Socket, internal_error
from mesh.config.network import EdgeConfig
from mesh.errors import ErrorCode, PeerError
from mesh.log import get_logger
from mesh.loopback import is_loopback
from mesh.messages.control import Command, ControlAnswer, ControlError, Done, Drain, Pair, decode_command
from mesh.words import QueryKind, SocketKind

log = get_logger()


class ControlEndpoint:
    """All operators' sockets of this edge."""

    def __init__(self, config: EdgeConfig, link: EdgeLink, metrics: EdgeMetrics) -> None:
        self.sockets: set[Socket] = set()
        self._config = config
        self._limits = SendLimits.of(config)
        self._link = link
        self._metrics = metrics

    @property
    def is_full(self) -> bool:
        """True while no further operator is accepted (edge.control_sockets_max)."""
        return len(self.sockets) >= self._config.control_sockets_max

    def admits(self, connection: ServerConnection, request: Request) -> bool:
        """True if the peer may send commands."""
        return may_command(connection, request)

    async def serve(self, connection: EdgeConnection) -> None:
        """Serve one operator until the socket closes."""
        socket = Socket(connection, SocketKind.CONTROL, self._limits, self._metrics)
        self.sockets.add(socket)
        try:
            await socket.receive(partial(self._on_message, socket))
        finally:
            self.sockets.discard(socket)

    async def _on_message(self, socket: Socket, text: bytes, is_text: bool) -> None:
        command: Command | None = None
        answer: ControlAnswer
        try:
            if not is_text:
                raise PeerError(ErrorCode.INVALID_MESSAGE, "send JSON text")
            command = decode_command(text)
            answer = await self._execute(command)
        except PeerError as error:
            answer = ControlError(status=400, code=error.code.name, message=error.message)
        except Exception:
            # The gateway from operators: our own bug must fail this one command only.
            log.exception("command_failed", type=type(command).__name__)
            ours = internal_error()
            answer = ControlError(status=500, code=ours.code.name, message=ours.message)
        finally:
            socket.received[type(command)].inc()
        if isinstance(answer, ControlError):
            self._metrics.errors_total.labels(SocketKind.CONTROL, answer.code).inc()
        socket.send(answer)

    async def _execute(self, command: Command) -> ControlAnswer:
        kind, params, record_id = query_of(command)
        timeout_ms = self._config.page_timeout_ms
        reply = await self._link.query(kind, params, record_id=record_id, once=True, timeout_ms=timeout_ms)
        log.info("command", kind=kind, node_id=record_id, status=reply.status if reply else 504)
        if reply is None:
            text = "no selector answered in time; check whether it took effect before you send it again"
            return ControlError(status=504, code=ErrorCode.SCHEDULER_DEPENDENCY_DOWN.name, message=text)
        return answer_of(reply)


def query_of(command: Command) -> tuple[str, dict[str, list[str]], str]:
    """The kind, the parameters and the record of the Query for a command."""
    if isinstance(command, Drain):
        params = {"node_id": [command.node_id], "resume": ["true" if command.resume else "false"]}
        if command.deadline_ms is not None:
            params["deadline_ms"] = [str(command.deadline_ms)]
        if command.reason:
            params["reason"] = [command.reason]
        return QueryKind.DRAIN, params, command.node_id
    if isinstance(command, Pair):
        return QueryKind.PAIR, {"node_id": [command.node_id]}, command.node_id
    params = {"weights": [msgspec.json.encode(command.weights).decode()]}
    if command.expected_version is not None:
        params["expected_version"] = [str(command.expected_version)]
    if command.by:
        params["by"] = [command.by]
    return QueryKind.WEIGHTS_SET, params, ""


def answer_of(reply: QueryReply) -> ControlAnswer:
    """The operator's message for a selector's reply."""
    body: Any = msgspec.json.decode(reply.body) if reply.body else {}
    if reply.status == HTTPStatus.OK:
        return Done(status=reply.status, answer=body)
    fields = body if isinstance(body, dict) else {}
    code = str(fields.get("code") or ErrorCode.INTERNAL_ERROR.name)
    return ControlError(status=reply.status, code=code[:128], message=str(fields.get("message") or "refused")[:4_096])


def may_command(connection: ServerConnection, request: Request) -> bool:
    """True for a program on this machine.

    Not for a browser, which sends Origin: a foreign page must not command the mesh of its reader. Not for a proxy on
    this machine: it forwards requests of others.
    """
    if any(name in request.headers for name in ("Origin", "Forwarded", "X-Forwarded-For")):
        return False
    return is_loopback(str(connection.remote_address[0]))
