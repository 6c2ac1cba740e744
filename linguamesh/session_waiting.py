"""Which utterances of a session still wait for their end, and who is told. Each ends once: by a result or an error."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from linguamesh.errors import SessionError
from linguamesh.session_result import Translation

#: Ended utterances that nobody has taken from `results()` yet; then the oldest is dropped.
RESULTS_UNREAD_MAX: Final = 1_000


@dataclass(slots=True)
class Waiter:
    """One utterance on its way. Without a future its end goes to `results()`."""

    sent_ms: int
    future: asyncio.Future[Translation] | None = None


@dataclass(slots=True)
class Waiting:
    """All utterances on their way, and the ended ones that wait to be read."""

    _waiters: dict[int, Waiter] = field(default_factory=dict)
    _unread: deque[Translation] = field(default_factory=lambda: deque(maxlen=RESULTS_UNREAD_MAX))
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _over: bool = False

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, index: int, waiter: Waiter) -> None:
        """An utterance is about to be sent."""
        self._waiters[index] = waiter

    def drop(self, index: int) -> None:
        """Nobody waits for this one any more."""
        self._waiters.pop(index, None)

    def sent_ms(self, index: int) -> int | None:
        """When it was sent; None if it does not wait (any more)."""
        waiter = self._waiters.get(index)
        return waiter.sent_ms if waiter else None

    def only(self) -> int | None:
        """The index, if exactly one utterance waits."""
        return next(iter(self._waiters)) if len(self._waiters) == 1 else None

    def end(self, translation: Translation) -> bool:
        """Tell whoever waits; False if nobody does (a repeat, or it was given up)."""
        waiter = self._waiters.pop(translation.utterance_index, None)
        if waiter is None:
            return False
        if waiter.future is None:
            self._unread.append(translation)
            self._news.set()
        elif not waiter.future.done():
            waiter.future.set_result(translation)
        return True

    def fail(self, index: int, error: SessionError) -> bool:
        """End one utterance with an error."""
        error.utterance_index = index
        return self.end(Translation(utterance_index=index, error=error))

    def fail_all(self, code: str, message: str) -> None:
        """The session is over for all of them."""
        for index in list(self._waiters):
            self.fail(index, SessionError(code, message))
        self._over = True
        self._news.set()

    async def next_unread(self) -> Translation | None:
        """The next ended utterance that has no future of its own; None when the session is over."""
        while not self._unread:
            if self._over:
                return None
            self._news.clear()
            await self._news.wait()
        return self._unread.popleft()
