"""Checks of a recording: whether every choice is reproduced, and the differences under other weights. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mesh.config.weights import Weights
from selector.core.kernel import NO_ROW, Choice, Rules
from selector.operators.core.recorder import Batch, Recording, is_same, run_again, with_weights

#: Nodes that are ranked to price the other choice; a worse one counts as the last of them.
RANKED: Final = 16
#: Differing batches that are listed.
NAMED_MAX: Final = 20


class Exactness(NamedTuple):
    """Every decision replayed under its own rules."""

    decisions: int
    different: int
    #: Numbers of batches in which something differs.
    batches: Sequence[int]


@dataclass(slots=True)
class Comparison:
    """The same decisions under other weights."""

    decisions: int = 0
    #: Decisions that would choose another node.
    moved: int = 0
    #: What these gain by the new weights, and what they lose by the old ones; at least.
    gained_ms: int = 0
    lost_ms: int = 0
    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)

    def shares(self, count: int) -> list[tuple[str, float, float]]:
        """The nodes with most jobs, before or after: name, share before, share after."""
        total = max(1, self.decisions)
        most = (self.before | self.after).most_common(count)
        return [(node_id, self.before[node_id] / total, self.after[node_id] / total) for node_id, _ in most]


def check(recording: Recording) -> Exactness:
    """Replay everything unchanged."""
    decisions = different = 0
    batches = []
    for one in run_again(recording, lambda batch: batch.rules):
        decisions += len(one.batch.rows.jobs)
        if not is_same(one.choice, one.batch.choice):
            different += _differing(one.choice, one.batch.choice)
            batches.append(one.batch.number)
    return Exactness(decisions, different, batches[:NAMED_MAX])


def compare(recording: Recording, weights: Weights) -> Comparison:
    """Replay everything under other weights."""
    found = Comparison()
    old = _ranked(recording, lambda batch: batch.rules)
    new = _ranked(recording, lambda batch: with_weights(batch.rules, weights))
    for (ids, before), (_, after) in zip(old, new, strict=True):
        found.decisions += 1
        was, would_be = before.best, after.best
        if was != NO_ROW:
            found.before[ids[was]] += 1
        if would_be != NO_ROW:
            found.after[ids[would_be]] += 1
        if was != would_be and NO_ROW not in (was, would_be):
            found.moved += 1
            found.gained_ms += after.cost_of(was)
            found.lost_ms += before.cost_of(would_be)
    return found


class _Ranking(NamedTuple):
    """The best nodes for one job, and their scores."""

    rows: Sequence[int]
    scores: Sequence[int]

    @property
    def best(self) -> int:
        return self.rows[0]

    def cost_of(self, row: int) -> int:
        """How much worse than the best one a node is."""
        filled = [other for other in self.rows if other != NO_ROW]
        place = filled.index(row) if row in filled else len(filled) - 1
        return self.scores[place] - self.scores[0]


def _ranked(recording: Recording, rules_of: Callable[[Batch], Rules]) -> Iterator[tuple[Sequence[str], _Ranking]]:
    for one in run_again(recording, rules_of, RANKED):
        ids = list(one.ids)
        for rows, scores in zip(one.choice.rows.tolist(), one.choice.scores.tolist(), strict=True):
            yield ids, _Ranking(rows, scores)


def _differing(one: Choice, other: Choice) -> int:
    """How many jobs of a batch differ."""
    if any(mine.shape != theirs.shape for mine, theirs in _pairs(one, other)):
        return len(other.rows)
    differing: set[int] = set()
    for mine, theirs in _pairs(one, other):
        jobs = range(len(theirs))
        differing |= {job for job in jobs if mine[job].tobytes() != theirs[job].tobytes()}
    return len(differing)


def _pairs(one: Choice, other: Choice) -> Iterable[tuple[Any, Any]]:
    return zip(one, other, strict=True)
