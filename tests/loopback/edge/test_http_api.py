"""HTTP pages of a real edge behind a real broker, answered by scripted selectors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mesh.frames import Cancel, EdgeReport, Query
from tests.support.processes.edge import FakeSelector, Rig, get, running, until


async def page(rig: Rig, path: str) -> tuple[int, dict[str, str], Any]:
    """Status, headers and body of a page of the first edge."""
    text = await get(rig.edges[0].server.own_port, path)
    head, _, body = text.partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    is_json = headers["content-type"] == "application/json"
    return int(first.split()[1]), headers, json.loads(body) if is_json else body


@asynccontextmanager
async def two_selectors(tmp: Path, **settings: Any) -> AsyncIterator[tuple[Rig, FakeSelector, FakeSelector]]:
    """A rig with a second selector; both know of each other."""
    async with running(tmp, **settings) as rig:
        other = FakeSelector([rig.back])
        await other.link.start()
        await other.link.ready(10_000)
        try:
            both = (rig.selector, other)
            for selector in both:
                selector.answers["selectors"] = (200, {"selectors": [one.link.identity for one in both]})
            yield rig, rig.selector, other
        finally:
            await other.link.close()


@pytest.mark.parametrize(
    ("path", "kind", "params"),
    [
        ("/api/v1/phase3/pools", "pools", {}),
        ("/api/v1/weights/", "weights", {}),
        ("/api/v1/selectors", "selectors", {}),
        ("/api/v1/nodes/node-1", "node", {"node_id": ["node-1"]}),
        ("/api/v1/nodes/a%3Ab", "node", {"node_id": ["a:b"]}),
        (
            "/api/v1/phase3/simulate?tenant_id=t&required=asr&required=nmt&src_lang=zh&empty=",
            "simulate",
            {"tenant_id": ["t"], "required": ["asr", "nmt"], "src_lang": ["zh"]},
        ),
    ],
)
async def test_page_is_a_query_to_a_selector(tmp: Path, path: str, kind: str, params: dict[str, list[str]]) -> None:
    async with running(tmp) as rig:
        rig.selector.answers[kind] = (200, {"words": "好", "list": [1, 2]})
        status, headers, body = await page(rig, path)
        assert (status, body) == (200, {"words": "好", "list": [1, 2]})
        assert headers["content-type"] == "application/json" and headers["cache-control"] == "no-store"
        (asked,) = rig.selector.seen_of(Query)
        assert (asked.kind, asked.params, asked.edge) == (kind, params, rig.edges[0].identity)
        rig.selector.answers[kind] = (404, {"code": "NODE_UNAVAILABLE", "message": "there is none"})
        status, _, body = await page(rig, path)
        assert (status, body["message"]) == (404, "there is none")


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/api/v1/nothing", 404, "docs/protocol.md"),
        ("/api/v1/explain/", 404, "there is no page"),
        ("/api/v1/nodes", 404, "there is no page"),
        ("/api/v1/simulate?" + "&".join(f"a{number}=1" for number in range(101)), 400, "parameters"),
    ],
)
async def test_unknown_page_is_a_json_error(tmp: Path, path: str, status: int, text: str) -> None:
    async with running(tmp) as rig:
        got, _, body = await page(rig, path)
        assert got == status and text in body["message"] and body["code"] == "INVALID_MESSAGE"
        assert rig.selector.seen_of(Query) == []


async def test_page_without_a_reply_is_a_504(tmp: Path) -> None:
    async with running(tmp, page_timeout_ms=300) as rig:
        rig.selector.mute = lambda frame: isinstance(frame, Query)
        for path in ("weights", "metrics", "explain/job-00-1", "recording", "invariants"):
            status, _, body = await page(rig, f"/api/v1/{path}")
            assert (status, body["code"]) == (504, "SCHEDULER_DEPENDENCY_DOWN"), path
            assert body["message"] == "no selector answered in time"
        assert len(rig.selector.seen_of(Query)) > 5, "a question is repeated"


async def test_pending_requests_are_bounded(tmp: Path) -> None:
    async with running(tmp, page_timeout_ms=2_000, pages_max=2) as rig:
        rig.selector.mute = lambda frame: isinstance(frame, Query)
        slow = [asyncio.create_task(page(rig, "/api/v1/weights")) for _ in range(2)]
        await until(lambda: len(rig.selector.seen_of(Query)) >= 2, "two questions are open")
        status, _, body = await page(rig, "/api/v1/weights")
        assert (status, body["code"]) == (503, "SLOW_DOWN")
        assert [(await task)[0] for task in slow] == [504, 504]


async def test_explain_queries_all_selectors_and_responds_with_the_first_result(tmp: Path) -> None:
    async with two_selectors(tmp, page_timeout_ms=500) as (rig, one, other):
        one.answers["explain"] = (404, {"code": "INVALID_MESSAGE", "message": "not here"})
        other.answers["explain"] = (200, {"job_id": "job-03-ab", "words": ["It was the fastest."]})
        status, _, body = await page(rig, "/api/v1/explain/job-03-ab")
        assert (status, body["words"]) == (200, ["It was the fastest."])
        status, _, _ = await page(rig, "/api/v1/explain/s-1%3A4%3Aen%3Atrace")
        asked = [frame.params for frame in other.seen_of(Query) if frame.kind == "explain"]
        assert asked == [{"job_id": ["job-03-ab"]}, {"request_id": ["s-1:4:en:trace"]}]
        # One that hangs does not keep the other's answer from the reader.
        one.mute = lambda frame: isinstance(frame, Query) and frame.kind == "explain"
        assert (await page(rig, "/api/v1/explain/job-03-ab"))[0] == 200
        other.answers["explain"] = one.answers["explain"]
        status, _, body = await page(rig, "/api/v1/explain/job-03-ab")
        assert status == 404 and "none of 1 selectors has" in body["message"]
        assert "1 did not answer" in body["message"] and "selector.decisions_kept" in body["message"]


async def test_metrics_of_all_selectors_are_added_up(tmp: Path) -> None:
    async with two_selectors(tmp, page_timeout_ms=500) as (rig, one, other):
        for selector, count in ((one, 2), (other, 5)):
            models = {"received_total": count, "by_service_top": [{"key": "asr", "count": count}]}
            reason = {"reason": "offline", "total": count, "sample_node_ids": [str(count)]}
            told = {"model_not_available": models, "dispatch_exclude": {"by_reason": [reason]}}
            selector.answers["metrics"] = (200, told)
        status, _, body = await page(rig, "/api/v1/metrics")
        assert status == 200 and body["selectors"] == {"asked": 2, "answered": 2}
        assert body["model_not_available"] == {"received_total": 7, "by_service_top": [{"key": "asr", "count": 7}]}
        (reason,) = body["dispatch_exclude"]["by_reason"]
        assert (reason["reason"], reason["total"]) == ("offline", 7) and sorted(reason["sample_node_ids"]) == ["2", "5"]
        # One that died a moment ago is still on the list; its letter comes back at once.
        gone = [one.link.identity, "selector:gone:00000000"]
        one.answers["selectors"] = other.answers["selectors"] = (200, {"selectors": gone})
        body = (await page(rig, "/api/v1/metrics"))[2]
        assert body["selectors"] == {"asked": 2, "answered": 1} and body["model_not_available"]["received_total"] == 2


async def test_recording_is_the_reply_of_the_named_selector(tmp: Path) -> None:
    async with two_selectors(tmp) as (rig, one, other):
        one.answers["recording"], other.answers["recording"] = (200, b"one"), (200, b"other")
        status, headers, body = await page(rig, f"/api/v1/recording?selector={other.link.identity}")
        assert (status, headers["content-type"], body) == (200, "application/vnd.msgpack", "other")
        status, _, body = await page(rig, "/api/v1/recording")
        assert status == 400 and one.link.identity in body["message"], "there are two: name one"
        status, _, body = await page(rig, "/api/v1/recording?selector=nobody")
        assert status == 404 and "nobody" in body["message"]
        one.answers["selectors"] = other.answers["selectors"] = (200, {"selectors": [one.link.identity]})
        assert (await page(rig, "/api/v1/recording"))[2] == "one", "there is one: no need to"
        one.answers["recording"] = (413, {"code": "MESSAGE_TOO_LARGE", "message": "the answer has 9 bytes"})
        status, _, body = await page(rig, "/api/v1/recording")
        assert (status, body["code"]) == (413, "MESSAGE_TOO_LARGE")


async def test_invariants_include_the_counts_of_this_edge_and_presence_reports_them(tmp: Path) -> None:
    async with running(tmp) as rig:
        rig.selector.answers["invariants"] = (200, {"ok": True, "oversold": []})
        node, client = await rig.node(), await rig.session()
        await client.utter(0)
        await node.answer(await node.receive("job_assign"))
        await client.receive("translation_result")
        await client.utter(1)
        await node.receive("job_assign")
        status, _, body = await page(rig, "/api/v1/invariants")
        assert status == 200 and body["ok"] is True and body["edge"]["balanced"] is True
        assert (body["edge"]["accepted"], body["edge"]["delivered"], body["edge"]["in_flight"]) == (2, 1, 1)
        await client.close()
        await until(lambda: rig.selector.seen_of(Cancel), "the session is closed")

        def reported() -> bool:
            reports = [frame.counts for frame in rig.selector.seen_of(EdgeReport)]
            return bool(reports) and (reports[-1]["accepted"], reports[-1]["cancelled"]) == (2, 1)

        await until(reported, "the next report has it")
        report = rig.selector.seen_of(EdgeReport)[-1]
        assert report.edge == rig.edges[0].identity and report.pid > 0 and report.host and report.version
        assert report.counts["in_flight"] == 0 and report.counts["nodes"] == 1 and report.counts["sessions"] == 0
        rig.edges[0].sessions.tracker.table.accepted += 1
        body = (await page(rig, "/api/v1/invariants"))[2]
        assert body["ok"] is False and body["edge"]["balanced"] is False, "a lost utterance shows"
        rig.edges[0].sessions.tracker.table.accepted -= 1
