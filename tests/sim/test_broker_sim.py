"""The broker under faults: nothing is lost without a word, and credit heals. Replay: `pytest -k 'seed17-'`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from tests.support.simulation.broker import LIMITS, WINDOW, SimEdge, World

SEEDS = 200
STEPS_WITH_FAULTS = 50
STEPS_TO_HEAL_MAX = 2_000
#: Long enough for a second answer to show up.
QUIET_MS = 100


def run_with_faults(world: World) -> None:
    """Requests at random while misfortunes happen; `check()` runs inside every step of every broker."""
    refs = count()
    world.loss, world.doubling = world.random.choice([0.0, 0.05, 0.3]), world.random.choice([0.0, 0.05])
    for _ in range(STEPS_WITH_FAULTS):
        for edge in world.edges:
            for _ in range(world.random.choice([0, 0, 1, 3])):
                edge.ask(f"{edge.identity}/{next(refs)}")
            edge.cancel()
        if world.random.random() < 0.15:
            world.fault()
        if world.random.random() < 0.2:
            world.mend()
        world.step()
    world.loss = world.doubling = 0.0
    world.mend()


def run_until(world: World, condition: Callable[[], bool]) -> None:
    """Steps until it holds; the caller's assertion tells if the limit came first."""
    for _ in range(STEPS_TO_HEAL_MAX):
        if condition():
            return
        world.step()


def run_for(world: World, duration_ms: int) -> None:
    end_ms = world.now_ms + duration_ms
    while world.now_ms < end_ms:
        world.step()


@pytest.mark.parametrize("seed", range(SEEDS), ids=lambda seed: f"seed{seed}-")
def test_every_request_is_answered_and_credit_heals(seed: int) -> None:
    world = World(seed)
    run_with_faults(world)

    # Liveness: with the faults over, repeating a request always ends in a selector's answer.
    run_until(world, lambda: not any(edge.waiting for edge in world.edges))
    left = {ref for edge in world.edges for ref in edge.waiting}
    assert not left, f"seed {seed}: never answered: {sorted(left)[:5]}"

    # Healing: every selector has its whole window back at every broker, whatever was lost, and the dead are gone.
    full = {name: {selector.identity: WINDOW for selector in world.selectors} for name in world.brokers}
    run_until(world, lambda: credit_of(world) == full)
    assert credit_of(world) == full, f"seed {seed}: credit did not heal"
    assert not any(broker.switch.directory.blocked for broker in world.brokers.values()), f"seed {seed}: stuck"

    # Nothing vanishes: without faults each message gets one answer, of whatever kind, and is never sent twice.
    asked = ask_once(world, 10)
    run_until(world, lambda: all(edge.answers[ref] for edge, ref in asked))
    run_for(world, QUIET_MS)
    for edge, ref in asked:
        assert edge.answers[ref].total() == 1, f"seed {seed}: {ref} got {dict(edge.answers[ref])}"


def credit_of(world: World) -> dict[str, dict[str, int]]:
    """Credit by broker and selector."""
    return {
        name: {peer.name: peer.credit() for peer in broker.switch.directory.selectors()}
        for name, broker in world.brokers.items()
    }


def ask_once(world: World, requests: int) -> list[tuple[SimEdge, str]]:
    asked = []
    for edge in world.edges:
        edge.repeat = False
        for number in range(requests):
            edge.ask(f"{edge.identity}/once/{number}")
            asked.append((edge, f"{edge.identity}/once/{number}"))
    return asked


@pytest.mark.parametrize("seed", range(50), ids=lambda seed: f"seed{seed}-")
def test_a_selector_never_holds_more_than_its_window(seed: int) -> None:
    """Cut connections, sleep and restarts may cost messages, but never make a broker send more than it may."""
    world = World(seed)
    for edge in world.edges:
        for number in range(20):
            edge.ask(f"{edge.identity}/{number}")
    for _ in range(STEPS_WITH_FAULTS):
        if world.random.random() < 0.15:
            world.fault()
        if world.random.random() < 0.3:
            world.mend()
        world.step()
        for selector in world.selectors:
            over = {name: held for name, held in selector.most_held.items() if held > WINDOW}
            assert not over, f"seed {seed}: {selector.identity} held {over}, window {WINDOW}"


@pytest.mark.parametrize("seed", range(20), ids=lambda seed: f"seed{seed}-")
def test_without_faults_and_with_room_every_request_is_answered_by_a_selector(seed: int) -> None:
    world = World(seed, edges=1)
    run_for(world, 3 * LIMITS.beat_ms)
    asked = ask_once(world, WINDOW)
    run_until(world, lambda: all(edge.answers[ref] for edge, ref in asked))
    run_for(world, QUIET_MS)
    assert [edge.answers[ref] for edge, ref in asked] == [{"answer": 1}] * len(asked), f"seed {seed}"
