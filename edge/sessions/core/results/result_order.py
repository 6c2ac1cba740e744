"""ResultOrder: reorder buffer of results for one listener of one speaker, by utterance_index, each index once. Pure.

Owns which index has its turn and the results that are buffered behind it (head-of-line blocking); knows nothing of
jobs, messages or sockets. An index ends when every expected result has arrived or has failed. Then the next one has its
turn.

    expected -> arrived  -> Release, at its turn
             -> failed   -> Missing (for that reason), at its turn
             -> skipped  -> ends silently, at its turn
             -> none of these, while a later one is ready: Missing (gap_timeout) after gap_ms

Without a first index the order begins with the lowest one that is expected before any release: a client may continue
the numbers of an earlier session.

An index may end silently: after a skip, or when one of its results was released and the others timed out. So
`next_index`, not the last Release, says which indices have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from edge.core.record import Record
from mesh.config.sessions import SessionConfig
from mesh.errors import ErrorCode, PeerError
from mesh.words import MissingReason

#: Results that were not expected here (of a session that was resumed) may be this many times pending_max ahead: the
#: client may have as many unacked ones as may be buffered. Further ones are dropped, so that an order stays small.
_REACH: Final = 2


class ResultOrderLimits(NamedTuple):
    """Head-of-line timeout and bound of buffered results, from the configuration."""

    gap_ms: int
    pending_max: int

    @classmethod
    def of(cls, config: SessionConfig) -> ResultOrderLimits:
        """From the configuration."""
        return cls(config.gap_ms, config.pending_max)


class Release(Record, frozen=True):
    """Send this result now."""

    index: int
    item: object


class Missing(Record, frozen=True):
    """Send now that there is no result; the index has ended."""

    index: int
    reason: str


Released: TypeAlias = list[Release | Missing]


@dataclass(slots=True, eq=False)
class _Slot:
    """An index that has not ended, with expected or buffered results."""

    #: Results that are expected.
    pending: int
    #: Results that are buffered until their turn.
    items: tuple[object, ...] = ()
    #: Why it will be missing; "" = it will not.
    reason: str = ""
    #: Since when it is ready but blocked by earlier indices; None = it is not ready.
    ready_ms: int | None = None
    #: A result of it was released: it can no longer be missing.
    is_released: bool = False
    #: It was evicted or skipped: further results of it are dropped.
    is_closed: bool = False


class ResultOrder:
    """One listener, one speaker. Times never go back."""

    __slots__ = ("_begins", "_buffered", "_limits", "_slots", "next_due_ms", "next_index")

    def __init__(self, limits: ResultOrderLimits, next_index: int | None = 0) -> None:
        """None: it begins with the first index it gets, or an earlier one that is expected before any has ended."""
        self._limits = limits
        self._begins = next_index is None
        #: Everything below has ended.
        self.next_index = next_index or 0
        #: When to tick; None = no index is blocked.
        self.next_due_ms: int | None = None
        self._slots: dict[int, _Slot] = {}
        self._buffered = 0

    def expect(self, index: int, now_ms: int) -> None:
        """Expect a result of that index; once more for each further job. PeerError if that is not possible."""
        ahead = index - self.next_index
        if not self._begins and 0 <= ahead < self._limits.pending_max and index not in self._slots:
            self._slots[index] = _Slot(1)  # the usual case: it is new
            return
        if self.has_ended(index):
            raise PeerError(ErrorCode.UTTERANCE_ENDED, f"utterance {index} has ended")
        if not self.reaches(index):
            text = f"utterance {index} is too far ahead: {self.next_index} has not ended"
            raise PeerError(ErrorCode.TOO_MANY_UTTERANCES, text)
        if self._begins:
            self.next_index = min(self.next_index, index) if self._slots else index
        slot = self._slots.get(index)
        if slot is None:
            slot = self._slots[index] = _Slot(0)
        slot.pending += 1
        if slot.reason:
            # It had failed and has another attempt before its turn: it is not ready any more.
            slot.reason, slot.ready_ms = "", None
            self._set_due()

    def has_ended(self, index: int) -> bool:
        """True if no further result of that index can be released."""
        slot = self._slots.get(index)
        if self._begins and (not self._slots or max(self._slots) - self._limits.pending_max < index < self.next_index):
            return False
        return index < self.next_index or (slot is not None and slot.is_closed)

    def reaches(self, index: int) -> bool:
        """False if too many earlier indices have not ended to expect that one."""
        is_first = self._begins and not self._slots
        return is_first or index < self.next_index + self._limits.pending_max

    def arrive(self, index: int, item: object, now_ms: int) -> Released:
        """A result, expected or not, arrived; the releases. Deduplicated: a late or second one is dropped."""
        slots = self._slots
        if index == self.next_index and len(slots) == 1 and index in slots and slots[index].pending == 1:
            # The usual case: it is the last result of the head, and nothing waits behind it.
            slots.clear()
            self._begins = False
            self.next_index = index + 1
            return [Release(index, item)]
        slot = self._accepting(index)
        if slot is None:
            return []
        slot.pending -= 1
        slot.items = (*slot.items, item)
        self._buffered += 1
        return self._settle(slot, now_ms)

    def fail(self, index: int, reason: str, now_ms: int) -> Released:
        """One of the expected results failed; the releases that follow."""
        assert reason, "a missing result has a reason"
        slot = self._accepting(index)
        if slot is None:
            return []
        slot.pending -= 1
        if slot.pending or slot.items or slot.is_released:
            return self._settle()
        slot.reason = reason
        return self._settle(slot, now_ms)

    def skip(self, index: int, now_ms: int) -> Released:
        """This listener gets no (further) result of that index; the releases that follow."""
        slot = self._accepting(index)
        if slot is None:
            slot = self._slots.get(index)
        if slot is None:
            return []
        self._close(slot, "")
        return self._settle(slot, now_ms)

    def tick(self, now_ms: int) -> Released:
        """Abandon every index that blocked a ready one for gap_ms; the releases that follow."""
        if self.next_due_ms is None or now_ms < self.next_due_ms:
            return []
        since_ms = now_ms - self._limits.gap_ms
        released = self._abandon_before(max(index for index, ready_ms in self._all_ready() if ready_ms <= since_ms))
        return released + self._settle()

    @property
    def end(self) -> int:
        """The index after the last one that was expected so far."""
        return max(self._slots, default=self.next_index - 1) + 1

    def check(self) -> None:
        """Assert the invariants; tests call it after each step."""
        limits, ahead = self._limits, [index for index in self._slots if index != self.next_index]
        assert all(self.next_index < index < self.next_index + _REACH * limits.pending_max for index in ahead)
        assert self._buffered == sum(len(slot.items) for slot in self._slots.values()) <= limits.pending_max
        head = self._slots.get(self.next_index)
        assert head is None or (head.pending > 0 and not head.items), "the head has released all it can"
        for slot in self._slots.values():
            assert slot.pending > 0 or slot.ready_ms is not None, "a resolved index is ready"
            assert not (slot.is_closed and (slot.items or slot.pending))
        assert not any(self._slots[index].is_released for index in ahead), "only the head is released"
        ready = [ready_ms for index in ahead if (ready_ms := self._slots[index].ready_ms) is not None]
        assert self.next_due_ms == (min(ready) + limits.gap_ms if ready else None)

    # --- inside ---------------------------------------------------------------------------------------

    def _accepting(self, index: int) -> _Slot | None:
        """The slot of an index that still accepts a result; None if it does not."""
        if self._begins and not self._slots:
            self.next_index = index
        if not self.next_index <= index < self.next_index + _REACH * self._limits.pending_max:
            return None
        slot = self._slots.get(index)
        if slot is None:
            slot = self._slots[index] = _Slot(1)
        return slot if slot.pending else None

    def _settle(self, ready: _Slot | None = None, now_ms: int = 0) -> Released:
        """Release every index that has its turn, and evict beyond the bound. `ready` has a result, or its end."""
        if ready is not None and ready.ready_ms is None:
            ready.ready_ms = now_ms
        released = self._drain()
        if self._buffered > self._limits.pending_max:
            farthest = self._slots[max(index for index, slot in self._slots.items() if slot.items)]
            self._close(farthest, MissingReason.PENDING_OVERFLOW_EVICT)
        if self._slots:
            self._set_due()
        else:
            self._slots.clear()  # frees the table's memory: most of the time nothing is pending
            self.next_due_ms = None
        return released

    def _drain(self) -> Released:
        """Release from the head on, up to the first index that has not ended."""
        released: Released = []
        while (slot := self._slots.get(self.next_index)) is not None:
            items, slot.items = slot.items, ()
            self._buffered -= len(items)
            slot.is_released = slot.is_released or bool(items)
            released += [Release(self.next_index, item) for item in items]
            self._begins = self._begins and not (released or slot.is_released)
            if slot.pending:
                break
            self._begins = False
            if slot.reason:
                released.append(Missing(self.next_index, slot.reason))
            del self._slots[self.next_index]
            self.next_index += 1
        return released

    def _abandon_before(self, end: int) -> Released:
        """End every index below `end`: ready ones are released, the others are missing."""
        released = self._drain()
        self._begins = False
        while self.next_index < end:
            slot = self._slots.pop(self.next_index, None)
            if slot is None or not slot.is_released:
                released.append(Missing(self.next_index, MissingReason.GAP_TIMEOUT))
            self.next_index += 1
            released += self._drain()
        return released

    def _close(self, slot: _Slot, reason: str) -> None:
        """Drop its buffered results, and any that arrive later."""
        self._buffered -= len(slot.items)
        slot.items, slot.pending, slot.is_closed, slot.reason = (), 0, True, reason

    def _set_due(self) -> None:
        """The head's timeout begins when the first later index is ready; without one there is none."""
        first_ms = min((ready_ms for index, ready_ms in self._all_ready() if index != self.next_index), default=None)
        self.next_due_ms = None if first_ms is None else first_ms + self._limits.gap_ms

    def _all_ready(self) -> Iterator[tuple[int, int]]:
        return ((index, slot.ready_ms) for index, slot in self._slots.items() if slot.ready_ms is not None)
