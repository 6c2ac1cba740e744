"""Asks: questions to the mesh that somebody waits for, until answered or timed out.

An ask is repeated, because whoever had it may have died. Registrations and claims may be asked twice: the later one
gets the higher epoch, so every answer is passed on and the asker keeps the highest. Every other question has one
answer, and an operator's command is repeated only if a broker gave it back: a silent selector may have obeyed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from edge.core.backoff import retry_wait_ms
from edge.core.timers import Timers
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
    """A selector's answer to a Query: what QueryAnswer says, and its payload."""

    ref: str
    status: int
    body: bytes


class MailPage(NamedTuple):
    """A selector's answer to a MailAsk: what Mail says, and its payload."""

    ref: str
    mail: Mail
    parts: tuple[bytes, ...]


#: Questions whose every answer counts.
EpochQuestion = NodeRegister | SessionClaim
Question = EpochQuestion | SessionRelease | Query | MailAsk | Post | RoomRequest | RoomSignal | PairingAsk | PairingUse
#: Answers that are frames and nothing more.
PlainAnswer = NodeRegistered | SessionClaimed | SessionReleased | Posted | RoomState | PairingCode | Paired | Failed
Reply = PlainAnswer | QueryReply | MailPage


class CallLimits(NamedTuple):
    """The bounds this core obeys, from the configuration."""

    resend_ms: int
    #: Between repeats: half of the time in which the mesh notices a peer that hangs.
    resend_early_ms_max: int
    timeout_ms: int


@dataclass(slots=True, eq=False)
class Call:
    """One question. `on_answer` hears each answer, or None once if there was none in time."""

    frame: Question
    cell: int
    on_answer: Callable[[Reply | None], None]
    end_ms: int
    #: Asked before each repeat: False once the asker is gone. An answer is still passed on then.
    may_repeat: Callable[[], bool]
    #: What follows the frame.
    payload: tuple[bytes, ...] = ()
    #: The one selector that can tell; "" = any of the cell.
    to: str = ""
    #: Repeated only if a broker gave it back.
    once: bool = False
    sends: int = 0
    broker: str = ""
    answered: bool = False


class PendingCalls:
    """All open questions of this edge."""

    def __init__(self, limits: CallLimits) -> None:
        self.limits = limits
        self.open: dict[str, Call] = {}
        self._timers: Timers[str] = Timers()

    def ask(
        self,
        frame: Question,
        cell: int,
        on_answer: Callable[[Reply | None], None],
        now_ms: int,
        may_repeat: Callable[[], bool] = lambda: True,
        *,
        payload: tuple[bytes, ...] = (),
        to: str = "",
        once: bool = False,
        timeout_ms: int = 0,
    ) -> Call:
        """Open a question. Send what is returned, and note the broker in it. `timeout_ms` 0: as long as usual."""
        assert frame.ref not in self.open
        end_ms = now_ms + (timeout_ms or self.limits.timeout_ms)
        ask = self.open[frame.ref] = Call(frame, cell, on_answer, end_ms, may_repeat, payload, to, once)
        return self._send(ask, now_ms)

    def on_answer(self, answer: Reply) -> None:
        """Pass an answer on. Of a claim that was repeated, another answer may come until its time is up."""
        ask = self.open.get(answer.ref)
        if ask is None or (ask.answered and isinstance(answer, Failed)):
            return
        ask.answered = True
        if ask.sends == 1 or not isinstance(ask.frame, EpochQuestion):
            self._close(answer.ref)
        else:
            self._timers.set(answer.ref, ask.end_ms)
        ask.on_answer(answer)

    def on_lost(self, ref: str, retry_after_ms: int, now_ms: int) -> None:
        """A broker gave the question back (Busy or Bounce): ask again soon. The one who can tell is gone: no answer."""
        ask = self.open.get(ref)
        if ask is None or ask.answered:
            return
        if ask.to:
            self._close(ref)
            ask.on_answer(None)
            return
        if ask.once:
            ask.sends = 0  # nobody has it
        self._timers.set(ref, min(now_ms + max(1, retry_after_ms), ask.end_ms))

    def next_due_ms(self) -> int | None:
        """When `tick` has something to do; None while nothing waits."""
        return self._timers.next_due_ms()

    def tick(self, now_ms: int) -> list[Call]:
        """The questions to send again; those whose time is up are closed."""
        again: list[Call] = []
        for ref in self._timers.pop_due(now_ms):
            ask = self.open[ref]
            if now_ms >= ask.end_ms:
                self._close(ref)
                if not ask.answered:
                    ask.on_answer(None)
            elif ask.may_repeat() and not ask.answered and not (ask.once and ask.sends):
                again.append(self._send(ask, now_ms))
            else:
                self._timers.set(ref, ask.end_ms)
        return again

    def _send(self, ask: Call, now_ms: int) -> Call:
        limits = self.limits
        wait_ms = retry_wait_ms(limits.resend_ms, ask.sends, limits.resend_early_ms_max, limits.timeout_ms)
        self._timers.set(ask.frame.ref, min(now_ms + wait_ms, ask.end_ms))
        ask.sends += 1
        return ask

    def _close(self, ref: str) -> None:
        del self.open[ref]
        self._timers.drop(ref)

    def check(self) -> None:
        """Every open question has a timer."""
        assert len(self._timers) == len(self.open)
