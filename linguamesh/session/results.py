"""Which utterances of a session still wait for their end, and who is told. Each ends once: by a result or an error."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from linguamesh.errors import SessionError
from linguamesh.session.result_order import ResultOrder
from linguamesh.session.translation import Translation

#: Ends that nobody has taken from `results()` or `heard()` yet; then the oldest is dropped.
UNREAD_MAX: Final = 1_000


class UnreadResults:
    """Translations that wait to be read. Ends, once it is closed and read."""

    def __init__(self) -> None:
        self._translations: deque[Translation] = deque(maxlen=UNREAD_MAX)
        self._news = asyncio.Event()
        self._closed = False

    def put(self, translation: Translation) -> None:
        """One more."""
        self._translations.append(translation)
        self._news.set()

    def close(self) -> None:
        """No more will come."""
        self._closed = True
        self._news.set()

    async def read(self) -> AsyncIterator[Translation]:
        """All of them, as they come."""
        while True:
            while self._translations:
                yield self._translations.popleft()
            if self._closed:
                return
            self._news.clear()
            await self._news.wait()


class PendingResults:
    """The utterances of the session itself, by the user's index. What has a future is told there and at once; all
    else goes to `results`, in order."""

    def __init__(self) -> None:
        self.results = UnreadResults()
        self._futures: dict[int, asyncio.Future[Translation] | None] = {}
        self._order: ResultOrder[Translation] = ResultOrder()

    def __len__(self) -> int:
        return len(self._futures)

    def add(self, index: int, future: asyncio.Future[Translation] | None) -> None:
        """A whole utterance is about to be sent. Without a future its end goes to `results`."""
        self._futures[index] = future

    def drop(self, index: int) -> None:
        """Nobody waits for this one any more."""
        self._futures.pop(index, None)
        self._put(index, None)

    def end(self, translation: Translation) -> bool:
        """Tell whoever waits; False if it has ended before."""
        index = translation.utterance_index
        if not self._order.is_new(index):
            return False
        future = self._futures.pop(index, None)
        self._put(index, translation if future is None else None)
        if future is not None and not future.done():
            future.set_result(translation)
        return True

    def fail(self, index: int, error: SessionError) -> bool:
        """End one utterance with an error."""
        error.utterance_index = index
        return self.end(Translation(utterance_index=index, error=error))

    def close(self, code: str, message: str) -> None:
        """The session is over for all of them."""
        for index in sorted(self._futures):
            self.fail(index, SessionError(code, message))
        for translation in self._order.flush():
            self.results.put(translation)
        self.results.close()

    def _put(self, index: int, translation: Translation | None) -> None:
        for ready in self._order.put(index, translation):
            self.results.put(ready)
