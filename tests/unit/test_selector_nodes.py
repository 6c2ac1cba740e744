from __future__ import annotations

import pytest

from mesh.choosing import PoolsConfig
from mesh.frames import NodeCaps
from mesh.ids import is_id
from selector.core.pools import PoolPlan, fnv1a
from tests.unit.selector_samples import caps


@pytest.mark.parametrize(
    ("text", "digest"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_fnv1a_gives_the_published_values(text: str, digest: int) -> None:
    assert fnv1a(text.encode()) == digest


def pools_of(node_id: str, its_caps: NodeCaps) -> list[str]:
    return PoolPlan(PoolsConfig(enabled=True, pool_count=16, sets_per_node_max=64)).sets_of(node_id, its_caps)


def test_pools_are_the_hash_pool_and_the_directed_pairs() -> None:
    pools = pools_of("n", caps(asr_langs=["zh", "EN"], semantic_langs=["en", "zh"]))
    home = fnv1a(b"n" + bytes(8)) % 16  # the seed, 0, follows the key
    assert pools == [f"hash.{home}", "langs.en-zh", "pair.en.zh", "pair.zh.en"]


def test_pools_are_bounded_and_always_the_same_ones() -> None:
    many = [f"l{index:02d}" for index in range(40)]
    pools = pools_of("n", caps(asr_langs=many, semantic_langs=many))
    assert len(pools) == 64
    shuffled = caps(asr_langs=many[::-1], semantic_langs=many[::-1])
    assert pools_of("n", shuffled) == pools


def test_words_that_would_break_a_key_make_no_pool() -> None:
    strange = caps(asr_langs=["en", "a.b", "x,y", "{z}", "", "l" * 99], semantic_langs=["es"])
    pools = pools_of("n", strange)
    assert pools[1:] == ["pair.en.es"]
    assert all(is_id(pool) for pool in pools)
