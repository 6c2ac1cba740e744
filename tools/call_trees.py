"""Call trees: which recorded calls belong to the utterance, and which are background work. Pure; tools/walk.py records.

The rules are at the head of tools/walk.py.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import NamedTuple, TypeAlias


class Call(NamedTuple):
    """One entry into a function, as a process records it."""

    ns: int  # CLOCK_MONOTONIC, which all processes share
    thread: int
    depth: int  # of this project's functions on the stack
    is_new: bool  # False: a coroutine or generator goes on
    function: str  # file:qualified name


Window: TypeAlias = tuple[int, int]
Tree: TypeAlias = list[Call]
Shape: TypeAlias = tuple[str, frozenset[str]]


def trees_of(calls: Iterable[Call], windows: Sequence[Window]) -> list[list[Tree]]:
    """The call trees of each window, in order of time. Roots have the least depth of their thread."""
    inside = [(number, call) for call in calls for number, (start, end) in enumerate(windows) if start <= call.ns < end]
    depths = {call.thread: call.depth for _, call in sorted(inside, key=lambda one: -one[1].depth)}
    trees: list[list[Tree]] = [[] for _ in windows]
    growing: dict[tuple[int, int], Tree] = {}
    for number, call in inside:
        place = number, call.thread
        if place not in growing or call.depth == depths[call.thread]:
            growing[place] = []
            trees[number].append(growing[place])
        growing[place].append(call)
    return trees


def shape_of(tree: Tree) -> Shape:
    """By which trees are compared: the root, and all functions."""
    return tree[0].function, frozenset(call.function for call in tree)


def shares_of(idle: Sequence[list[Tree]], spoken: Sequence[list[Tree]]) -> Counter[Shape]:
    """How many trees of each shape of background work one utterance adds to it."""
    before, during = (Counter(shape_of(tree) for window in half for tree in window) for half in (idle, spoken))
    return Counter({shape: round((during[shape] - before[shape]) / len(spoken)) for shape in before})


def without_background(window: Iterable[Tree], shares: Counter[Shape]) -> list[Tree]:
    """The trees that belong to the utterance."""
    left, kept = shares.copy(), []
    for tree in window:
        shape = shape_of(tree)
        if shape not in shares or left[shape] > 0:
            left[shape] -= 1
            kept.append(tree)
    return kept


def steps_of(trees: Sequence[Tree]) -> list[str]:
    """The functions that a reader passes: new calls, and once each coroutine that waited since before the window."""
    seen = {call.function for tree in trees for call in tree if call.is_new}
    steps: list[str] = []
    for tree in trees:
        for call, following in zip(tree, [*tree[1:], None], strict=True):
            only_awaits = following is not None and not following.is_new and following.depth == call.depth + 1
            if call.is_new or (not only_awaits and call.function not in seen):
                steps.append(call.function)
                seen.add(call.function)
    return steps


def callers_in(trees: Iterable[Tree]) -> set[str]:
    """The functions that call another one."""
    return {
        call.function
        for tree in trees
        for call, following in itertools.pairwise(tree)
        if following.depth == call.depth + 1 and following.function != call.function
    }


@dataclass(frozen=True, slots=True)
class Part:
    """The steps of one utterance in one process, in order."""

    process: str
    steps: list[str]
    callers: set[str]


def without_leaves(parts: Sequence[Part]) -> list[Part]:
    """Only the steps that call others."""
    return [Part(one.process, [step for step in one.steps if step in one.callers], one.callers) for one in parts]


def walk_of(calls: dict[str, list[Call]], idle: list[Window], spoken: list[Window]) -> list[Part]:
    """One part for each process, in the order in which the utterance reaches them."""
    parts: list[tuple[int, Part]] = []
    for process, its_calls in calls.items():
        trees = trees_of(its_calls, [*idle, *spoken])
        quiet, busy = trees[: len(idle)], trees[len(idle) :]
        shares = shares_of(quiet, busy)
        rounds = [without_background(window, shares) for window in busy]
        steps = [steps_of(kept) for kept in rounds]
        times = Counter(function for one in steps for function in set(one))
        steps = [[function for function in one if times[function] * 2 > len(spoken)] for one in steps]
        median = [len(one) for one in steps].index(median_low(map(len, steps)))
        if steps[median]:
            reached_ns = [kept[0][0].ns - start for kept, (start, _) in zip(rounds, spoken, strict=True) if kept]
            parts.append((median_low(reached_ns), Part(process, steps[median], callers_in(rounds[median]))))
    return [part for _, part in sorted(parts, key=lambda one: one[0])]


def figures_of(parts: Sequence[Part]) -> dict[str, int]:
    """Steps, functions, files and changes of file of the walk. A function of two processes counts once."""
    steps = [step for part in parts for step in part.steps]
    files = [[step.partition(":")[0] for step in part.steps] for part in parts]
    changes = sum(len(list(itertools.groupby(one))) for one in files)
    distinct = len(set(itertools.chain(*files)))
    return {"steps": len(steps), "functions": len(set(steps)), "files": distinct, "changes_of_file": changes}
