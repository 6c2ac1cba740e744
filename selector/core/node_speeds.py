"""Speeds of the nodes as columns, and the fleet's median speed per language pair."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Final

import numpy as np

from mesh.states.speed import ANY_PAIR, Speed
from selector.core.interner import UNKNOWN, Interner
from selector.core.kernel import ANY_PAIR_NUMBER, NOT_ASKED, SPEED_SLOTS, Columns, Floats

#: Distinct pairs; the speed of further ones counts for the node as a whole.
PAIRS_MAX: Final = 4_096
#: A peer's clock and a slow node must not overflow a column.
_RATIO_MAX: Final = 1e6
_JOBS_MIN, _JOBS_MAX = 1e-6, 1e6


class NodeSpeeds:
    """The speed columns of a node table. The table must call `forget` for removed rows."""

    def __init__(self) -> None:
        self.pairs = Interner(PAIRS_MAX, [ANY_PAIR])
        assert self.pairs.find(ANY_PAIR) == ANY_PAIR_NUMBER
        #: Node -> its pairs, each with the mean.
        self._rows: dict[str, tuple[tuple[int, float], ...]] = {}
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
        sound = _sound(speeds)
        whole = sound.pop(ANY_PAIR, None)
        known = []
        if whole is not None:
            number = self.pairs.hold(ANY_PAIR)
            known.append((number, self._put(columns, row, ANY_PAIR_NUMBER, number, whole, clock_offset_ms)))
        slot = 1
        for _, pair, speed in sorted((-speed.at_ms, pair, speed) for pair, speed in sound.items())[: SPEED_SLOTS - 1]:
            number = self.pairs.hold(pair)
            if number != UNKNOWN:
                known.append((number, self._put(columns, row, slot, number, speed, clock_offset_ms)))
                slot += 1
        self._rows[node_id] = tuple(known)
        self._prior = None

    def learn(
        self, columns: Columns, row: int, node_id: str, learned: Mapping[str, Speed], clock_offset_ms: int
    ) -> None:
        """Apply the speeds updated by one finished job; others stay. New pairs without a free slot are ignored."""
        known = dict(self._rows.get(node_id, ()))
        for pair, speed in _sound(learned).items():
            slot = self._slot_for(columns, row, pair)
            if slot is None:
                continue
            number = int(columns.speed_pair[row, slot])
            if number in known:
                self._take_away(number, known[number])
            known[number] = self._put(columns, row, slot, number, speed, clock_offset_ms)
        self._rows[node_id] = tuple(known.items())
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

    def _put(self, columns: Columns, row: int, slot: int, pair: int, speed: Speed, clock_offset_ms: int) -> float:
        """Write one speed; returns its mean."""
        columns.speed_pair[row, slot] = pair
        columns.speed_mean[row, slot] = speed.mean
        columns.speed_variance[row, slot] = speed.variance
        columns.speed_jobs[row, slot] = speed.jobs
        columns.speed_at_ms[row, slot] = speed.at_ms + clock_offset_ms
        mean = float(speed.mean)
        insort(self._means.setdefault(pair, []), mean)
        return mean

    def _take_away(self, pair: int, mean: float) -> None:
        means = self._means[pair]
        del means[bisect_left(means, mean)]
        if not means:
            del self._means[pair]

    def forget(self, node_id: str) -> None:
        """Remove a node's speeds."""
        known = self._rows.pop(node_id, ())
        if known:
            for pair, mean in known:
                self._take_away(pair, mean)
            self.pairs.release([pair for pair, _ in known])
            self._prior = None


def clear(columns: Columns, row: int) -> None:
    """Clear the speeds of this row."""
    columns.speed_pair[row] = NOT_ASKED
    columns.speed_mean[row] = columns.speed_variance[row] = columns.speed_jobs[row] = 0
    columns.speed_at_ms[row] = 0


def _sound(speeds: Mapping[str, Speed]) -> dict[str, Speed]:
    """The speeds that a column can hold."""
    return {
        pair: speed
        for pair, speed in speeds.items()
        if 0 <= speed.mean <= _RATIO_MAX and 0 <= speed.variance <= _RATIO_MAX**2 and _JOBS_MIN < speed.jobs < _JOBS_MAX
    }
