"""Words about missing models: told at once, then now and then with their number, never many at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.jobs.core.missing_models import INTERVAL_MS, PAUSE_MS, SERVICES_PER_NODE_MAX, TOGETHER, MissingModelReports
from mesh.frames import ModelMissing


def word(node: str = "n", service: str = "s", **fields: object) -> ModelMissing:
    return ModelMissing(node, 1, service, "asr", "1", str(fields.get("reason", "")))


def test_first_word_is_told_at_once_and_the_next_ones_together() -> None:
    words = MissingModelReports(10)
    words.note(word(), 100)
    assert words.next_due_ms() == 100
    (told,) = words.pop_due(100)
    assert told == word() and told.count == 1
    for number in range(5_000):
        words.note(word(reason=str(number)), 101 + number // 10)
    due_ms = words.next_due_ms()
    assert due_ms is not None and 100 + INTERVAL_MS <= due_ms < 100 + 2 * INTERVAL_MS
    (told,) = words.pop_due(due_ms)
    assert (told.count, told.reason) == (5_000, "4999")
    assert words.pop_due(due_ms + 2 * INTERVAL_MS) == [] and words.next_due_ms() is None
    words.check()


def test_nodes_and_services_are_told_apart_and_bounded() -> None:
    words = MissingModelReports(SERVICES_PER_NODE_MAX + 2)
    for number in range(SERVICES_PER_NODE_MAX + 5):
        words.note(word(service=str(number)), 0)
    assert words.dropped == 5
    for node in ("a", "b", "c"):
        words.note(word(node), 0)
        words.check()
    assert words.dropped == 6


def test_a_storm_goes_out_a_few_at_a_time_and_does_not_come_back_as_one() -> None:
    words = MissingModelReports(1_000)
    for number in range(200):
        words.note(word(f"n-{number}"), 0)
    told: list[int] = []
    for now in range(0, 2 * INTERVAL_MS, PAUSE_MS):
        told += [now] * len(words.pop_due(now))
        words.check()
        words.note(word(f"n-{now % 200}"), now)
    assert max(told.count(now) for now in told) <= TOGETHER
    assert sum(now < 200 // TOGETHER * PAUSE_MS for now in told) == 200


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 700)), max_size=60))
def test_every_word_is_told_once_and_no_frame_comes_soon_after_the_last(
    said: list[tuple[int, int, int]],
) -> None:
    words, now, told = MissingModelReports(100), 0, 0
    last: dict[tuple[str, str], int] = {}

    def look() -> int:
        count = 0
        for frame in words.pop_due(now):
            key = (frame.node_id, frame.service_id)
            assert now - last.get(key, -INTERVAL_MS) >= INTERVAL_MS
            last[key] = now
            count += frame.count
        words.check()
        return count

    for node, service, wait_ms in said:
        now += wait_ms
        told += look()
        words.note(word(str(node), str(service)), now)
        words.check()
        told += look()
    while (due_ms := words.next_due_ms()) is not None:
        now = due_ms
        told += look()
    assert told == len(said)
