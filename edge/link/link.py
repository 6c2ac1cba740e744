"""Link: the edge's side of the mesh. Sends frames to the right cell or peer and hands arriving ones to their handlers.

Owns the open questions to selectors. What a frame means is decided by the handlers in sessions.py and nodes.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from edge.link.core import rpc
from mesh.cells import cell_of, cell_of_job
from mesh.clock import now_ms
from mesh.config import Config
from mesh.frames import (
    FRAME_VERSION,
    Bounce,
    Busy,
    Failed,
    Frame,
    Head,
    Mail,
    NodeRegistered,
    Paired,
    PairingCode,
    Posted,
    Query,
    QueryAnswer,
    Role,
    RoomState,
    SessionClaimed,
    SessionReleased,
    decode_frame,
    frames_to,
    lane_of,
)
from mesh.link.link import Link, Received
from mesh.log import get_logger
from mesh.metrics import LinkMetrics
from mesh.words import ProcessKind

#: Each has a handler; any other frame that arrives is logged and dropped.
RECEIVED: Final = frames_to(Role.EDGE)

Handler = Callable[[Received], None]
#: A frame of ours that a broker gave back, and after how many ms it may be tried again (0 = not said).
GivenBack = Callable[[Frame, int], None]

log = get_logger()


def early_ms_max(config: Config) -> int:
    """How far apart the first repeats of anything are, so that a peer that hangs costs little beyond its noticing."""
    return max(config.edge.resend_ms, config.link.dead_ms // 2)


class EdgeLink:
    """The one way from this edge into the mesh."""

    def __init__(self, config: Config, identity: str, metrics: LinkMetrics | None = None) -> None:
        self.identity = identity
        self.cells = config.mesh.cells
        self.asks = rpc.PendingCalls(
            rpc.CallLimits(config.edge.resend_ms, early_ms_max(config), config.edge.answer_timeout_ms)
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
        #: Called after anything that may have moved a timer.
        self.changed: Callable[[], None] = lambda: None
        self._given_back: dict[type[Frame], GivenBack] = {}
        self._handlers: dict[type[Frame], Handler] = {
            NodeRegistered: self._on_answer,
            SessionClaimed: self._on_answer,
            SessionReleased: self._on_answer,
            Posted: self._on_answer,
            RoomState: self._on_answer,
            PairingCode: self._on_answer,
            Paired: self._on_answer,
            Failed: self._on_answer,
            QueryAnswer: self._on_query_answer,
            Mail: self._on_mail,
            Busy: self._on_given_back,
            Bounce: self._on_given_back,
        }

    def handle(self, handlers: dict[type[Frame], Handler], given_back: dict[type[Frame], GivenBack]) -> None:
        """Add handlers of frames, and of own frames that came back undelivered."""
        self._handlers |= handlers
        self._given_back |= given_back

    async def start(self) -> None:
        """Connect to all brokers."""
        assert set(self._handlers) == RECEIVED, "every frame for edges has a handler"
        await self._link.start()

    async def ready(self, timeout_ms: int) -> None:
        """Return once a broker answered."""
        await self._link.ready(timeout_ms)

    async def close(self) -> None:
        """Leave the mesh."""
        await self._link.close()

    @property
    def brokers_live(self) -> int:
        """How many brokers answer."""
        return self._link.brokers_live()

    # --- out ----------------------------------------------------------------------------------

    def to_session_cell(
        self, session_id: str, frame: Frame, *payload: bytes, deadline_ms: int = 0, avoid: str = ""
    ) -> str:
        """To the selector of the session's cell; the broker that took it, or ""."""
        cell = cell_of(session_id, self.cells)
        return self._link.send("", cell, frame, *payload, deadline_ms=deadline_ms, avoid=avoid)

    def to_node_cell(self, node_id: str, frame: Frame) -> str:
        """To the selector of the node's cell; the broker that took it, or ""."""
        return self._link.send("", cell_of(node_id, self.cells), frame)

    def to_any_selector(self, frame: Frame) -> str:
        """To the selector of this edge's own cell; the broker that took it, or ""."""
        return self._link.send("", cell_of(self.identity, self.cells), frame)

    def to_job_cell(self, job_id: str, frame: Frame, *payload: bytes, avoid: str = "") -> str:
        """To the selector of the job's cell; the broker that took it, or ""."""
        return self._link.send("", cell_of_job(job_id), frame, *payload, avoid=avoid)

    def to_peer(self, identity: str, frame: Frame, *payload: bytes) -> str:
        """To that edge; the broker that took it, or ""."""
        if identity == self.identity:
            self._to_self(frame, payload)
            return ""
        return self._link.send(identity, 0, frame, *payload)

    def soon(self, work: Callable[[], None]) -> None:
        """Do this after what is being done now, as if it had come as a message."""
        asyncio.get_running_loop().call_soon(work)

    def _to_self(self, frame: Frame, payload: tuple[bytes, ...]) -> None:
        """Session and node are both here: what one side tells the other needs no broker.

        Soon and not at once, so that whoever sends is done with its own work first, as with any other message.
        """
        head = Head(FRAME_VERSION, lane_of(frame), self.identity, 0, self.identity, 0)
        message = Received(head, frame, list(payload), broker="")
        asyncio.get_running_loop().call_soon(self.on_messages, (message,))

    def ask(
        self,
        question: Callable[[str], rpc.Question],
        record_id: str,
        on_answer: Callable[[rpc.Reply | None], None],
        may_repeat: Callable[[], bool] = lambda: True,
        *,
        payload: tuple[bytes, ...] = (),
        timeout_ms: int = 0,
    ) -> None:
        """Ask the selector of a record's cell; `question` gets the ref to put into its frame, `payload` follows it."""
        self._serial += 1
        cell = cell_of(record_id, self.cells)
        frame = question(str(self._serial))

        def guarded(answer: rpc.Reply | None) -> None:
            try:
                on_answer(answer)
            except Exception:
                # One asker's bug must not cost others their answers.
                log.exception("answer_failed", frame=type(frame).__name__, answer=type(answer).__name__)

        ask = self.asks.ask(frame, cell, guarded, now_ms(), may_repeat, payload=payload, timeout_ms=timeout_ms)
        self._send_ask(ask)
        self.changed()

    async def answer_to(
        self, question: Callable[[str], rpc.Question], record_id: str, *payload: bytes
    ) -> rpc.Reply | None:
        """The same for whoever can wait: the first answer, or None if there was none in time."""
        answered: asyncio.Future[rpc.Reply | None] = asyncio.get_running_loop().create_future()

        def on_answer(answer: rpc.Reply | None) -> None:
            if not answered.done():
                answered.set_result(answer)

        self.ask(question, record_id, on_answer, lambda: not answered.done(), payload=payload)
        return await answered

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
        """Put an operator's question to the selector of a record's cell, to the one called `to`, or to any.

        None if nobody answered in time. `once`: a command, which is not repeated.
        """
        answered: asyncio.Future[rpc.QueryReply | None] = asyncio.get_running_loop().create_future()

        def on_answer(answer: rpc.Reply | None) -> None:
            if not answered.done():
                assert answer is None or isinstance(answer, rpc.QueryReply), "a query has an answer of its own"
                answered.set_result(answer)

        self._serial += 1
        # Questions that any selector can answer are spread over all of them.
        cell = cell_of(record_id, self.cells) if record_id else self._serial % self.cells
        frame = Query(ref=str(self._serial), edge=self.identity, kind=kind, params=params)
        wanted = lambda: not answered.done()  # noqa: E731
        self._send_ask(self.asks.ask(frame, cell, on_answer, now_ms(), wanted, to=to, once=once, timeout_ms=timeout_ms))
        self.changed()
        return await answered

    def tick(self, now: int) -> None:
        """Repeat questions that are due."""
        for ask in self.asks.tick(now):
            self._send_ask(ask)

    def _send_ask(self, ask: rpc.Call) -> None:
        ask.broker = self._link.send(ask.to, ask.cell, ask.frame, *ask.payload, avoid=ask.broker)

    # --- in -----------------------------------------------------------------------------------

    def on_messages(self, messages: Iterable[Received]) -> None:
        """Hand each message to its handler. One that cannot be handled costs nobody but itself."""
        for message in messages:
            handler = self._handlers.get(type(message.frame))
            if handler is None:
                log.warning("frame_not_for_edges", frame=type(message.frame).__name__, source=message.head.source)
                continue
            try:
                handler(message)
            except Exception:
                # The gateway from the mesh: a message we cannot handle must not stop the ones we can.
                log.exception("frame_failed", frame=type(message.frame).__name__, source=message.head.source)
        self.changed()

    def _on_answer(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, rpc.PlainAnswer)
        self.asks.on_answer(frame)

    def _on_query_answer(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, QueryAnswer)
        self.asks.on_answer(rpc.QueryReply(frame.ref, frame.status, message.payload[0] if message.payload else b""))

    def _on_mail(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, Mail)
        self.asks.on_answer(rpc.MailPage(frame.ref, frame, tuple(message.payload)))

    def _on_given_back(self, message: Received) -> None:
        """Busy or Bounce: find out which frame of ours came back."""
        assert isinstance(message.frame, Busy | Bounce)
        retry_ms = message.frame.retry_after_ms if isinstance(message.frame, Busy) else 0
        try:
            original = decode_frame(message.payload[1])
        except (IndexError, msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("given_back_unreadable", error=str(error), source=message.head.source)
            return
        if isinstance(original, rpc.Question):
            self.asks.on_lost(original.ref, retry_ms or self.asks.limits.resend_ms // 4, now_ms())
            return
        handler = self._given_back.get(type(original))
        if handler is not None:
            handler(original, retry_ms)
