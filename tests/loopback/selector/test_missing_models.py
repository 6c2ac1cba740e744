"""Nodes that lack models: marked for all selectors, heard a bounded number of times, and never in the way of work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from linguamesh.local.redis_server import RedisServer
from mesh.frames import ModelMissing, Push, StatusChanged
from tests.support.processes.selector import FakeEdge, Rig, selecting, until

RATE_MAX = 5
QUEUE_MAX = 64
UNAVAILABLE_MS = 5_000


@pytest.fixture(scope="module")
def mesh(_redis_process: RedisServer) -> Iterator[Rig]:
    """Two selectors that mark for a short time only."""
    with selecting(
        _redis_process,
        "s1",
        "s2",
        LINGUA_MODELS_UNAVAILABLE_MS=str(UNAVAILABLE_MS),
        LINGUA_MODELS_NODE_RATE_MAX=str(RATE_MAX),
        LINGUA_MODELS_QUEUE_MAX=str(QUEUE_MAX),
    ) as rig:
        yield rig


async def ready(edge: FakeEdge, *node_ids: str, **caps: Any) -> dict[str, int]:
    epochs = {node_id: await edge.add_node(node_id, **caps) for node_id in node_ids}
    for node_id in node_ids:
        await edge.take(StatusChanged, lambda frame, node_id=node_id: frame.node_id == node_id)
    return epochs


async def reasons(rig: Rig, edge: FakeEdge, selector: str, **job: Any) -> dict[str, str]:
    """Node -> why it would not get the job, as one selector sees it."""
    asked = {"src_lang": "en", "tgt_lang": "es", "required": ["asr", "nmt", "tts"], **job}
    _, answer = await edge.query("simulate", to=rig.identities[selector], **asked)
    return {one["node_id"]: one["reason"] for one in answer["nodes"]}


async def counts(rig: Rig, edge: FakeEdge) -> dict[str, int]:
    """Totals of both selectors."""
    totals: dict[str, int] = {}
    for name in ("s1", "s2"):
        _, answer = await edge.query("metrics", to=rig.identities[name])
        for key, value in answer["model_not_available"].items():
            if isinstance(value, int):
                totals[key] = totals.get(key, 0) + value
    return totals


async def test_a_mark_keeps_every_selector_from_choosing_the_node_until_it_lapses(rig: Rig, edge: FakeEdge) -> None:
    epochs = await ready(edge, "node-1", "node-2")
    edge.send_record("node-1", ModelMissing("node-1", epochs["node-1"], "piper-tts", "", "1.0", "not_found"))
    for name in ("s1", "s2"):

        async def is_marked(name: str = name) -> bool:
            seen = await reasons(rig, edge, name)
            return seen == {"node-1": "model_not_available", "node-2": "ok"}

        await until(is_marked)
    assert (await reasons(rig, edge, "s2", required=["asr", "nmt"]))["node-1"] == "ok", "it lacks the voice only"
    _, answer = await edge.query("node", node_id="node-1")
    assert list(answer["models_unavailable"]) == ["tts"]
    for index in range(4):
        assign, _ = await edge.place(f"r-{index}", session_id=f"s-{index}")
        assert assign.node_id == "node-2"
    for name in ("s1", "s2"):

        async def is_free(name: str = name) -> bool:
            return (await reasons(rig, edge, name))["node-1"] == "ok"

        await until(is_free)


async def test_words_of_a_connection_that_is_over_mark_nobody(rig: Rig, edge: FakeEdge) -> None:
    before = await counts(rig, edge)
    epochs = await ready(edge, "node-1")
    edge.send_record("node-1", ModelMissing("node-1", epochs["node-1"] - 1, "piper-tts", "tts", "1.0", "oom"))
    edge.send_record("node-9", ModelMissing("node-9", 1, "piper-tts", "tts", "1.0", "oom"))
    edge.send_record("node-1", ModelMissing("{no id}", 1, "piper-tts", "tts", "1.0", "oom"))

    async def are_heard() -> bool:
        return (await counts(rig, edge))["received_total"] == before["received_total"] + 3

    await until(are_heard)
    assert (await counts(rig, edge))["marked_total"] == before["marked_total"]
    assert (await reasons(rig, edge, "s1"))["node-1"] == "ok"


async def test_a_node_that_says_it_too_often_is_limited_across_selectors(rig: Rig, edge: FakeEdge) -> None:
    before = await counts(rig, edge)
    epochs = await ready(edge, "node-1")
    said = 40
    for index in range(said):
        missing = ModelMissing("node-1", epochs["node-1"], f"service-{index}", "", "", "strange", count=1)
        edge.send_record("node-1", missing)

    async def are_heard() -> bool:
        return (await counts(rig, edge))["received_total"] == before["received_total"] + said

    await until(are_heard)

    async def are_limited() -> bool:
        return (await counts(rig, edge))["rate_limited_total"] == before["rate_limited_total"] + said - RATE_MAX

    await until(are_limited)
    assert (await counts(rig, edge))["marked_total"] == before["marked_total"] + RATE_MAX
    _, answer = await edge.query("metrics", to=rig.identities["s1"])
    _, other = await edge.query("metrics", to=rig.identities["s2"])
    tops = answer["model_not_available"]["by_reason_top"] + other["model_not_available"]["by_reason_top"]
    assert any(one["key"] == "raw:strange" for one in tops)


async def test_a_storm_of_words_is_bounded_and_work_goes_on(rig: Rig, edge: FakeEdge) -> None:
    epochs = await ready(edge, "node-1", "node-2", max_jobs=64)
    before = await counts(rig, edge)
    said = 0
    for index in range(10):
        for _ in range(500):
            node_id = f"node-{1 + said % 2}"
            edge.send_record(node_id, ModelMissing(node_id, epochs[node_id], f"extra-{said % 7}", "", "", "oom"))
            said += 1
        assign, _ = await edge.place(f"r-{index}", session_id=f"s-{index}")
        edge.finish(assign)
        await edge.take(Push, lambda push, job_id=assign.job_id: push.job_id == job_id)

    async def is_over() -> bool:
        """Every word was worked on, or dropped and counted."""
        heard = (await counts(rig, edge))["received_total"] - before["received_total"]
        return heard + await dropped(rig) == said

    await until(is_over)
    assert await dropped(rig) > 0, "the queue is bounded"


async def dropped(rig: Rig) -> int:
    """What the selectors' metrics say of words that had no room."""
    return sum(int(rig.metric(name, "scheduler_model_na_dropped_total")) for name in ("s1", "s2"))
