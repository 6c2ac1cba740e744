"""Speeds of the nodes as columns, and the fleet's median speed per language pair."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from mesh.states.speed import ANY_PAIR, Speed
from selector.core.interner import UNKNOWN, Interner
from selector.core.kernel import ANY_PAIR_NUMBER, NOT_ASKED, SPEED_SLOTS, Columns, Floats

#: Distinct pairs; the speed of further ones counts for the node as a whole.
PAIRS_MAX: Final = 4_096
#: A peer's clock and a slow node must not overflow a column.
_RATIO_MAX: Final = 1e6
_JOBS_MIN, _JOBS_MAX = 1e-6, 1e6


class _Known(NamedTuple):
    """One speed of one node."""

    pair: int
    mean: float


class NodeSpeeds:
    """The speed columns of a node table. The table must call `forget` for removed rows."""

    def __init__(self) -> None:
        self.pairs = Interner(PAIRS_MAX, [ANY_PAIR])
        assert self.pairs.find(ANY_PAIR) == ANY_PAIR_NUMBER
        self._rows: dict[str, tuple[_Known, ...]] = {}
        #: Per pair the means of all nodes, in order.
        self._means: dict[int, list[float]] = {}
        self._prior: Floats | None = None

    def prior(self) -> Floats:
        """Per pair the speed of the fleet, -1 where nothing is known. The same array until something changes.

        The median of the nodes: a few stuck or broken ones must not make the others look fast.
        """
        if self._prior is None:
            prior = np.full(self.pairs.size, -1.0, dtype=np.float64)
            for pair, means in self._means.items():
                prior[pair] = means[(len(means) - 1) // 2]
            self._prior = prior
        return self._prior

    def write(
        self, columns: Columns, row: int, node_id: str, speeds: Mapping[str, Speed], clock_offset_ms: int
    ) -> None:
        """Replace a node's speeds. Of too many pairs the latest are stored."""
        self.forget(node_id)
        clear(columns, row)
        ordered = sorted(
            ((pair, speed) for pair, speed in speeds.items() if pair != ANY_PAIR and _is_sound(speed)),
            key=lambda item: (-item[1].at_ms, item[0]),
        )
        slot = 1
        known = []
        whole = speeds.get(ANY_PAIR)
        if whole is not None and _is_sound(whole):
            known.append(_put(columns, row, ANY_PAIR_NUMBER, self.pairs.hold(ANY_PAIR), whole, clock_offset_ms))
        for pair, speed in ordered[: SPEED_SLOTS - 1]:
            number = self.pairs.hold(pair)
            if number != UNKNOWN:
                known.append(_put(columns, row, slot, number, speed, clock_offset_ms))
                slot += 1
        for one in known:
            self._add(one)
        self._rows[node_id] = tuple(known)
        self._prior = None

    def learn(
        self, columns: Columns, row: int, node_id: str, learned: Mapping[str, Speed], clock_offset_ms: int
    ) -> None:
        """Apply the speeds updated by one finished job; others stay. New pairs without a free slot are ignored."""
        known = {one.pair: one for one in self._rows.get(node_id, ())}
        for pair, speed in learned.items():
            slot = self._slot_for(columns, row, pair) if _is_sound(speed) else None
            if slot is None:
                continue
            number = int(columns.speed_pair[row, slot])
            if number in known:
                self._take_away(known[number])
            known[number] = _put(columns, row, slot, number, speed, clock_offset_ms)
            self._add(known[number])
        self._rows[node_id] = tuple(known.values())
        self._prior = None

    def read(self, columns: Columns, row: int) -> dict[str, Speed]:
        """The speeds of the node at a row."""
        return {
            self.pairs.string(number): Speed(
                float(columns.speed_mean[row, slot]),
                float(columns.speed_variance[row, slot]),
                float(columns.speed_jobs[row, slot]),
                int(columns.speed_at_ms[row, slot]),
            )
            for slot, number in enumerate(columns.speed_pair[row].tolist())
            if number >= 0
        }

    def _slot_for(self, columns: Columns, row: int, pair: str) -> int | None:
        """The slot of a pair in a row; a new one if it has none and one is free, else None."""
        taken = columns.speed_pair[row].tolist()
        number = self.pairs.find(pair)
        if number in taken:
            return int(taken.index(number))
        first = ANY_PAIR_NUMBER if pair == ANY_PAIR else 1
        if NOT_ASKED not in taken[first : first + 1 if pair == ANY_PAIR else None]:
            return None
        number = self.pairs.hold(pair)
        if number == UNKNOWN:
            return None
        slot = taken.index(NOT_ASKED, first)
        columns.speed_pair[row, slot] = number
        return int(slot)

    def _add(self, one: _Known) -> None:
        insort(self._means.setdefault(one.pair, []), one.mean)

    def _take_away(self, one: _Known) -> None:
        means = self._means[one.pair]
        del means[bisect_left(means, one.mean)]
        if not means:
            del self._means[one.pair]

    def forget(self, node_id: str) -> None:
        """Remove a node's speeds."""
        for one in self._rows.pop(node_id, ()):
            self._take_away(one)
            self.pairs.release([one.pair])
            self._prior = None


def clear(columns: Columns, row: int) -> None:
    """Clear the speeds of this row."""
    columns.speed_pair[row] = NOT_ASKED
    columns.speed_mean[row] = columns.speed_variance[row] = columns.speed_jobs[row] = 0
    columns.speed_at_ms[row] = 0


def _is_sound(speed: Speed) -> bool:
    is_speed = 0 <= speed.mean <= _RATIO_MAX and 0 <= speed.variance <= _RATIO_MAX**2
    return is_speed and _JOBS_MIN < speed.jobs < _JOBS_MAX


def _put(columns: Columns, row: int, slot: int, pair: int, speed: Speed, clock_offset_ms: int) -> _Known:
    columns.speed_pair[row, slot] = pair
    columns.speed_mean[row, slot] = speed.mean
    columns.speed_variance[row, slot] = speed.variance
    columns.speed_jobs[row, slot] = speed.jobs
    columns.speed_at_ms[row, slot] = speed.at_ms + clock_offset_ms
    return _Known(pair, float(speed.mean))
