"""RPC: pending calls to selectors, each retried with backoff until it has a reply or times out.

A call is retried because the selector that had it may have died. Registrations and claims may be executed twice: the
later one gets the higher epoch, so every reply is delivered and the caller keeps the highest. Every other call has one
reply. An operator's command is retried only if a broker returned it: a selector that does not reply may have executed
it.

`on_reply` and `may_retry` are callbacks of the rim, which registers the call and waits for its reply. They are stored
here and not interpreted; all decisions (when to retry, when a call is over) depend on data alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from edge.core.backoff import retry_wait_ms
from edge.core.timers import Timers, Wake, no_wake
from mesh.frames import (
    Failed,
    Mail,
    MailAsk,
    NodeRegister,
    NodeRegistered,
    Paired,
    PairingAsk,
    PairingCode,
    PairingUse,
    Post,
    Posted,
    Query,
    RoomRequest,
    RoomSignal,
    RoomState,
    SessionClaim,
    SessionClaimed,
    SessionRelease,
    SessionReleased,
)


class QueryReply(NamedTuple):
    """The reply to a Query: the fields of QueryAnswer, and its payload."""

    ref: str
    status: int
    body: bytes


class MailPage(NamedTuple):
    """The reply to a MailAsk: the Mail frame, and its payload."""

    ref: str
    mail: Mail
    parts: tuple[bytes, ...]


#: Calls of which every reply is delivered.
EpochCall = NodeRegister | SessionClaim
CallFrame = EpochCall | SessionRelease | Query | MailAsk | Post | RoomRequest | RoomSignal | PairingAsk | PairingUse
#: Replies without a payload.
PlainReply = NodeRegistered | SessionClaimed | SessionReleased | Posted | RoomState | PairingCode | Paired | Failed
Reply = PlainReply | QueryReply | MailPage


class CallLimits(NamedTuple):
    """Bounds of calls, from the configuration."""

    retry_ms: int
    #: Cap of the first retry intervals: see edge.link.link.early_ms_max.
    retry_early_ms_max: int
    timeout_ms: int


@dataclass(slots=True, eq=False)
class Call:
    """One call. `on_reply` gets each reply, or None once if there was none in time."""

    frame: CallFrame
    cell: int
    on_reply: Callable[[Reply | None], None]
    end_ms: int
    #: Called before each retry: False once the caller is gone. A reply is still delivered then.
    may_retry: Callable[[], bool]
    #: The parts behind the frame.
    payload: tuple[bytes, ...] = ()
    #: The one selector that can reply; "" = any of the cell.
    to: str = ""
    #: A command: retried only if a broker returned it.
    once: bool = False
    sends: int = 0
    broker: str = ""
    has_reply: bool = False


class PendingCalls:
    """All pending calls of this edge."""

    def __init__(self, limits: CallLimits, wake: Wake = no_wake) -> None:
        self.limits = limits
        self.open: dict[str, Call] = {}
        self.timers: Timers[str] = Timers(wake)

    def ask(
        self,
        frame: CallFrame,
        cell: int,
        on_reply: Callable[[Reply | None], None],
        now_ms: int,
        may_retry: Callable[[], bool] = lambda: True,
        *,
        payload: tuple[bytes, ...] = (),
        to: str = "",
        once: bool = False,
        timeout_ms: int = 0,
    ) -> Call:
        """Register a call. The rim must send the returned one, and set its `broker`. `timeout_ms` 0: the default."""
        assert frame.ref not in self.open
        end_ms = now_ms + (timeout_ms or self.limits.timeout_ms)
        call = self.open[frame.ref] = Call(frame, cell, on_reply, end_ms, may_retry, payload, to, once)
        return self._send(call, now_ms)

    def on_answer(self, reply: Reply) -> None:
        """Deliver a reply. A claim that was retried may have another reply until its timeout."""
        call = self.open.get(reply.ref)
        if call is None or (call.has_reply and isinstance(reply, Failed)):
            return
        call.has_reply = True
        if call.sends == 1 or not isinstance(call.frame, EpochCall):
            self._close(reply.ref)
        else:
            self.timers.set(reply.ref, call.end_ms)
        call.on_reply(reply)

    def on_lost(self, ref: str, retry_after_ms: int, now_ms: int) -> None:
        """A broker returned the call (Busy or Bounce): retry soon. If the one selector that can reply is gone: None."""
        call = self.open.get(ref)
        if call is None or call.has_reply:
            return
        if call.to:
            self._close(ref)
            call.on_reply(None)
            return
        if call.once:
            call.sends = 0  # no selector has it
        self.timers.set(ref, min(now_ms + max(1, retry_after_ms), call.end_ms))

    def tick(self, now_ms: int) -> list[Call]:
        """The calls to retry; those that timed out are closed."""
        retries: list[Call] = []
        for ref in self.timers.pop_due(now_ms):
            call = self.open[ref]
            if now_ms >= call.end_ms:
                self._close(ref)
                if not call.has_reply:
                    call.on_reply(None)
            elif call.may_retry() and not call.has_reply and not (call.once and call.sends):
                retries.append(self._send(call, now_ms))
            else:
                self.timers.set(ref, call.end_ms)
        return retries

    def _send(self, call: Call, now_ms: int) -> Call:
        limits = self.limits
        wait_ms = retry_wait_ms(limits.retry_ms, call.sends, limits.retry_early_ms_max, limits.timeout_ms)
        self.timers.set(call.frame.ref, min(now_ms + wait_ms, call.end_ms))
        call.sends += 1
        return call

    def _close(self, ref: str) -> None:
        del self.open[ref]
        self.timers.drop(ref)

    def check(self) -> None:
        """Every pending call has a timer."""
        self.timers.check()
        assert len(self.timers) == len(self.open)
