from __future__ import annotations

import asyncio

from lua.engine.batch import CallGroup, PendingCall, answer_all, batches_of, command_of
from lua.engine.loader import load_scripts
from mesh.errors import StoreError

SCRIPTS = load_scripts()
GET, RELEASE = SCRIPTS["session_get"], SCRIPTS["session_release"]


def pending(count: int, loop: asyncio.AbstractEventLoop, slots: int = 1) -> list[PendingCall]:
    group = CallGroup([StoreError("not answered")] * count, count, loop.create_future())
    return [
        PendingCall(
            RELEASE if n % 3 else GET,
            [f"k{n}"],
            RELEASE.arguments({"edge": "e", "epoch": n}) if n % 3 else GET.arguments({}),
            n % slots,
            group,
            n,
        )
        for n in range(count)
    ]


async def test_calls_are_grouped_by_script_and_slot_in_order() -> None:
    calls = pending(40, asyncio.get_running_loop(), slots=2)
    batches = batches_of(calls, size_max=5)
    assert sorted(one.index for batch in batches for one in batch) == list(range(40))
    for batch in batches:
        assert len(batch) <= 5
        assert len({(one.script.name, one.slot) for one in batch}) == 1
        assert [one.index for one in batch] == sorted(one.index for one in batch)


async def test_a_command_carries_all_calls() -> None:
    calls = [one for one in pending(6, asyncio.get_running_loop()) if one.script is RELEASE]
    args = [2 * len(calls) // 2, 1, 2, "e", 1, 1, 2, "e", 2, 1, 2, "e", 4, 1, 2, "e", 5]
    assert command_of(calls) == ["EVALSHA", RELEASE.sha, 4, "k1", "k2", "k4", "k5", *args]
    assert command_of(calls, load=True)[:2] == ["EVAL", RELEASE.source]


async def test_call_group_is_done_with_its_last_answer_and_each_counts_once() -> None:
    calls = pending(2, asyncio.get_running_loop())
    assert answer_all(calls[:1], [[1]]) == 1
    assert answer_all(calls[:1], [[2]]) == 0, "only the first answer counts"
    assert not calls[0].group.done.done()
    assert answer_all(calls, [[3], StoreError("x")]) == 1
    await calls[0].group.done
    assert calls[0].group.answers[0] == [1]


def test_an_answer_is_a_list_or_an_error() -> None:
    good, failed, *wrong = GET.read([[b"edge", 5, 0, 1], b"WRONGTYPE", [b"edge"], [None, 5, 0, 1]])
    assert good == ["edge", 5, 0, 1]
    assert isinstance(failed, StoreError) and "session_get: WRONGTYPE" in str(failed)
    assert [type(one) for one in wrong] == [StoreError, StoreError]
    assert [str(one) for one in GET.read([b"\xff"])] == ["session_get: \ufffd"], "an error text in no encoding"
