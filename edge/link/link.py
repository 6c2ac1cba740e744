"""Edge link: sends frames to a cell or an edge, dispatches received frames to handlers, and runs calls to selectors.

Owns the pending calls. The handlers of sessions, requests, nodes and jobs interpret all other frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, cast, get_args

import msgspec
import zmq

from edge.core.timers import Schedule
from edge.link.core import rpc
from mesh.cells import cell_of, cell_of_job
from mesh.clock import now_ms
from mesh.config import Config
from mesh.frames import (
    BROKER,
    Assign,
    Bounce,
    Busy,
    Frame,
    Head,
    Mail,
    Push,
    Query,
    QueryAnswer,
    ResultAck,
    ResultAcks,
    Role,
    decode_frame,
    frames_to,
    lane_of,
)
from mesh.link.gathered import Gathered
from mesh.link.link import Link, Received, bytes_of
from mesh.log import get_logger
from mesh.metrics import LinkMetrics
from mesh.words import ProcessKind

#: Each has a handler; any other received frame is logged and dropped.
RECEIVED: Final = frames_to(Role.EDGE)

F = TypeVar("F", bound=Frame)
#: Handles a frame with its payload, at that time.
Handler = Callable[[F, list[bytes], int], None]
#: A frame of this edge that a broker returned, after how many ms it may be retried (0 = not given), and the time.
ReturnHandler = Callable[[F, int, int], None]

log = get_logger()


def early_ms_max(config: Config) -> int:
    """Upper bound for the first retry intervals: at most half of `link.dead_ms`, or `edge.resend_ms` if that is more.

    A retry then follows soon after a dead peer is detected.
    """
    return max(config.edge.resend_ms, config.link.dead_ms // 2)


#: Frames whose large parts are passed on as they are: audio and results are encoded or decoded from the buffer.
_BUFFERED: Final = frozenset({Assign, Push})


def _payload_of(message: Received) -> list[bytes]:
    """The parts for a handler. A view of audio or of a result stands in for bytes, so that it is not copied."""
    payload = message.payload
    if not payload:
        return []
    if type(message.frame) not in _BUFFERED:
        return [bytes_of(part) for part in payload]
    for number, part in enumerate(payload):
        if isinstance(part, zmq.Frame):  # not a view of a node's binary message, which this edge sends to itself
            payload[number] = cast(Any, part).buffer
    return cast(list[bytes], payload)


class EdgeLink:
    """This edge's connection to the mesh."""

    def __init__(self, config: Config, identity: str, schedule: Schedule, metrics: LinkMetrics | None = None) -> None:
        self.identity = identity
        self.cells = config.mesh.cells
        self.asks = rpc.PendingCalls(
            rpc.CallLimits(config.edge.resend_ms, early_ms_max(config), config.edge.answer_timeout_ms),
            schedule.waker(self.tick),
        )
        self._acks: Gathered[ResultAck] = Gathered(
            config.link.ack_batch_max, config.link.ack_delay_ms, schedule.waker(self.send_acks)
        )
        self._link = Link(
            identity=identity,
            kind=ProcessKind.EDGE,
            endpoints=config.link.frontends,
            config=config.link,
            window=0,
            on_messages=self.on_messages,
            metrics=metrics,
        )
        self._serial = 0
        self._handlers: dict[type[Frame], Handler[Any]] = dict.fromkeys(get_args(rpc.PlainReply), self._on_reply)
        self._return_handlers: dict[type[Frame], ReturnHandler[Any]] = {}
        self.on(QueryAnswer, self._on_query_reply)
        self.on(Mail, self._on_mail)
        self.on(Busy, self._on_busy)
        self.on(Bounce, self._on_bounce)

    def on(self, kind: type[F], handle: Handler[F]) -> None:
        """Pass received frames of this type to `handle`."""
        self._handlers[kind] = handle

    def on_return(self, kind: type[F], handle: ReturnHandler[F]) -> None:
        """Pass frames of this type that a broker returned to `handle`; calls are handled here."""
        self._return_handlers[kind] = handle

    async def start(self) -> None:
        """Connect to all brokers."""
        assert set(self._handlers) == RECEIVED, "every frame for edges has a handler"
        await self._link.start()

    async def ready(self, timeout_ms: int) -> None:
        """Return once a broker is live."""
        await self._link.ready(timeout_ms)

    async def close(self) -> None:
        """Leave the mesh."""
        await self._link.close()

    @property
    def brokers_live(self) -> int:
        """The number of live brokers."""
        return self._link.brokers_live()

    # --- out ----------------------------------------------------------------------------------

    def to_session_cell(
        self, session_id: str, frame: Frame, *payload: bytes, deadline_ms: int = 0, avoid: str = ""
    ) -> str:
        """Send to the selector of the session's cell; the broker that accepted it, or ""."""
        cell = cell_of(session_id, self.cells)
        return self._link.send("", cell, frame, *payload, deadline_ms=deadline_ms, avoid=avoid)

    def to_node_cell(self, node_id: str, frame: Frame) -> str:
        """Send to the selector of the node's cell; the broker that accepted it, or ""."""
        return self._link.send("", cell_of(node_id, self.cells), frame)

    def to_any_selector(self, frame: Frame) -> str:
        """Send to the selector of this edge's own cell; the broker that accepted it, or ""."""
        return self._link.send("", cell_of(self.identity, self.cells), frame)

    def to_job_cell(self, job_id: str, frame: Frame, *payload: bytes, avoid: str = "") -> str:
        """Send to the selector of the job's cell; the broker that accepted it, or ""."""
        return self._link.send("", cell_of_job(job_id), frame, *payload, avoid=avoid)

    def to_peer(self, identity: str, frame: Frame, *payload: bytes) -> str:
        """Send to that edge; the broker that accepted it, or ""."""
        if identity == self.identity:
            self._to_self(frame, payload)
            return ""
        return self._link.send(identity, 0, frame, *payload)

    def acknowledge(self, edge: str, ack: ResultAck) -> None:
        """Acknowledge a result to the edge of its node: gathered with others, soon enough to end its retries."""
        full = self._acks.add(edge, ack, now_ms())
        if full is not None:
            self.to_peer(edge, ResultAcks(full))

    def send_acks(self, now: int) -> None:
        """Send the gathered acknowledgements."""
        for edge, acks in self._acks.pop_all():
            self.to_peer(edge, ResultAcks(acks))

    def soon(self, work: Callable[[], None]) -> None:
        """Run `work` after the current callback, as if it had arrived as a frame."""
        asyncio.get_running_loop().call_soon(work)

    def _to_self(self, frame: Frame, payload: tuple[bytes, ...]) -> None:
        """Session and node are both at this edge: the frame needs no broker.

        It is received after the current callback, so that the sender completes its own work first, as with any frame.
        """
        head = Head(lane_of(frame), self.identity, 0, self.identity, 0)
        message = Received(head, frame, list(payload), broker="")
        asyncio.get_running_loop().call_soon(self.on_messages, (message,))

    def ask(
        self,
        call: Callable[[str], rpc.CallFrame],
        record_id: str,
        on_reply: Callable[[rpc.Reply | None], None],
        may_retry: Callable[[], bool] = lambda: True,
        *,
        payload: tuple[bytes, ...] = (),
        timeout_ms: int = 0,
    ) -> None:
        """Call the selector of a record's cell; `call` makes the frame with a given ref, `payload` follows it.

        Retried until a reply or the timeout; `on_reply` gets the reply, or None.
        """
        self._serial += 1
        cell = cell_of(record_id, self.cells)
        frame = call(str(self._serial))

        def guarded(reply: rpc.Reply | None) -> None:
            try:
                on_reply(reply)
            except Exception:
                # A bug of one caller must not lose the replies of others.
                log.exception("reply_failed", frame=type(frame).__name__, reply=type(reply).__name__)

        pending = self.asks.ask(frame, cell, guarded, now_ms(), may_retry, payload=payload, timeout_ms=timeout_ms)
        self._send_call(pending)

    async def answer_to(
        self, call: Callable[[str], rpc.CallFrame], record_id: str, *payload: bytes
    ) -> rpc.Reply | None:
        """The same for a coroutine: the first reply, or None if there was none in time."""
        replied: asyncio.Future[rpc.Reply | None] = asyncio.get_running_loop().create_future()

        def on_reply(reply: rpc.Reply | None) -> None:
            if not replied.done():
                replied.set_result(reply)

        self.ask(call, record_id, on_reply, lambda: not replied.done(), payload=payload)
        return await replied

    async def query(
        self,
        kind: str,
        params: dict[str, list[str]],
        *,
        record_id: str = "",
        to: str = "",
        once: bool = False,
        timeout_ms: int,
    ) -> rpc.QueryReply | None:
        """Send an operator's query to the selector of a record's cell, to the selector `to`, or to any.

        None if there was no reply in time. `once`: a command, which is not retried.
        """
        replied: asyncio.Future[rpc.QueryReply | None] = asyncio.get_running_loop().create_future()

        def on_reply(reply: rpc.Reply | None) -> None:
            if not replied.done():
                assert reply is None or isinstance(reply, rpc.QueryReply), "a query has a reply type of its own"
                replied.set_result(reply)

        self._serial += 1
        # Queries for any selector are spread over all of them.
        cell = cell_of(record_id, self.cells) if record_id else self._serial % self.cells
        frame = Query(ref=str(self._serial), edge=self.identity, kind=kind, params=params)
        pending = self.asks.ask(
            frame, cell, on_reply, now_ms(), lambda: not replied.done(), to=to, once=once, timeout_ms=timeout_ms
        )
        self._send_call(pending)
        return await replied

    def tick(self, now: int) -> None:
        """Retry the calls that are due."""
        for call in self.asks.tick(now):
            self._send_call(call)

    def _send_call(self, call: rpc.Call) -> None:
        call.broker = self._link.send(call.to, call.cell, call.frame, *call.payload, avoid=call.broker)

    # --- in -----------------------------------------------------------------------------------

    def on_messages(self, messages: Iterable[Received]) -> None:
        """Dispatch each message to its handler. A handler that fails affects this one message only."""
        now = now_ms()
        for message in messages:
            handler = self._handlers.get(type(message.frame))
            if handler is None:
                log.warning("frame_not_for_edges", frame=type(message.frame).__name__, source=message.head.source)
                continue
            try:
                handler(message.frame, _payload_of(message), now)
            except Exception:
                # The gateway from the mesh: a message that cannot be handled must not stop the others.
                log.exception("frame_failed", frame=type(message.frame).__name__, source=message.head.source)

    def _on_reply(self, reply: rpc.PlainReply, payload: list[bytes], now: int) -> None:
        self.asks.on_answer(reply)

    def _on_query_reply(self, answer: QueryAnswer, payload: list[bytes], now: int) -> None:
        self.asks.on_answer(rpc.QueryReply(answer.ref, answer.status, payload[0] if payload else b""))

    def _on_mail(self, mail: Mail, payload: list[bytes], now: int) -> None:
        self.asks.on_answer(rpc.MailPage(mail.ref, mail, tuple(payload)))

    def _on_busy(self, busy: Busy, payload: list[bytes], now: int) -> None:
        self._on_returned(payload, busy.retry_after_ms, now)

    def _on_bounce(self, bounce: Bounce, payload: list[bytes], now: int) -> None:
        self._on_returned(payload, 0, now)

    def _on_returned(self, payload: list[bytes], retry_ms: int, now: int) -> None:
        """Find the frame of this edge that was returned."""
        try:
            original = decode_frame(payload[1])
        except (IndexError, msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("returned_frame_unreadable", error=str(error), source=BROKER)
            return
        if isinstance(original, rpc.CallFrame):
            self.asks.on_lost(original.ref, retry_ms or self.asks.limits.retry_ms // 4, now)
            return
        handler = self._return_handlers.get(type(original))
        if handler is not None:
            handler(original, retry_ms, now)
