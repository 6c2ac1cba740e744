"""A node that lacks a model: the job goes elsewhere, and no selector sends it such work until the mark expires."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from linguamesh.errors import JobFailed, SessionError
from linguamesh.node import Job
from linguamesh.session import Session
from mesh.words import FilterName
from tests.support.clients.sdk import AUDIO, Worker, at_once, query, sessions, status_of, workers
from tests.support.conditions import until
from tests.support.processes.running_mesh import PATIENT, RunningMesh

SELECTORS = [f"selector-{index}" for index in range(2)]
ENV = {**PATIENT, "LINGUA_SELECTOR_SNAPSHOT_IDLE_MS": "100"}
DETAILS = {"service_id": "nmt-sdk", "service_version": "1", "reason": "model not found"}


async def lacks_the_model(worker: Worker, job: Job) -> None:
    raise JobFailed("MODEL_NOT_AVAILABLE", "no such model", DETAILS)


@asynccontextmanager
async def failed_once(mesh: RunningMesh, lacking: Worker, clients: list[Session]) -> AsyncIterator[None]:
    """The first job has failed at `lacking` for want of a model, and node-b has done it."""
    other_is_ready = asyncio.Event()

    async def fail_when_the_other_is_ready(worker: Worker, job: Job) -> None:
        await other_is_ready.wait()
        await lacks_the_model(worker, job)

    lacking.work = fail_when_the_other_is_ready
    async with workers(mesh.url("edge-0"), lacking):
        first = asyncio.create_task(clients[0].translate(AUDIO))
        await until(lambda: lacking.jobs, "the node has the first job")
        async with workers(mesh.url("edge-0"), Worker("node-b", at_once)):
            await until(lambda: is_ready(mesh, "node-b"), "node-b is ready")
            await until(
                lambda: counts(mesh, "lingua_selector_snapshot_rows") == [2] * len(SELECTORS),
                "all selectors have both nodes",
            )
            other_is_ready.set()
            assert (await first).text_asr == "node-b#2"
            yield


async def is_ready(mesh: RunningMesh, node_id: str) -> bool:
    return await status_of(mesh.operator(), node_id) == "ready"


def counts(mesh: RunningMesh, metric: str) -> list[float]:
    """The metric of each selector."""
    return [mesh.processes[name].metric(metric) for name in SELECTORS]


async def translate_in_all(clients: list[Session]) -> list[str]:
    """One utterance in each session; their job ids."""
    results = await asyncio.gather(*(session.translate(AUDIO) for session in clients))
    return [result.job_id for result in results]


async def test_marked_node_gets_no_such_work_from_any_selector(redis_server, mesh_dir) -> None:
    lacking = Worker("node-a", at_once)
    aware: set[str] = set()
    env = {**ENV, "LINGUA_MODELS_UNAVAILABLE_MS": "600000"}

    async def are_all_selectors_aware() -> bool:
        """Add the selectors that decided in a round in which the filter removed a node from every decision.

        New sessions in each round, so that each selector has some of their cells at last.
        """
        before = counts(mesh, "lingua_selector_dispatch_total")
        async with sessions(8, mesh.url("edge-1")) as others:
            jobs = await translate_in_all(others)
        after = counts(mesh, "lingua_selector_dispatch_total")
        decisions = [await query(mesh.operator(), "explain", job_id) for job_id in jobs]
        if all(decision["rounds"][-1]["removed"].get(FilterName.MODEL) == 1 for decision in decisions):
            aware.update(name for name, old, new in zip(SELECTORS, before, after, strict=True) if new > old)
        return len(aware) == len(SELECTORS)

    with RunningMesh(mesh_dir, redis_server.url, selectors=len(SELECTORS), env=env) as mesh:
        async with sessions(8, mesh.url("edge-1")) as clients, failed_once(mesh, lacking, clients):
            await until(are_all_selectors_aware, "every selector has removed the node from its decisions")
            received = len(lacking.jobs)
            for _ in range(5):
                await translate_in_all(clients)
            assert len(lacking.jobs) == received
            missing = (await query(mesh.operator(), "metrics"))["model_not_available"]
    assert missing["received_total"] >= 1
    assert missing["marked_total"] >= 1
    assert [entry["key"] for entry in missing["by_service_top"]] == ["nmt-sdk"]
    assert [entry["key"] for entry in missing["by_reason_top"]] == ["not_found"]


async def test_node_gets_such_work_again_when_its_mark_expires(redis_server, mesh_dir) -> None:
    lacking = Worker("node-a", at_once)
    env = {**ENV, "LINGUA_MODELS_UNAVAILABLE_MS": "2000"}

    async def does_it_get_work() -> bool:
        received = len(lacking.jobs)
        await translate_in_all(clients)
        return len(lacking.jobs) > received

    with RunningMesh(mesh_dir, redis_server.url, env=env, selectors=len(SELECTORS)) as mesh:
        async with sessions(8, mesh.url("edge-1")) as clients, failed_once(mesh, lacking, clients):
            lacking.work = at_once
            await until(lambda: marked(mesh), "the node was marked")
            await until(lambda: is_unmarked(mesh), "the mark expires")
            await until(does_it_get_work, "the node gets such work again")


def marked(mesh: RunningMesh) -> bool:
    return mesh.metric("scheduler_model_na_marked_total") >= 1


async def is_unmarked(mesh: RunningMesh) -> bool:
    return not (await query(mesh.operator(), "nodes", "node-a"))["models_unavailable"]


@pytest.mark.parametrize("nodes", [1, 2])
async def test_client_gets_the_error_when_no_node_has_the_model(redis_server, mesh_dir, nodes: int) -> None:
    """At once: no request waits for nodes that lack the model, however soon their marks expire."""
    lacking = [Worker(f"node-{i}", lacks_the_model) for i in range(nodes)]
    env = {**ENV, "LINGUA_MODELS_UNAVAILABLE_MS": "5000", "LINGUA_JOB_PENDING_TIMEOUT_MS": "600000"}
    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        async with workers(mesh.url("edge-0"), *lacking), sessions(1, mesh.url("edge-1")) as [session]:
            with pytest.raises(SessionError) as error:
                await session.translate(AUDIO)
    assert error.value.code == "MODEL_NOT_AVAILABLE"
    assert [len(worker.jobs) for worker in lacking] == [1] * nodes
