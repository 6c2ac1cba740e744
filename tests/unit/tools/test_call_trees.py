from __future__ import annotations

from collections import Counter

from tools.call_trees import (
    Call,
    Part,
    Tree,
    callers_in,
    figures_of,
    shares_of,
    steps_of,
    trees_of,
    walk_of,
    without_background,
    without_leaves,
)


def tree(*functions: str, ns: int = 0) -> Tree:
    """Each function calls the next one; "~f" goes on instead of being called."""
    return [
        Call(ns + depth, 1, depth, not function.startswith("~"), function.removeprefix("~"))
        for depth, function in enumerate(functions)
    ]


def test_calls_are_split_into_trees_at_the_least_depth() -> None:
    calls = [Call(1, 1, 2, True, "a"), Call(2, 1, 3, True, "b"), Call(3, 1, 2, True, "c")]
    assert trees_of(calls, [(0, 10)]) == [[calls[:2], calls[2:]]]


def test_trees_of_two_threads_do_not_mix() -> None:
    calls = [Call(1, 1, 0, True, "a"), Call(2, 2, 5, True, "x"), Call(3, 1, 1, True, "b")]
    assert trees_of(calls, [(0, 10)]) == [[[calls[0], calls[2]], [calls[1]]]]


def test_calls_outside_all_windows_are_dropped() -> None:
    calls = [Call(5, 1, 0, True, "a"), Call(15, 1, 0, True, "b"), Call(25, 1, 0, True, "c")]
    assert trees_of(calls, [(0, 10), (20, 30)]) == [[[calls[0]]], [[calls[2]]]]


def test_a_shape_of_idle_windows_has_the_share_that_an_utterance_adds() -> None:
    beat = tree("beat", "send")
    shares = shares_of(idle=[[beat], [beat, beat]], spoken=[[beat] * 3, [beat] * 4])
    assert list(shares.values()) == [2]


def test_the_share_of_background_work_alone_is_zero() -> None:
    beat = tree("beat", "send")
    assert list(shares_of([[beat], [beat, beat]], [[beat, beat], [beat]]).values()) == [0]


def test_background_trees_beyond_their_share_are_dropped_the_latest_first() -> None:
    window = [tree("look", ns=1), tree("look", "job", ns=2), tree("look", ns=3)]
    shares = Counter({("look", frozenset({"look"})): 1})
    assert without_background(window, shares) == window[:2]


def test_a_coroutine_that_goes_on_counts_once_where_it_is_woken() -> None:
    assert steps_of([tree("~run", "~read", "handle"), tree("~run", "~read", "handle")]) == ["read", "handle", "handle"]


def test_a_coroutine_that_was_called_does_not_count_again_when_it_goes_on() -> None:
    assert steps_of([tree("translate", "ask"), tree("~translate", "end")]) == ["translate", "ask", "end"]


def test_a_recursive_function_is_no_caller_of_others() -> None:
    assert callers_in([tree("a", "b"), tree("c", "c")]) == {"a"}


def test_figures_count_functions_of_two_processes_once_and_changes_per_process() -> None:
    parts = [Part("one", ["f.py:a", "f.py:b", "g.py:c", "f.py:a"], set()), Part("two", ["g.py:c"], set())]
    assert figures_of(parts) == {"steps": 5, "functions": 3, "files": 2, "changes_of_file": 4}


def test_leaves_are_left_out() -> None:
    parts = [Part("one", ["f.py:a", "f.py:b"], {"f.py:a"})]
    assert without_leaves(parts)[0].steps == ["f.py:a"]


def test_the_walk_has_what_most_utterances_call_in_the_order_of_the_processes() -> None:
    idle, spoken = [(0, 10), (20, 30), (40, 50)], [(10, 20), (30, 40), (50, 60)]
    beats = [Call(start + 9, 1, 0, True, "e.py:beat") for start, _ in idle + spoken]
    rare = [Call(17, 1, 0, True, "e.py:rare")]
    session = [Call(start + 1, 1, 0, True, "s.py:say") for start, _ in spoken]
    edge = [Call(start + 2, 1, 0, True, "e.py:hear") for start, _ in spoken]
    parts = walk_of({"edge": sorted(edge + beats + rare), "session": session}, idle, spoken)
    assert [(part.process, part.steps) for part in parts] == [("session", ["s.py:say"]), ("edge", ["e.py:hear"])]
