from __future__ import annotations

import pytest

from mesh.frames import NodeCaps
from mesh.ids import is_id
from selector.core.pools import fnv1a, pools_of
from selector.core.status import status_of
from tests.unit.selector_samples import caps


@pytest.mark.parametrize(
    ("text", "digest"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_fnv1a_gives_the_published_values(text: str, digest: int) -> None:
    assert fnv1a(text) == digest


def test_pools_are_the_hash_pool_and_the_directed_pairs() -> None:
    pools = pools_of("n", caps(asr_langs=["zh", "EN"], semantic_langs=["en", "zh"]), hash_pools=16, pools_max=64)
    assert pools == [f"hash.{fnv1a('n') % 16}", "pair.en.zh", "pair.zh.en"]


def test_pools_are_bounded_and_always_the_same_ones() -> None:
    many = [f"l{index:02d}" for index in range(40)]
    pools = pools_of("n", caps(asr_langs=many, semantic_langs=many), hash_pools=16, pools_max=64)
    assert len(pools) == 64
    shuffled = caps(asr_langs=many[::-1], semantic_langs=many[::-1])
    assert pools_of("n", shuffled, hash_pools=16, pools_max=64) == pools


def test_words_that_would_break_a_key_make_no_pool() -> None:
    strange = caps(asr_langs=["en", "a.b", "x,y", "{z}", "", "l" * 99], semantic_langs=["es"])
    pools = pools_of("n", strange, hash_pools=16, pools_max=64)
    assert pools[1:] == ["pair.en.es"]
    assert all(is_id(pool) for pool in pools)


@pytest.mark.parametrize(
    ("its_caps", "heard", "status"),
    [
        (caps(), False, "registering"),
        (caps(), True, "ready"),
        (caps(services_installed=["asr"], services_ready=["asr"]), True, "ready"),
        (caps(services_installed=["ASR", "tone"], services_ready=["Asr"]), True, "ready"),  # extras hold nobody back
        (caps(services_ready=["asr", "nmt"]), True, "degraded"),
        (caps(services_ready=[]), True, "degraded"),
        (caps(services_installed=[], services_ready=[]), True, "degraded"),
        (caps(services_installed=["tone"], services_ready=["tone"]), True, "degraded"),
    ],
)
def test_status(its_caps: NodeCaps, heard: bool, status: str) -> None:
    assert status_of(its_caps, heard=heard) == status
