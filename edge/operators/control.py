"""Control: the rim of /ws/control. Takes operators' commands from this machine, has a selector carry them out, answers.

One command at a time per socket. A command is not repeated: if no selector answers, whether it took effect is unknown,
and the operator is told so.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request

from edge.link.core.rpc import QueryReply
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
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
        self._bounds = SendLimits.of(config)
        self._link = link
        self._metrics = metrics

    @property
    def is_full(self) -> bool:
        """True while there are as many operators as may be."""
        return len(self.sockets) >= self._config.control_sockets_max

    async def serve(self, connection: ServerConnection) -> None:
        """One operator, from the first command to the last."""
        socket = Socket(connection, SocketKind.CONTROL, self._bounds, self._metrics)
        self.sockets.add(socket)
        try:
            async for text in socket.messages():
                await self._on_text(socket, text)
        finally:
            self.sockets.discard(socket)

    async def _on_text(self, socket: Socket, text: str | bytes) -> None:
        command: Command | None = None
        answer: ControlAnswer
        try:
            if isinstance(text, bytes):
                raise PeerError(ErrorCode.INVALID_MESSAGE, "send JSON text")
            command = decode_command(text)
            answer = await self._obey(command)
        except PeerError as error:
            answer = ControlError(status=400, code=error.code.name, message=error.message)
        except Exception:
            # The gateway from operators: our own bug must cost this one command.
            log.exception("command_failed", type=type(command).__name__)
            ours = internal_error()
            answer = ControlError(status=500, code=ours.code.name, message=ours.message)
        finally:
            socket.count_in(command)
        if isinstance(answer, ControlError):
            self._metrics.errors_total.labels(SocketKind.CONTROL, answer.code).inc()
        socket.tell(answer)

    async def _obey(self, command: Command) -> ControlAnswer:
        kind, params, about = question_of(command)
        timeout_ms = self._config.page_timeout_ms
        answered = await self._link.query(kind, params, record_id=about, once=True, timeout_ms=timeout_ms)
        log.info("command", kind=kind, node_id=about, status=answered.status if answered else 504)
        if answered is None:
            text = "no selector answered in time; look whether it took effect before you repeat it"
            return ControlError(status=504, code=ErrorCode.SCHEDULER_DEPENDENCY_DOWN.name, message=text)
        return answer_of(answered)


def question_of(command: Command) -> tuple[str, dict[str, list[str]], str]:
    """The kind, the parameters and the record of the Query that carries out a command."""
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


def answer_of(answered: QueryReply) -> ControlAnswer:
    """What the operator is told of a selector's answer."""
    body: Any = msgspec.json.decode(answered.body) if answered.body else {}
    if answered.status == HTTPStatus.OK:
        return Done(status=answered.status, answer=body)
    told = body if isinstance(body, dict) else {}
    code = str(told.get("code") or ErrorCode.INTERNAL_ERROR.name)
    return ControlError(status=answered.status, code=code[:128], message=str(told.get("message") or "refused")[:4_096])


def may_command(connection: ServerConnection, request: Request) -> bool:
    """True for a program on this machine.

    A browser says where its page is from: a foreign page must not command the mesh of whoever reads it. A proxy on this
    machine speaks for others.
    """
    if any(name in request.headers for name in ("Origin", "Forwarded", "X-Forwarded-For")):
        return False
    return is_loopback(str(connection.remote_address[0]))
