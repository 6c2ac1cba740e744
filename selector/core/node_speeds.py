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


class SpeedWrite(NamedTuple):
    """One speed as it was written into the columns."""

    row: int
    slot: int
    pair: int
    mean: float
    variance: float
    jobs: float
    at_ms: int

    def put(self, columns: Columns) -> None:
        """Write it."""
        row, slot, pair, mean, variance, jobs, at_ms = self
        columns.speed_pair[row, slot] = pair
        columns.speed_mean[row, slot] = mean
        columns.speed_variance[row, slot] = variance
        columns.speed_jobs[row, slot] = jobs
        columns.speed_at_ms[row, slot] = at_ms


class NodeSpeeds:
    """The speed columns of a node table. The table must call `forget` for removed rows."""

    def __init__(self) -> None:
        self.pairs = Interner(PAIRS_MAX, [ANY_PAIR])
        assert self.pairs.find(ANY_PAIR) == ANY_PAIR_NUMBER
        #: Node -> pair -> its slot and the mean.
        self._rows: dict[str, dict[int, tuple[int, float]]] = {}
        #: Per pair the means of all nodes, in order.
        self._means: dict[int, list[float]] = {}
        self._prior: Floats | None = None
        #: Pairs whose entry in `_prior` is outdated.
        self._outdated: set[int] = set()

    def prior(self) -> Floats:
        """Per pair the speed of the fleet, -1 where nothing is known. The same array until something changes.

        The median of the nodes: a few stuck or broken ones must not make the others look fast.
        """
        prior = self._prior
        if prior is None or len(prior) != self.pairs.size:
            prior = self._prior = np.full(self.pairs.size, -1.0, dtype=np.float64)
            self._outdated.update(self._means)
        elif self._outdated:
            prior = self._prior = prior.copy()  # a recording may hold the old one
        for pair in self._outdated:
            means = self._means.get(pair)
            prior[pair] = means[(len(means) - 1) // 2] if means else -1.0
        self._outdated.clear()
        return prior

    def write(
        self, columns: Columns, row: int, node_id: str, speeds: Mapping[str, Speed], clock_offset_ms: int
    ) -> None:
        """Replace a node's speeds. Of too many pairs the latest are stored."""
        self.forget(node_id)
        clear(columns, row)
        sound = _sound(speeds)
        whole = sound.pop(ANY_PAIR, None)
        known: dict[int, tuple[int, float]] = {}
        if whole is not None:
            number = self.pairs.hold(ANY_PAIR)
            self._put(columns, known, row, ANY_PAIR_NUMBER, number, whole, clock_offset_ms)
        slot = 1
        for _, pair, speed in sorted((-speed.at_ms, pair, speed) for pair, speed in sound.items())[: SPEED_SLOTS - 1]:
            number = self.pairs.hold(pair)
            if number != UNKNOWN:
                self._put(columns, known, row, slot, number, speed, clock_offset_ms)
                slot += 1
        self._rows[node_id] = known
        self._prior = None

    def learn(
        self, columns: Columns, row: int, node_id: str, learned: Mapping[str, Speed], clock_offset_ms: int
    ) -> list[SpeedWrite]:
        """Apply the speeds updated by one finished job; others stay. New pairs without a free slot are ignored.

        Returns what was written.
        """
        known = self._rows.setdefault(node_id, {})
        written = []
        for pair, speed in learned.items():
            if not _is_sound(speed):
                continue
            number = self.pairs.find(pair)
            if number in known:
                slot, mean = known[number]
                self._take_away(number, mean)
            else:
                found = self._new_slot(columns, row, pair)
                if found is None:
                    continue
                number, slot = found
            written.append(self._put(columns, known, row, slot, number, speed, clock_offset_ms))
        return written

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

    def _new_slot(self, columns: Columns, row: int, pair: str) -> tuple[int, int] | None:
        """A number and a slot for a pair that the row does not have; None if there is no room."""
        taken = columns.speed_pair[row].tolist()
        first = ANY_PAIR_NUMBER if pair == ANY_PAIR else 1
        if NOT_ASKED not in taken[first : first + 1 if pair == ANY_PAIR else None]:
            return None
        number = self.pairs.hold(pair)
        return None if number == UNKNOWN else (number, taken.index(NOT_ASKED, first))

    def _put(
        self,
        columns: Columns,
        known: dict[int, tuple[int, float]],
        row: int,
        slot: int,
        pair: int,
        speed: Speed,
        clock_offset_ms: int,
    ) -> SpeedWrite:
        """Write one speed, and count it for the fleet."""
        mean = float(speed.mean)
        written = SpeedWrite(row, slot, pair, mean, speed.variance, speed.jobs, speed.at_ms + clock_offset_ms)
        written.put(columns)
        known[pair] = (slot, mean)
        insort(self._means.setdefault(pair, []), mean)
        self._outdated.add(pair)
        return written

    def _take_away(self, pair: int, mean: float) -> None:
        means = self._means[pair]
        del means[bisect_left(means, mean)]
        if not means:
            del self._means[pair]
        self._outdated.add(pair)

    def forget(self, node_id: str) -> None:
        """Remove a node's speeds."""
        known = self._rows.pop(node_id, None)
        if known:
            for pair, (_, mean) in known.items():
                self._take_away(pair, mean)
            self.pairs.release(known)


def clear(columns: Columns, row: int) -> None:
    """Clear the speeds of this row."""
    columns.speed_pair[row] = NOT_ASKED
    columns.speed_mean[row] = columns.speed_variance[row] = columns.speed_jobs[row] = 0
    columns.speed_at_ms[row] = 0


def _is_sound(speed: Speed) -> bool:
    """True if a column can hold it."""
    return 0 <= speed.mean <= _RATIO_MAX and 0 <= speed.variance <= _RATIO_MAX**2 and _JOBS_MIN < speed.jobs < _JOBS_MAX


def _sound(speeds: Mapping[str, Speed]) -> dict[str, Speed]:
    return {pair: speed for pair, speed in speeds.items() if _is_sound(speed)}
