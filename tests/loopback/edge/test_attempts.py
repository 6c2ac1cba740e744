"""Waiting in line, nodes that fail, hang or are late: what a client notices of it, through real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mesh.frames import Cancel, Dispatch
from tests.support.processes.edge import Rig, Talk, running, until

MISSING = {"code": "MODEL_NOT_AVAILABLE", "message": "no model", "details": {"service_id": "nmt-m2m100"}}


async def first_to_hear(kind: str, *talks: Talk) -> tuple[Talk, dict[str, Any]]:
    """Which of several nodes gets the message, and the message."""
    waiting = {asyncio.create_task(talk.receive(kind)): talk for talk in talks}
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    (task,) = done
    return waiting[task], task.result()


def counts(rig: Rig) -> dict[str, int]:
    return rig.edges[0].sessions.requests.counts()


async def test_waiting_in_the_wait_queue_is_not_sent_to_the_client_and_is_no_retry(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, client = await rig.node(), await rig.session()
        rig.selector.in_line = 3
        await client.utter(0)
        await node.answer(await node.receive("job_assign"))
        await client.receive("translation_result")
        kinds = {message["type"] for message in client.received}
        assert "backpressure" not in kinds and "error" not in kinds
        asked = rig.selector.seen_of(Dispatch)
        assert len(asked) == 4 and {frame.attempt for frame in asked} == {1}


async def test_wait_queue_that_never_moves_ends_in_a_refusal(tmp: Path) -> None:
    async with running(tmp, edges=0) as rig:
        rig.edges.append(await rig.start_edge("e", job_pending_timeout_ms=300, resend_ms_max=200))
        rig.selector.in_line = 1_000
        client = await rig.session()
        await client.utter(0)
        error = await client.receive("error")
        assert error["code"] == "NO_AVAILABLE_NODE" and error["details"]["reason"] == "capacity_exceeded"
        assert error["details"]["waited_ms"] >= 500
        await until(lambda: rig.selector.seen_of(Cancel), "its place in line is given back")
        assert counts(rig)["refused"] == 1


async def test_failed_attempt_is_followed_by_one_at_another_node(tmp: Path) -> None:
    async with running(tmp) as rig:
        nodes, client = [await rig.node(), await rig.node()], await rig.session()
        await client.utter(0)
        bad, job = await first_to_hear("job_assign", *nodes)
        (good,) = [node for node in nodes if node is not bad]
        await bad.answer(job, success=False, error=MISSING)
        job = await good.receive("job_assign")
        assert job["attempt_id"] == 2
        await good.answer(job)
        await client.receive("translation_result")
        assert not [message for message in client.received if message["type"] == "error"]
        assert rig.selector.seen_of(Dispatch)[-1].excluded == [bad.id]
        # The session remembers who did it.
        await client.utter(1)
        worker, job = await first_to_hear("job_assign", *nodes)
        await worker.answer(job)
        await client.receive("translation_result", utterance_index=1)
        assert rig.selector.seen_of(Dispatch)[-1].warm_node == good.id


async def test_failure_of_the_only_node_reaches_the_client_with_its_utterance_index(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, client = await rig.node(), await rig.session()
        await client.utter(0)
        await node.answer(await node.receive("job_assign"), success=False, error=MISSING)
        error = await client.receive("error")
        assert (error["code"], error["details"]["service_id"]) == ("MODEL_NOT_AVAILABLE", "nmt-m2m100")
        assert error["details"]["utterance_index"] == 0 and error["details"]["request_id"]
        assert counts(rig)["failed"] == 1
        await client.utter(1)
        await node.answer(await node.receive("job_assign"))
        await client.receive("translation_result")


async def test_node_without_a_result_loses_the_job_to_another(tmp: Path) -> None:
    async with running(tmp, edges=0) as rig:
        rig.edges.append(await rig.start_edge("e", job_dispatched_timeout_ms=200))
        nodes, client = [await rig.node(), await rig.node()], await rig.session()
        await client.utter(0, sound=bytes(320))  # 10 ms
        silent, _ = await first_to_hear("job_assign", *nodes)
        (other,) = [node for node in nodes if node is not silent]
        await other.answer(await other.receive("job_assign", attempt_id=2))
        await client.receive("translation_result")
        cancelled = await silent.receive("job_cancel")
        assert cancelled["reason"] == "job_timeout"


async def test_late_job_is_hedged_and_the_first_result_counts(tmp: Path) -> None:
    async with running(tmp, edges=0) as rig:
        rig.edges.append(await rig.start_edge("e", job_hedging=True, job_hedge_budget_percent=100.0))
        nodes, client = [await rig.node(), await rig.node()], await rig.session()
        rig.selector.late_after_ms = 50
        await client.utter(0)
        late, first_job = await first_to_hear("job_assign", *nodes)
        (other,) = [node for node in nodes if node is not late]
        job = await other.receive("job_assign")
        assert job["attempt_id"] == 2
        hedge = rig.selector.seen_of(Dispatch)[-1]
        assert hedge.beside and hedge.excluded == [late.id]
        await other.answer(job)
        await client.receive("translation_result")
        assert (await late.receive("job_cancel"))["job_id"] == first_job["job_id"]
        await late.answer(first_job, text_translated="too late")
        await client.utter(1)
        worker, job = await first_to_hear("job_assign", *nodes)
        await worker.answer(job)
        await client.receive("translation_result", utterance_index=1)
        told = [message for message in client.received if message["type"] == "translation_result"]
        assert [message["utterance_index"] for message in told] == [0, 1], "the late one is not told"
        assert counts(rig)["delivered"] == 2
        assert rig.edges[0].sessions.tracker.hedge_budget.outcomes["won"] == 1


async def test_features_require_services_and_models(tmp: Path) -> None:
    async with running(tmp) as rig:
        await rig.node()
        client = await rig.session(features={"speech_rate_control": True}, region="eu", gpu_tier="large")
        await client.utter(0, pipeline={"use_tts": False}, auto_langs=["zh", "en"])
        await until(lambda: rig.selector.seen_of(Dispatch), "it is asked for")
        (asked,) = rig.selector.seen_of(Dispatch)
        assert asked.services == ["asr", "nmt", "tts"] and asked.models == ["sr-d-v1", "tts-vocoder-v1"]
        assert (asked.region, asked.gpu_tier, asked.public, asked.auto_langs) == ("eu", "large", True, ["zh", "en"])
