"""Order: what one listener is told of one speaker, strictly by utterance_index, each index once. Pure.

Owns which index has its turn and what waits for it; knows nothing of jobs, messages or sockets. An index ends when all
that was expected of it has come, or is known never to come. Then the next one has its turn.

    expected -> arrived  -> told, at its turn
             -> failed   -> missing (for that reason), at its turn
             -> skipped  -> ends without a word, at its turn
             -> nothing, while something later waits: missing (gap_timeout) after gap_ms

Without a first index the order begins with the lowest one that is expected before anything was told: a client may go on
counting where an earlier session ended.

An index may end without a word: after a skip, or when something of it was told and the rest never came. So whoever
asks what has ended looks at `next_index`, not at the last Tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from mesh.config.sessions import SessionConfig
from mesh.errors import ErrorCode, PeerError
from mesh.words import MissingReason

#: Results that nobody expected here (of a session that was resumed) may be this many times pending_max ahead: the
#: client may not have acknowledged as many as may wait. Further ones are dropped, so that an order stays small.
_REACH: Final = 2
#: Indices that were given up and are remembered, only to tell a late result from a repeated one.
_GIVEN_UP_KEPT: Final = 32


class ResultOrderLimits(NamedTuple):
    """The bounds this core obeys, from the configuration."""

    gap_ms: int
    pending_max: int

    @classmethod
    def of(cls, config: SessionConfig) -> ResultOrderLimits:
        """As the configuration says."""
        return cls(config.gap_ms, config.pending_max)


@dataclass(frozen=True, slots=True)
class Release:
    """Tell this now. `is_last`: the index has ended with it."""

    index: int
    item: object
    is_last: bool


@dataclass(frozen=True, slots=True)
class Missing:
    """Tell that there will be no result; the index has ended."""

    index: int
    reason: str


Said: TypeAlias = list[Release | Missing]


class _Slot:
    """An index that has not ended, of which something is expected or known."""

    __slots__ = ("came_ms", "is_closed", "items", "reason", "told", "under_way")

    def __init__(self, under_way: int) -> None:
        #: Jobs whose end is not known.
        self.under_way = under_way
        #: Results that wait for their turn.
        self.items: tuple[object, ...] = ()
        #: Why it will be missing; "" = it will not.
        self.reason = ""
        #: Since when earlier indices hold it up; None = there is nothing to tell yet.
        self.came_ms: int | None = None
        #: A result of it was told: it can no longer be missing.
        self.told = False
        #: It was evicted or skipped: whatever else comes of it is not wanted.
        self.is_closed = False


class ResultOrder:
    """One listener, one speaker. Times never go back."""

    __slots__ = (
        "_begins", "_given_up", "_limits", "_slots", "_waiting", "evicted", "gaps", "late", "next_due_ms", "next_index",
        "repeated",
    )  # fmt: skip

    def __init__(self, limits: ResultOrderLimits, next_index: int | None = 0) -> None:
        """None: it begins with the first index it hears of, or an earlier one that is expected before any has ended."""
        self._limits = limits
        self._begins = next_index is None
        #: Everything below has ended.
        self.next_index = next_index or 0
        #: When to tick; None = nothing is held up.
        self.next_due_ms: int | None = None
        #: Results dropped because their index was given up before, or had its result already.
        self.late = 0
        self.repeated = 0
        #: Results dropped because too many waited, and indices that ended because their time was up.
        self.evicted = 0
        self.gaps = 0
        self._slots: dict[int, _Slot] = {}
        self._waiting = 0
        self._given_up: tuple[int, ...] = ()

    def expect(self, index: int, now_ms: int) -> None:
        """A job for that index is under way; once more for each further job. PeerError if it may not be."""
        self.check_place(index)
        self._may_begin(index)
        if self._begins:
            self.next_index = min(self.next_index, index)
        slot = self._slots.get(index)
        if slot is None:
            slot = self._slots[index] = _Slot(0)
        slot.under_way += 1
        if slot.reason:
            # It had failed and is tried again before its turn: nothing waits for its turn any more.
            slot.reason, slot.came_ms = "", None
            self._set_due()

    def check_place(self, index: int) -> None:
        """PeerError if nothing more can be told of that index, or nothing yet."""
        if self.has_ended(index):
            raise PeerError(ErrorCode.UTTERANCE_ENDED, f"utterance {index} has ended")
        if not self.reaches(index):
            text = f"utterance {index} is too far ahead: {self.next_index} has not ended"
            raise PeerError(ErrorCode.TOO_MANY_UTTERANCES, text)

    def has_ended(self, index: int) -> bool:
        """True if nothing more can be told of that index."""
        slot = self._slots.get(index)
        if self._begins and (not self._slots or max(self._slots) - self._limits.pending_max < index < self.next_index):
            return False
        return index < self.next_index or (slot is not None and slot.is_closed)

    def reaches(self, index: int) -> bool:
        """False if so much before that index has not ended that nothing can be expected of it yet."""
        is_first = self._begins and not self._slots
        return is_first or index < self.next_index + self._limits.pending_max

    def arrive(self, index: int, item: object, now_ms: int) -> Said:
        """One of the expected results came; what is to be told now. Also for an index that nobody expected here."""
        slot = self._wanting(index)
        if slot is None:
            self._count_unwanted(index)
            return []
        slot.under_way -= 1
        slot.items = (*slot.items, item)
        self._waiting += 1
        return self._came(slot, now_ms)

    def fail(self, index: int, reason: str, now_ms: int) -> Said:
        """One of the expected results will never come; what is to be told now."""
        assert reason, "a missing result has a reason"
        slot = self._wanting(index)
        if slot is None:
            return []
        slot.under_way -= 1
        if slot.under_way or slot.items or slot.told:
            return self._settle()
        slot.reason = reason
        return self._came(slot, now_ms)

    def skip(self, index: int, now_ms: int) -> Said:
        """This listener gets nothing (more) of that index, without a word; what is to be told now."""
        slot = self._wanting(index)
        if slot is None:
            slot = self._slots.get(index)
        if slot is None:
            return []
        self._shut(slot, "")
        return self._came(slot, now_ms)

    def tick(self, now_ms: int) -> Said:
        """Give up every index that held something up for its whole window; what is to be told now."""
        if self.next_due_ms is None or now_ms < self.next_due_ms:
            return []
        since_ms = now_ms - self._limits.gap_ms
        said = self._give_up_before(max(index for index, came_ms in self._all_that_came() if came_ms <= since_ms))
        return said + self._settle()

    def close(self) -> Said:
        """Tell what waits, in order; what is unresolved before it is missing. What is after it ends without a word."""
        said = self._give_up_before(max((index + 1 for index, _ in self._all_that_came()), default=self.next_index))
        for index in sorted(self._slots):
            self._remember_given_up(index)
            self.next_index = index + 1
        self._slots.clear()
        return said + self._settle()

    @property
    def end(self) -> int:
        """The index after all that were expected so far."""
        return max(self._slots, default=self.next_index - 1) + 1

    def waits_for(self, index: int) -> bool:
        """True if a job for that index is under way and its result would be taken."""
        slot = self._slots.get(index)
        return slot is not None and slot.under_way > 0

    def check(self) -> None:
        """Assert what always holds; tests call it after each step."""
        limits, ahead = self._limits, [index for index in self._slots if index != self.next_index]
        assert all(self.next_index < index < self.next_index + _REACH * limits.pending_max for index in ahead)
        assert self._waiting == sum(len(slot.items) for slot in self._slots.values()) <= limits.pending_max
        head = self._slots.get(self.next_index)
        assert head is None or (head.under_way > 0 and not head.items), "the head has said all it can"
        for slot in self._slots.values():
            assert slot.under_way > 0 or slot.came_ms is not None, "what is resolved holds its place"
            assert not (slot.is_closed and (slot.items or slot.under_way))
        assert not any(self._slots[index].told for index in ahead), "only the head is told"
        came = [came_ms for index in ahead if (came_ms := self._slots[index].came_ms) is not None]
        assert self.next_due_ms == (min(came) + limits.gap_ms if came else None)
        assert len(self._given_up) <= _GIVEN_UP_KEPT and all(index < self.next_index for index in self._given_up)

    # --- inside ---------------------------------------------------------------------------------------

    def _wanting(self, index: int) -> _Slot | None:
        """The slot that still wants a result; None if nothing is wanted of that index."""
        self._may_begin(index)
        if not self.next_index <= index < self.next_index + _REACH * self._limits.pending_max:
            return None
        slot = self._slots.get(index)
        if slot is None:
            slot = self._slots[index] = _Slot(1)
        return slot if slot.under_way else None

    def _may_begin(self, index: int) -> None:
        if self._begins and not self._slots:
            self.next_index = index

    def _count_unwanted(self, index: int) -> None:
        slot = self._slots.get(index)
        if index > self.next_index and slot is None:
            self.evicted += 1  # beyond reach
        elif index in self._given_up or (slot is not None and not slot.items):
            self.late += 1
        else:
            self.repeated += 1

    def _came(self, slot: _Slot, now_ms: int) -> Said:
        """There is something of it to tell, or its end is known."""
        if slot.came_ms is None:
            slot.came_ms = now_ms
        return self._settle()

    def _settle(self) -> Said:
        """Say all that has its turn, and leave everything within its bounds."""
        said = self._drain()
        if self._waiting > self._limits.pending_max:
            farthest = self._slots[max(index for index, slot in self._slots.items() if slot.items)]
            self.evicted += len(farthest.items)
            self._shut(farthest, MissingReason.PENDING_OVERFLOW_EVICT)
        if not self._slots:
            self._slots.clear()  # gives the table's memory back: most of the time nothing is under way
        self._set_due()
        return said

    def _drain(self) -> Said:
        """Tell from the head on, up to the first index that has not ended."""
        said: Said = []
        while (slot := self._slots.get(self.next_index)) is not None:
            items, slot.items = slot.items, ()
            self._waiting -= len(items)
            slot.told = slot.told or bool(items)
            for place, item in enumerate(items, 1):
                said.append(Release(self.next_index, item, is_last=place == len(items) and not slot.under_way))
            self._begins = self._begins and not (said or slot.told)
            if slot.under_way:
                break
            self._begins = False
            if slot.reason:
                said.append(Missing(self.next_index, slot.reason))
                self._remember_given_up(self.next_index)
            del self._slots[self.next_index]
            self.next_index += 1
        return said

    def _give_up_before(self, end: int) -> Said:
        """End every index below `end`: those that can be told are, the others had their time."""
        said = self._drain()
        self._begins = False
        while self.next_index < end:
            slot = self._slots.pop(self.next_index, None)
            if slot is None or not slot.told:
                said.append(Missing(self.next_index, MissingReason.GAP_TIMEOUT))
            self.gaps += 1
            self._remember_given_up(self.next_index)
            self.next_index += 1
            said += self._drain()
        return said

    def _shut(self, slot: _Slot, reason: str) -> None:
        """Drop what waits of it; nothing else of it is wanted."""
        self._waiting -= len(slot.items)
        slot.items, slot.under_way, slot.is_closed, slot.reason = (), 0, True, reason

    def _set_due(self) -> None:
        """The head's window opens when the first later index comes; without one there is none."""
        first_ms = min((came_ms for index, came_ms in self._all_that_came() if index != self.next_index), default=None)
        self.next_due_ms = None if first_ms is None else first_ms + self._limits.gap_ms

    def _all_that_came(self) -> Iterator[tuple[int, int]]:
        return ((index, slot.came_ms) for index, slot in self._slots.items() if slot.came_ms is not None)

    def _remember_given_up(self, index: int) -> None:
        self._given_up = (*self._given_up, index)[-_GIVEN_UP_KEPT:]
