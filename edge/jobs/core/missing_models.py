"""Model words: nodes say MODEL_NOT_AVAILABLE, perhaps thousands of times a second; selectors hear it now and then.

The first word about a node and service goes out at once, those of the next seconds together as one frame with their
number: the first one marks the node, the others only count. Storms make no waves: not many go out at a time, and those
that began together do not stay together. Whoever hears a node's message only notes the word here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import msgspec

from edge.core.timers import Timers
from mesh.frames import ModelMissing

#: Between two frames about the same node and service, at least; up to twice that, different for each.
INTERVAL_MS: Final = 3_000
#: Frames that go out together; the next ones follow after that time.
TOGETHER: Final = 4
PAUSE_MS: Final = 20
#: Services of one node that are told apart at a time; words about more are dropped.
SERVICES_PER_NODE_MAX: Final = 32


@dataclass(slots=True)
class _Words:
    #: The latest word; `count` is 0 while all is told.
    word: ModelMissing
    count: int


class MissingModelReports:
    """Words about missing models that were not told yet, by node and service."""

    def __init__(self, words_max: int) -> None:
        self.dropped = 0
        self._words_max = words_max
        self._words: dict[tuple[str, str], _Words] = {}
        self._services: Counter[str] = Counter()
        self._due: Timers[tuple[str, str]] = Timers()

    def note(self, word: ModelMissing, now_ms: int) -> None:
        """A node said so once more."""
        key = (word.node_id, word.service_id)
        words = self._words.get(key)
        if words is not None:
            words.word = word
            words.count += 1
        elif len(self._words) >= self._words_max or self._services[word.node_id] >= SERVICES_PER_NODE_MAX:
            self.dropped += 1
        else:
            self._words[key] = _Words(word, 1)
            self._services[word.node_id] += 1
            self._due.set(key, now_ms)

    def next_due_ms(self) -> int | None:
        """When there is a word to tell or to forget; None while there is none."""
        return self._due.next_due_ms()

    def pop_due(self, now_ms: int) -> list[ModelMissing]:
        """A frame for each node and service of which there is news, a few at a time."""
        frames: list[ModelMissing] = []
        put_off = 0
        for key in self._due.pop_due(now_ms):
            words = self._words[key]
            if not words.count:
                self._forget(key)
            elif len(frames) < TOGETHER:
                frames.append(msgspec.structs.replace(words.word, count=words.count))
                words.count = 0
                self._due.set(key, now_ms + _interval_ms(key))
            else:
                self._due.set(key, now_ms + PAUSE_MS * (1 + put_off // TOGETHER))
                put_off += 1
        return frames

    def _forget(self, key: tuple[str, str]) -> None:
        del self._words[key]
        self._services[key[0]] -= 1
        if not self._services[key[0]]:
            del self._services[key[0]]

    def check(self) -> None:
        """All bounds hold and every word has its time."""
        assert len(self._words) == len(self._due) <= self._words_max
        assert self._services == Counter(node_id for node_id, _ in self._words)
        assert all(0 < count <= SERVICES_PER_NODE_MAX for count in self._services.values())


def _interval_ms(key: tuple[str, str]) -> int:
    return INTERVAL_MS + crc32(" ".join(key).encode()) % INTERVAL_MS
