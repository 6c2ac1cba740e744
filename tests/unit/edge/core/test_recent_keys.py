"""Recent keys: outcomes of keys that ended, evicted by number and by age."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.core.recent_keys import RecentKeys


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8).map(str), st.integers(0, 5)), max_size=100))
def test_recent_keys_are_bounded_by_number_and_age(keys: list[tuple[str, int]]) -> None:
    recent = RecentKeys(kept_max=4, kept_ms=10)
    now = 0
    last: dict[str, int] = {}
    for key, wait in keys:
        now += wait
        recent.add(key, now)
        last[key] = now
        assert key in recent and len(recent) <= 4
        assert all(now - last[old] < 10 for old in last if recent.how(old, now) is not None)


def test_outcome_is_the_latest_one_until_the_key_is_dropped() -> None:
    recent = RecentKeys(kept_max=4, kept_ms=10)
    recent.add("job", 0, "cancelled")
    recent.add("job", 1, "acknowledged")
    assert recent.how("job", 1) == "acknowledged" and len(recent) == 1
    recent.drop("job")
    recent.drop("job")
    assert recent.how("job", 1) is None and "job" not in recent


def test_oldest_key_is_evicted_and_an_added_again_key_counts_as_new() -> None:
    recent = RecentKeys(kept_max=2, kept_ms=1_000)
    for key in ("a", "b", "a", "c"):
        recent.add(key, 0)
    assert "b" not in recent and "a" in recent and "c" in recent
    assert recent.how("c", 999) == ""
    assert recent.how("c", 1_000) is None and len(recent) == 0, "a lookup evicts the keys that have expired"
