"""Streamed speech through a real edge: what the node gets, what the client hears, and in which order."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from mesh.frames import Cancel
from mesh.messages import audio_frames
from mesh.messages.audio_frames import AudioFrame, FinalFrame, PingFrame, PongFrame
from mesh.words import ResultOutcome
from tests.support.processes.edge import Rig, Talk, running, until

PCM = {"audio_formats": ["pcm16"]}
#: 100 ms each, all different.
PIECES = [bytes([number, 1]) * 1_600 for number in range(1, 40)]
SPEECH = {"speech_pause_ms": 300, "speech_hangover_auto_ms": 10, "speech_short_merge_ms": 0}


def sound_of(job: dict[str, Any]) -> bytes:
    return base64.b64decode(job["audio"])


def flags(job: dict[str, Any]) -> set[str]:
    return {name for name, value in job.items() if name.startswith("is_") and value}


async def streaming(rig: Rig, **fields: Any) -> Talk:
    return await rig.session(**{**PCM, **fields})


def told(client: Talk) -> list[tuple[int, str]]:
    """Every index that ended at the client, in order: its text, or why it is missing."""
    return [
        (message["utterance_index"], message.get("reason") or message["text_translated"])
        for message in client.received
        if message["type"] in ("translation_result", "missing_result")
    ]


async def test_streamed_chunks_become_one_utterance_when_the_client_says_so(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, client = await rig.node(), await streaming(rig)
        for seq in range(3):
            await client.chunk(seq, PIECES[seq])
        await client.chunk(3, is_final=True)
        job = await node.receive("job_assign")
        assert sound_of(job) == b"".join(PIECES[:3])
        assert (job["audio_format"], job["sample_rate"], job["padding_ms"]) == ("pcm16", 16_000, 280)
        assert flags(job) == {"is_manual_cut"} and job["utterance_index"] == 0 and job["turn_id"] and job["group_id"]
        await client.receive("ui_event", event="DISPATCHED")  # sent only while there is no result
        await node.answer(job, text_asr="one", text_translated="eins")
        first = await client.receive("translation_result")
        assert first["group_id"] == job["group_id"] and first["part_index"] == 0
        await client.chunk(4, PIECES[4], is_final=True)
        job = await node.receive("job_assign")
        assert job["utterance_index"] == 1 and sound_of(job) == PIECES[4]
        assert job["context_text"] == "User: one\nTarget: eins\n", "the node knows what was said before"
        events = [message["event"] for message in client.received if message["type"] == "ui_event"]
        assert events[:3] == ["INPUT_STARTED", "INPUT_ENDED", "DISPATCHED"]


async def test_binary_frames_are_taken_once_both_agreed(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, plain = await rig.node(), await streaming(rig)
        await plain.send(audio_frames.encode(AudioFrame(plain.id, 0, 0, False, PIECES[0])))
        assert (await plain.receive("error"))["code"] == "UNSUPPORTED_FEATURE"
        client = await streaming(rig, binary_frames=True)
        for seq in range(3):
            await client.send(audio_frames.encode(AudioFrame(client.id, seq, 1_000 + 100 * seq, False, PIECES[seq])))
        await client.send(audio_frames.encode(FinalFrame(client.id, 3, 1_300)))
        assert sound_of(await node.receive("job_assign")) == b"".join(PIECES[:3])
        await client.chunk(4, PIECES[4])  # both kinds share one numbering
        await client.send(audio_frames.encode(AudioFrame(client.id, 5, 1_500, True, PIECES[5])))
        assert sound_of(await node.receive("job_assign")) == PIECES[4] + PIECES[5]
        await client.send(audio_frames.encode(PingFrame(client.id, 6, 7)))
        while not isinstance(answer := await client.socket.recv(), bytes):
            pass
        assert audio_frames.decode(answer) == PongFrame(client.id, 6, 7)
        await client.send(audio_frames.encode(FinalFrame("s-other", 7, 0)))
        assert (await client.receive("error"))["code"] == "ID_MISMATCH"


async def test_defect_01_no_beginning_is_cut_off_after_a_pause_and_no_tail_glued_on(tmp: Path) -> None:
    async with running(tmp, **SPEECH) as rig:
        node, client = await rig.node(), await streaming(rig)
        for seq in range(2):
            await client.chunk(seq, PIECES[seq])
        job = await node.receive("job_assign")  # the pause alone ends it
        assert sound_of(job) == PIECES[0] + PIECES[1] and flags(job) == {"is_timeout_triggered"}
        for seq in range(2, 5):
            await client.chunk(seq, PIECES[seq], client_timestamp_ms=seq * 100)
        await client.chunk(5, PIECES[5], client_timestamp_ms=9_000)
        job = await node.receive("job_assign")
        assert sound_of(job) == b"".join(PIECES[2:5]) and flags(job) == {"is_pause_triggered"}
        job = await node.receive("job_assign")
        assert sound_of(job) == PIECES[5] and job["utterance_index"] == 2


async def test_defect_02_utterance_without_a_node_does_not_stop_the_session(tmp: Path) -> None:
    async with running(tmp, job_pending_timeout_ms=300) as rig:
        client = await streaming(rig)
        await client.chunk(0, PIECES[0], is_final=True)
        error = await client.receive("error")
        assert error["code"] == "NO_AVAILABLE_NODE" and error["details"]["utterance_index"] == 0
        missing = await client.receive("missing_result")
        assert (missing["utterance_index"], missing["reason"]) == (0, "job_failed")
        node = await rig.node()
        await client.chunk(1, PIECES[1], is_final=True)
        await node.answer(await node.receive("job_assign"))
        assert (await client.receive("translation_result"))["utterance_index"] == 1


async def test_defect_03_idle_session_is_told_and_later_audio_wakes_it_up(tmp: Path) -> None:
    async with running(tmp, speech_idle_ms=200) as rig:
        node, client = await rig.node(), await streaming(rig)
        idle = await client.receive("session_idle")
        assert idle["session_id"] == client.id and idle["idle_ms"] >= 200
        await client.send({"type": "client_heartbeat", "session_id": client.id, "timestamp": 1})
        await client.receive("server_heartbeat")
        await client.chunk(0, PIECES[0], is_final=True)
        await node.answer(await node.receive("job_assign"))
        await client.receive("translation_result")
        await client.receive("session_idle")


async def test_defect_04_nothing_is_kept_of_a_client_that_vanished(tmp: Path) -> None:
    async with running(tmp, session_resume_ms=200) as rig:
        sessions = rig.edges[0].sessions
        for resumable in (False, True):
            client = await streaming(rig, resumable=resumable)
            await client.chunk(0, PIECES[0])
            actor = sessions.actors[client.id]
            await client.close()
            await until(lambda: not sessions.actors, "the session is forgotten")
            assert actor.state.is_ended and not sessions.tracker.requests
            await until(lambda: not rig.selector.sessions, "the mesh is told")


async def test_defect_05_flood_gets_backpressure_and_costs_a_bounded_amount(tmp: Path) -> None:
    async with running(tmp, speech_events_max=16, utterances_per_session_max=1) as rig:
        node, client = await rig.node(), await streaming(rig)
        for seq in range(40):
            await client.chunk(seq, PIECES[seq % 39], is_final=True)
        for action in ("SLOW_DOWN", "PAUSE", "BUSY"):
            assert (await client.receive("backpressure", action=action))["resume_after_ms"] > 0
        refused = await client.receive("error")
        assert refused["code"] == "SLOW_DOWN" and refused["details"]["seq"] > 0
        actor = rig.edges[0].sessions.actors[client.id]
        assert actor.state.admission.waiting <= 16
        jobs = [await node.receive("job_assign")]
        await node.answer(jobs[0])
        await client.receive("translation_result", utterance_index=0)
        jobs.append(await node.receive("job_assign"))
        assert jobs[1]["utterance_index"] == 1, "it goes on as soon as there is room"


async def test_defect_06_duration_of_pcm_is_exact(tmp: Path) -> None:
    async with running(tmp, speech_max_duration_ms=500) as rig:
        node, client = await rig.node(), await streaming(rig)
        for seq in range(7):
            await client.chunk(seq, PIECES[seq])
        job = await node.receive("job_assign")
        assert sound_of(job) == b"".join(PIECES[:5]), "five chunks of 100 ms are 500 ms"
        assert flags(job) == {"is_max_duration_triggered"}
        await client.chunk(7, is_final=True)
        rest = await node.receive("job_assign")
        assert sound_of(rest) == PIECES[5] + PIECES[6] and rest["turn_id"] == job["turn_id"], "one turn of speech"


@pytest.mark.parametrize(
    ("payload", "formats"),
    [("not base64!", ["pcm16"]), ("QUJD", ["pcm16"]), ("/wBh", ["opus"])],
    ids=["not base64", "half a sample", "torn packet"],
)
async def test_defect_07_malformed_audio_is_told_and_costs_only_itself(
    tmp: Path, payload: str, formats: list[str]
) -> None:
    async with running(tmp) as rig:
        node, client = await rig.node(), await streaming(rig, audio_formats=formats)
        good = PIECES[0] if formats == ["pcm16"] else b"\x03\x00abc"
        await client.chunk(0, good)
        bad = {"type": "audio_chunk", "session_id": client.id, "seq": 1, "is_final": False, "payload": payload}
        await client.send(bad)
        error = await client.receive("error")
        assert (error["code"], error["details"]["seq"]) == ("INVALID_AUDIO", 1)
        await client.chunk(2, good, is_final=True)
        assert sound_of(await node.receive("job_assign")) == good * 2


async def test_defect_11_messages_about_other_sessions_are_refused(tmp: Path) -> None:
    async with running(tmp) as rig:
        victim, client = await streaming(rig), await streaming(rig)
        for message in (
            {"type": "audio_chunk", "seq": 0, "is_final": True, "payload": ""},
            {"type": "session_close", "reason": "mischief"},
            {"type": "tts_started", "trace_id": "t", "group_id": "g", "ts_start_ms": 1},
        ):
            await client.send({**message, "session_id": victim.id})
            assert (await client.receive("error"))["code"] == "ID_MISMATCH"
        assert len(rig.edges[0].sessions.actors) == 2 and len(victim.id) >= 22, "and cannot be guessed"


async def test_results_are_told_in_order_however_they_come(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, client = await rig.node(max_concurrent_jobs=8), await streaming(rig)
        for seq in range(5):
            await client.chunk(seq, PIECES[seq], is_final=True)
        jobs = {job["utterance_index"]: job for job in [await node.receive("job_assign") for _ in range(5)]}
        bad = {"code": "NMT_TIMEOUT", "message": "slow"}
        await node.answer(jobs[3])
        await node.answer(jobs[1], success=False, error=bad)
        await node.answer(jobs[4])
        await node.answer(jobs[2], text_asr="", text_translated="", tts_audio="")
        assert (await client.receive("error"))["details"]["utterance_index"] == 1, "a failure is told at once"
        await node.answer(jobs[0])
        await client.receive("translation_result", utterance_index=4)
        expected = [(0, "hello 0"), (1, "job_failed"), (2, "silence_detected"), (3, "hello 3"), (4, "hello 4")]
        assert told(client) == expected


async def test_gap_is_told_as_missing_and_what_comes_later_is_dropped(tmp: Path) -> None:
    async with running(tmp, session_gap_ms=300) as rig:
        node, client = await rig.node(max_concurrent_jobs=8), await streaming(rig)
        for seq in range(3):
            await client.chunk(seq, PIECES[seq], is_final=True)
        jobs = {job["utterance_index"]: job for job in [await node.receive("job_assign") for _ in range(3)]}
        await node.answer(jobs[1])
        assert (await client.receive("missing_result"))["reason"] == "gap_timeout"
        assert (await node.receive("job_cancel"))["job_id"] == jobs[0]["job_id"], "its node may stop"
        await node.answer(jobs[0])
        await node.answer(jobs[2])
        await client.receive("translation_result", utterance_index=2)
        assert told(client) == [(0, "gap_timeout"), (1, "hello 1"), (2, "hello 2")]


async def test_close_cuts_what_is_there_and_waits_for_its_result(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, client = await rig.node(), await streaming(rig)
        await client.chunk(0, PIECES[0])
        await client.send({"type": "session_close", "session_id": client.id, "reason": "done"})
        job = await node.receive("job_assign")
        assert sound_of(job) == PIECES[0] and job["padding_ms"] == 220
        await client.chunk(1, PIECES[1])
        assert (await client.receive("error"))["code"] == "SESSION_CLOSED"
        await node.answer(job)
        await client.receive("session_close_ack")
        assert told(client) == [(0, "hello 0")]
        assert not rig.edges[0].sessions.actors


async def test_close_gives_up_what_takes_too_long(tmp: Path) -> None:
    async with running(tmp, session_close_ms=200) as rig:
        node, client = await rig.node(), await streaming(rig)
        await client.chunk(0, PIECES[0], is_final=True)
        job = await node.receive("job_assign")
        await client.send({"type": "session_close", "session_id": client.id, "reason": "done"})
        await client.receive("session_close_ack")
        assert (await node.receive("job_cancel"))["job_id"] == job["job_id"]


async def test_duplicate_and_early_chunks_are_put_right(tmp: Path) -> None:
    async with running(tmp, speech_hangover_manual_ms=5_000, speech_hangover_auto_ms=5_000) as rig:
        node, client = await rig.node(), await streaming(rig)
        for seq in (0, 2, 1, 1, 0, 4):
            await client.chunk(seq, PIECES[seq], is_final=seq == 4)
        await client.chunk(3, PIECES[3])
        assert sound_of(await node.receive("job_assign")) == b"".join(PIECES[:5])


async def test_defect_12_old_attempt_neither_reaches_the_client_nor_hides_the_new_one(tmp: Path) -> None:
    async with running(tmp, job_dispatched_timeout_ms=200) as rig:
        rig.selector.mute = lambda frame: isinstance(frame, Cancel)  # the slow node never hears that it lost the job
        nodes = {name: await rig.node(node_id=name) for name in ("n-1", "n-2")}
        client = await streaming(rig)
        await client.chunk(0, PIECES[0], is_final=True)
        got: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()

        async def listen(name: str) -> None:
            while True:
                await got.put((name, await nodes[name].receive("job_assign")))

        listening = [asyncio.create_task(listen(name)) for name in nodes]
        (slow, old), (other, new) = await got.get(), await got.get()
        assert (old["attempt_id"], new["attempt_id"]) == (1, 2) and slow != other
        await nodes[slow].answer(old, text_translated="of the old attempt")
        late = rig.edges[0].metrics.results_total.labels(ResultOutcome.LATE)
        await until(lambda: late.value == 1, "the late one arrived, and is fenced")
        await nodes[other].answer(new, text_translated="of the new one")
        assert (await client.receive("translation_result"))["text_translated"] == "of the new one"
        await nodes[other].answer(new, text_translated="again")
        await client.chunk(1, PIECES[1], is_final=True)
        name, job = await got.get()
        await nodes[name].answer(job)
        await client.receive("translation_result", utterance_index=1)
        assert told(client) == [(0, "of the new one"), (1, "hello 1")]
        for task in listening:
            task.cancel()
        await asyncio.wait(listening)


async def test_client_that_never_acknowledges_is_given_up_before_it_costs_much(tmp: Path) -> None:
    async with running(tmp, session_unacked_bytes_max=1_024) as rig:
        node, client = await rig.node(), await streaming(rig, resumable=True)
        for seq in range(2):
            await client.chunk(seq, PIECES[seq], is_final=True)
        for _ in range(2):
            await node.answer(await node.receive("job_assign"), text_asr="x" * 1_100)
        error = await client.receive("error")
        assert error["code"] == "SESSION_CLOSED" and "acknowledge" in error["message"]
        assert not rig.edges[0].sessions.actors


async def test_stream_goes_on_after_a_whole_utterance_with_the_next_index(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, client = await rig.node(), await streaming(rig)
        words = {"session_id": client.id, "trace_id": "t", "group_id": "g"}
        await client.send({"type": "tts_started", **words, "ts_start_ms": 1})
        await client.utter(0)
        await client.chunk(0, PIECES[0], is_final=True)
        await client.utter(2)
        await client.utter(3)
        await client.chunk(1, PIECES[1], is_final=True)
        for index in range(5):
            job = await node.receive("job_assign")
            assert job["utterance_index"] == index
            await node.answer(job)
            await client.receive("translation_result", utterance_index=index)
