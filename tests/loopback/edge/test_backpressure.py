"""Clients that send too much, too early or twice, and time that goes on for the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mesh.frames import Push, RoomRequest
from mesh.words import ChunkAnomaly
from tests.loopback.edge.test_resume import RESUMABLE, back, cut
from tests.loopback.edge.test_streaming import PCM, PIECES, SPEECH, sound_of
from tests.support.processes.edge import Rig, Talk, result_of, running, until


async def busy(rig: Rig, client: Talk) -> None:
    """The client's session waits for an answer of the mesh, which does not come."""
    rig.selector.mute = lambda frame: isinstance(frame, RoomRequest)
    await client.send({"type": "room_create", "client_ts": 1})
    await until(lambda: rig.edges[0].sessions.actors[client.id].state.admission.is_calling, "it waits")


def go_on(rig: Rig) -> None:
    rig.selector.mute = lambda frame: False


async def test_chunks_that_a_resuming_client_repeats_are_no_new_numbering(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, client = await rig.node(), await rig.session(**RESUMABLE)
        await busy(rig, client)
        for seq in range(2):
            await client.chunk(seq, PIECES[seq], is_final=seq == 1)
        actor = rig.edges[0].sessions.actors[client.id]
        await until(lambda: actor.state.admission.waiting == 2, "they wait")
        again, ack = await back(rig, client)
        assert ack["resend_from_seq"] == 0
        for seq in range(3):
            await again.chunk(seq, PIECES[seq], is_final=seq > 0)
        go_on(rig)
        assert [sound_of(await node.receive("job_assign")) for _ in range(2)] == [PIECES[0] + PIECES[1], PIECES[2]]
        restarts = rig.edges[0].metrics.chunk_anomalies_total.labels(ChunkAnomaly.RESTART)
        assert restarts.value == 0


async def test_messages_that_wait_are_bounded_in_bytes_too(tmp: Path) -> None:
    async with running(tmp) as rig:
        client = await rig.session()
        await busy(rig, client)
        for index in range(20):
            await client.utter(index, bytes(1_000_000))
        refused = await client.receive("error")
        assert refused["code"] == "SLOW_DOWN" and refused["details"]["utterance_index"] < 10
        go_on(rig)
        await client.receive("room_members")


async def test_sessions_that_are_away_are_bounded_and_the_oldest_goes_on_all_the_same(tmp: Path) -> None:
    async with running(tmp, session_away_max=2) as rig:
        node = await rig.node()
        clients = [await rig.session(**RESUMABLE) for _ in range(4)]
        await clients[0].chunk(0, PIECES[0], is_final=True)
        job = await node.receive("job_assign")
        actors = rig.edges[0].sessions.actors
        for client in clients:
            cut(client)
            await until(lambda client=client: rig.selector.records[client.id].away, "it is away")
        assert list(actors) == [client.id for client in clients[2:]]
        await node.answer(job)
        await until(lambda: bool(rig.selector.records[clients[0].id].mail), "its result waits in the mail")
        again, ack = await back(rig, clients[0])
        assert (ack["resumed"], ack["lost"], ack["next_utterance_index"]) == (True, False, 1)
        await again.receive("translation_result", utterance_index=0)


async def test_session_that_cannot_be_looked_at_does_not_stop_the_clock_of_others(tmp: Path) -> None:
    async with running(tmp, **SPEECH) as rig:
        node, bad, good = await rig.node(), await rig.session(**PCM), await rig.session(**PCM)

        actors = rig.edges[0].sessions.actors
        for client in (bad, good):
            await client.chunk(0, PIECES[0])
        await until(lambda: all(actors[client.id].state.intake.segments for client in (bad, good)), "both speak")
        actors[bad.id].state.outcomes.language_orders = None  # type: ignore[assignment]  # a bug
        rig.edges[0].sessions._timers.set(bad.id, 0)
        assert sound_of(await node.receive("job_assign", session_id=good.id)) == PIECES[0]


async def test_asker_that_fails_on_an_answer_does_not_cost_others_theirs(tmp: Path) -> None:
    async with running(tmp, answer_timeout_ms=300) as rig:
        link, heard = rig.edges[0].link, []
        rig.selector.mute = lambda frame: True

        def fail(answer: Any) -> None:
            raise RuntimeError("a bug")

        def question(ref: str) -> RoomRequest:
            return RoomRequest(ref, link.identity, "s-1", "look", "123456")

        link.ask(question, "123456", fail)
        link.ask(question, "123456", heard.append)
        await until(lambda: heard == [None], "the other hears that there is none")
        assert not link.asks.open


async def test_one_session_does_not_take_the_room_of_all(tmp: Path) -> None:
    limits = {"audio_kept_bytes_max": 4_000_000, "audio_kept_per_session_bytes_max": 1_000_000}
    async with running(tmp, **limits) as rig:
        rig.selector.mute = lambda frame: False
        greedy, streams, modest = await rig.session(), await rig.session(**PCM), await rig.session()
        for index in range(20):
            await greedy.utter(index, bytes(300_000))
        assert (await greedy.receive("error", code="SLOW_DOWN"))["details"]["utterance_index"] == 3
        for seq in range(20):
            await streams.chunk(seq, bytes(300_000), is_final=True)
        tracker = rig.edges[0].sessions.tracker
        await until(lambda: tracker.pending(streams.id) >= 3, "as much as it may have is under way")
        assert tracker.table.audio_bytes <= 2_000_000
        await modest.utter(0, bytes(300_000))
        await until(lambda: tracker.pending(modest.id) == 1, "others have room")


async def test_failure_of_a_node_that_waited_in_the_mail_is_tried_again_elsewhere(tmp: Path) -> None:
    async with running(tmp, edges=2) as rig:
        node, client = await rig.node(1), await rig.session(**RESUMABLE)
        await client.chunk(0, PIECES[0], is_final=True)
        job = await node.receive("job_assign")
        cut(client)
        await until(lambda: rig.selector.records[client.id].away, "it is away")
        push = Push(job["job_id"], 1, node.id, "", f"{client.id}:0:en:{job['trace_id']}:0-0", client.id, 0)
        error = {"code": "NODE_OVERLOADED", "message": "too much"}
        body = json.dumps(result_of(job, node.id, success=False, error=error)).encode()
        rig.selector.park(client.id, "1", push, body)
        again, ack = await back(rig, client, 1)
        assert (ack["next_utterance_index"], ack["resend_from_seq"]) == (0, 0)
        await again.chunk(0, PIECES[0], is_final=True)
        await until(lambda: rig.edges[1].sessions.tracker.pending(client.id) == 1, "it is asked for again")


async def test_close_is_answered_in_time_whatever_waits_before_it(tmp: Path) -> None:
    async with running(tmp, session_close_ms=300, utterances_per_session_max=1, speech_events_max=8) as rig:
        node, client = await rig.node(), await rig.session(**PCM)
        for seq in range(12):
            await client.chunk(seq, PIECES[seq], is_final=True)
        job = await node.receive("job_assign")
        await client.send({"type": "session_close", "session_id": client.id, "reason": "done"})
        await client.receive("session_close_ack")
        assert (await node.receive("job_cancel"))["job_id"] == job["job_id"]
        assert not rig.edges[0].sessions.actors


async def test_last_words_of_a_member_are_heard_although_they_had_to_wait(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, speaker, listener = await rig.node(), await rig.session(**PCM), await rig.session(**PCM)
        await speaker.send({"type": "room_create", "client_ts": 1})
        code = (await speaker.receive("room_create_ack"))["room_code"]
        await listener.send({"type": "room_join", "room_code": code, "preferred_lang": "en"})
        await listener.receive("room_members")
        rig.selector.mute = lambda frame: isinstance(frame, RoomRequest)
        prefer = {"type": "room_raw_voice_preference", "room_code": code, "target_session_id": listener.id}
        await speaker.send({**prefer, "receive_raw_voice": False})
        await speaker.chunk(0, PIECES[0])
        actor = rig.edges[0].sessions.actors[speaker.id]
        await until(lambda: actor.state.admission.waiting == 1, "its words wait")
        cut(speaker)
        await until(lambda: actor.socket is None, "and it is gone")
        go_on(rig)
        job = await node.receive("job_assign")
        assert sound_of(job) == PIECES[0]
        await node.answer(job)
        await listener.receive("translation_result", session_id=speaker.id)
