from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.core.credit import Peer, Side
from broker.core.queues import LaneQueues
from broker.core.routes import Routes, rank

CELLS = 16


def selector(name: str) -> Peer:
    return Peer(name.encode(), Side.BACK, queues=LaneQueues(1, 1_000), connection=1, now_ms=0)


def first_of(routes: Routes) -> list[str]:
    return [routes.order(cell)[0].name for cell in range(CELLS)]


names = st.sets(st.integers(0, 999).map(lambda number: f"selector:s{number}:1"), min_size=2, max_size=8)


@given(names)
def test_order_is_equal_for_any_order_of_connections(found: set[str]) -> None:
    one, other = Routes(CELLS), Routes(CELLS)
    one.replace(map(selector, sorted(found)))
    other.replace(map(selector, sorted(found, reverse=True)))
    for cell in range(CELLS):
        assert [peer.name for peer in one.order(cell)] == [peer.name for peer in other.order(cell)]


@given(names)
def test_only_the_cells_of_a_removed_selector_move(found: set[str]) -> None:
    routes = Routes(CELLS)
    routes.replace(map(selector, sorted(found)))
    before = first_of(routes)
    lost = min(found)
    routes.replace(map(selector, sorted(found - {lost})))
    for was, now in zip(before, first_of(routes), strict=True):
        assert was in (now, lost)


def test_cells_are_spread_over_the_selectors() -> None:
    routes = Routes(CELLS)
    routes.replace(selector(f"selector:s{number}:1") for number in range(3))
    assert len(set(first_of(routes))) == 3


def test_order_is_the_rank_independent_of_the_hash_seed() -> None:
    assert rank(3, "selector:a:1").hex() == "2231e65a29ba0817"


def test_any_cell_number_is_routed_and_the_cache_stays_bounded() -> None:
    routes = Routes(CELLS)
    routes.replace([selector("selector:a:1")])
    for cell in (-5, 10**18, *range(1_000)):
        assert routes.order(cell)
    assert len(routes.orders) == CELLS


def test_order_without_selectors_is_empty() -> None:
    assert Routes(CELLS).order(1) == []
