"""Members of rooms who come, go, move, change their minds or take nothing, on real edges."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mesh.errors import ErrorCode
from mesh.frames import Post, RoomRequest, RoomState
from tests.loopback.edge.test_resume import RESUMABLE, back, cut, held_back, thank
from tests.loopback.edge.test_streaming import PCM, PIECES
from tests.support.processes.edge import Rig, Talk, running, until


async def enter(rig: Rig, speaker: Talk, *others: tuple[Talk, str]) -> str:
    """A room of the speaker's, who wants to hear nothing, and of the others, who want to hear these languages."""
    await speaker.send({"type": "room_create", "client_ts": 1})
    code = str((await speaker.receive("room_create_ack"))["room_code"])
    await speaker.receive("room_members")
    for other, lang in others:
        await join(other, code, lang)
    await until(lambda: len(rig.selector.rooms[code]) == 1 + len(others), "all are in")
    return code


async def join(talk: Talk, code: str, lang: str) -> None:
    await talk.send({"type": "room_join", "room_code": code, "preferred_lang": lang})
    await talk.receive("room_members")


async def work(node: Talk, *_: Any) -> None:
    """A node that does its jobs at once."""
    while True:
        await node.answer(await node.receive("job_assign"))


def heard_of(talk: Talk, speaker: Talk) -> list[int]:
    """The speaker's indices that a listener was told, in order."""
    return [
        one["utterance_index"]
        for one in talk.received
        if one["type"] in ("translation_result", "missing_result") and one["session_id"] == speaker.id
    ]


@pytest.mark.parametrize("same_edge", [True, False], ids=["one edge", "two edges"])
async def test_member_that_comes_back_to_its_edge_gets_what_was_said_meanwhile(tmp: Path, same_edge: bool) -> None:
    async with running(tmp, edges=2) as rig:
        working = asyncio.create_task(work(await rig.node()))
        speaker, listener = await rig.session(0 if same_edge else 1, **PCM), await rig.session(**RESUMABLE)
        await enter(rig, speaker, (listener, "en"))
        cut(listener)
        await until(lambda: rig.selector.records[listener.id].away, "the mesh knows")
        for seq in range(2):
            await speaker.chunk(seq, PIECES[seq], is_final=True)
        await until(lambda: len(rig.selector.records[listener.id].mail) == 2, "both wait in the mail")
        again, ack = await back(rig, listener)
        assert ack["resumed"]
        await again.receive("translation_result", utterance_index=1)
        assert heard_of(again, speaker) == [0, 1]
        await thank(again, 1, speaker.id)
        await until(lambda: not rig.selector.records[listener.id].mail, "and is kept no longer")
        await speaker.chunk(2, PIECES[2], is_final=True)
        await again.receive("translation_result", utterance_index=2)
        assert heard_of(again, speaker) == [0, 1, 2]
        working.cancel()


async def test_member_that_moves_to_another_edge_before_it_said_thanks_hears_on(tmp: Path) -> None:
    async with running(tmp, edges=2) as rig:
        working = asyncio.create_task(work(await rig.node()))
        speaker, listener = await rig.session(**RESUMABLE), await rig.session(**RESUMABLE)
        await enter(rig, speaker, (listener, "en"))
        for seq in range(2):
            await speaker.chunk(seq, PIECES[seq], is_final=True)
        await listener.receive("translation_result", utterance_index=0)
        again, ack = await back(rig, listener, 1)
        assert ack["resumed"]
        for index in range(2):
            await again.receive("translation_result", utterance_index=index)
            await thank(again, index, speaker.id)
        await speaker.receive("utterance_ended", utterance_index=1)
        assert heard_of(again, speaker) == [0, 1]
        await until(lambda: not len(rig.edges[0].sessions.relay), "nothing waits any more")
        working.cancel()


async def test_speaker_that_moves_while_its_words_wait_leaves_nothing_behind(tmp: Path) -> None:
    async with running(tmp, edges=2) as rig:
        working = asyncio.create_task(work(await rig.node()))
        speaker, listener = await rig.session(**RESUMABLE), await rig.session(**RESUMABLE)
        await enter(rig, speaker, (listener, "en"))
        await speaker.chunk(0, PIECES[0], is_final=True)
        await listener.receive("translation_result", utterance_index=0)
        moved, ack = await back(rig, speaker, 1)
        assert (ack["resumed"], ack["resend_from_seq"]) == (True, 0)
        await moved.chunk(0, PIECES[0], is_final=True)
        await until(lambda: len(rig.edges[1].sessions.relay) == 1, "edge 1 tells the listener of it too")
        await until(lambda: len(rig.selector.seen_of(Post)) > 1, "it is retried")
        assert rig.edges[0].sessions.actors[listener.id].state.inbox.unacked == [(speaker.id, 0)]
        await thank(listener, 0, speaker.id)
        await moved.receive("utterance_ended", utterance_index=0)
        await until(lambda: not len(rig.edges[0].sessions.relay), "edge 0 has forgotten it too")
        assert heard_of(listener, speaker) == [0]
        working.cancel()


@pytest.mark.parametrize("action", ["create", "join"])
async def test_session_that_ends_before_it_is_in_a_room_does_not_stay_there(tmp: Path, action: str) -> None:
    async with running(tmp) as rig:
        host, guest = await rig.session(), await rig.session()
        code = await enter(rig, host)
        messages = {
            "create": {"type": "room_create", "client_ts": 1},
            "join": {"type": "room_join", "room_code": code, "preferred_lang": "en"},
        }
        with held_back(rig.selector, lambda frame: isinstance(frame, RoomState)) as kept:
            await guest.send(messages[action])
            await until(lambda: bool(kept), "the mesh put it into the room")
            cut(guest)
            await until(lambda: guest.id not in rig.edges[0].sessions.actors, "the session is over")
        await until(
            lambda: not any(guest.id in members for members in rig.selector.rooms.values()), "it is taken out again"
        )


async def test_mesh_that_cannot_tell_who_is_in_a_room_is_asked_again(tmp: Path) -> None:
    async with running(tmp, answer_timeout_ms=500) as rig:
        working = asyncio.create_task(work(await rig.node()))
        speaker, listener = await rig.session(**PCM), await rig.session(**PCM)
        await enter(rig, speaker, (listener, "en"))
        rig.selector.fault = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
        await speaker.chunk(0, PIECES[0], is_final=True)
        asked = lambda: [one for one in rig.selector.seen_of(RoomRequest) if one.action == "speak"]  # noqa: E731
        await until(lambda: len(asked()) >= 1, "it is asked")
        rig.selector.fault = None
        await listener.receive("translation_result", utterance_index=0)
        rig.selector.mute = lambda frame: isinstance(frame, RoomRequest)
        before = len(asked())
        await speaker.chunk(1, PIECES[1], is_final=True)
        await until(lambda: len({one.ref for one in asked()[before:]}) >= 2, "no answer: it is asked anew")
        rig.selector.mute = lambda frame: False
        await listener.receive("translation_result", utterance_index=1)
        assert heard_of(listener, speaker) == [0, 1] and not heard_of(speaker, speaker)
        working.cancel()


async def test_member_that_never_says_thanks_does_not_silence_the_speaker(tmp: Path) -> None:
    async with running(tmp, edges=2, session_unacked_max=4, session_mail_max=6, session_resume_ms=1_500) as rig:
        working = asyncio.create_task(work(await rig.node()))
        speaker = await rig.session(**RESUMABLE)
        silent, far, good = [await rig.session(edge, **RESUMABLE) for edge in (0, 1, 0)]
        await enter(rig, speaker, (silent, "en"), (far, "en"), (good, "fr"))
        for seq in range(20):
            await speaker.chunk(seq, PIECES[seq], is_final=True)
            await good.receive("translation_result", utterance_index=seq)
            await thank(good, seq, speaker.id)
            await thank(speaker, seq)
        await speaker.send({"type": "client_heartbeat", "session_id": speaker.id, "timestamp": 1})
        await speaker.receive("server_heartbeat")
        assert not any(one["type"] == "backpressure" for one in speaker.received)
        await silent.receive("translation_result", utterance_index=1)  # the time of the one before was up
        posts = rig.edges[0].sessions.relay
        assert len(posts) <= 2 * 6, "what waits for them is bounded"
        await until(lambda: not len(posts), "and given up in the end")
        working.cancel()


async def test_member_that_changes_its_language_hears_everything_in_order(tmp: Path) -> None:
    async with running(tmp) as rig:
        node = await rig.node(max_concurrent_jobs=8)
        speaker, listener = await rig.session(**RESUMABLE), await rig.session(**PCM)
        code = await enter(rig, speaker, (listener, "en"))
        await speaker.chunk(0, PIECES[0], is_final=True)
        slow = await node.receive("job_assign", tgt_lang="en")
        await join(listener, code, "fr")
        await speaker.chunk(1, PIECES[1], is_final=True)
        await node.answer(await node.receive("job_assign", tgt_lang="fr"))
        await node.answer(slow)
        await listener.receive("translation_result", utterance_index=1)
        assert heard_of(listener, speaker) == [0, 1]
        await speaker.receive("utterance_ended", utterance_index=1)


async def test_same_index_said_twice_in_a_room_reaches_each_listener_once(tmp: Path, caplog: Any) -> None:
    async with running(tmp) as rig:
        working = asyncio.create_task(work(await rig.node()))
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
        speaker, listener = await rig.session(**RESUMABLE), await rig.session(**PCM)
        await enter(rig, speaker, (listener, "en"))
        await speaker.utter(0)
        await speaker.utter(0, features={"emotion_detection": True})
        await speaker.utter(1)
        await listener.receive("translation_result", utterance_index=1)
        await speaker.receive("utterance_ended", utterance_index=1)
        assert heard_of(listener, speaker) == [0, 1]
        assert not failures and not rig.edges[0].sessions.actors[speaker.id].state.outcomes.delivery.open_languages
        working.cancel()


async def test_flood_of_signals_is_bounded_and_said_so(tmp: Path) -> None:
    async with running(tmp) as rig:
        sender, receiver = await rig.session(), await rig.session()
        code = await enter(rig, sender, (receiver, "en"))
        rig.selector.mute = lambda frame: type(frame).__name__ == "RoomSignal"
        asks = rig.edges[0].link.asks
        for number in range(200):
            await sender.send({"type": "webrtc_ice", "room_code": code, "to": receiver.id, "candidate": number})
        assert (await sender.receive("error"))["code"] == "SLOW_DOWN"
        assert len(asks.open) <= 64
        rig.selector.mute = lambda frame: False
        await receiver.receive("webrtc_ice")
        await until(lambda: not asks.open, "all are answered")
        await sender.send({"type": "webrtc_ice", "room_code": code, "to": receiver.id, "candidate": "last"})
        await receiver.receive("webrtc_ice", candidate="last")
        await sender.send({"type": "webrtc_offer", "room_code": code, "to": receiver.id, "sdp": "x" * 1_000_000})
        await sender.receive("error", code="MESSAGE_TOO_LARGE")


async def test_utterance_that_can_never_be_sent_names_its_chunks(tmp: Path) -> None:
    """Otherwise a client that resumes would send its audio again, as another utterance."""
    async with running(tmp) as rig:
        client = await rig.session(**RESUMABLE, auto_langs=["not a language!"])
        await client.chunk(0, PIECES[0])
        await client.chunk(1, PIECES[1], is_final=True)
        assert (await client.receive("error"))["code"] == "INVALID_MESSAGE"
        missing = await client.receive("missing_result")
        assert (missing["utterance_index"], missing["reason"], missing["last_seq"]) == (0, "job_failed", 1)


async def test_room_of_a_session_is_known_although_the_first_word_of_it_was_lost(tmp: Path) -> None:
    async with running(tmp, edges=2) as rig:
        member = await rig.session(**RESUMABLE)
        rig.selector.mute = lambda frame: type(frame).__name__ == "SessionNote"
        code = await enter(rig, member)
        rig.selector.mute = lambda frame: False
        cut(member)
        await until(lambda: rig.selector.records[member.id].away, "the mesh knows")
        _, ack = await back(rig, member, 1)
        assert ack["room_code"] == code


async def test_list_of_members_that_comes_late_is_not_told_after_a_later_one(tmp: Path) -> None:
    """Each edge tells of the changes that its own clients make, so two lists may overtake each other."""
    async with running(tmp, edges=2) as rig:
        host, near, far = await rig.session(0), await rig.session(0), await rig.session(1)
        code = await enter(rig, host)
        with held_back(rig.selector, lambda frame: isinstance(frame, Post)) as kept:
            await join(far, code, "es")
            await until(lambda: bool(kept), "the list of two is on its way")
            await join(near, code, "es")
            assert len((await host.receive("room_members"))["members"]) == 3, "it is overtaken"
        voice = {"target_session_id": host.id, "receive_raw_voice": False}
        await far.send({"type": "room_raw_voice_preference", "room_code": code, **voice})
        assert len((await host.receive("room_members"))["members"]) == 3, "the list of two is not told any more"


async def test_who_joins_is_answered_although_a_later_list_came_first(tmp: Path) -> None:
    async with running(tmp, edges=2) as rig:
        host, near, far = await rig.session(0), await rig.session(0), await rig.session(1)
        code = await enter(rig, host)
        to_near = lambda frame: isinstance(frame, RoomState) and near.id == frame.members[-1].session_id  # noqa: E731
        with held_back(rig.selector, to_near) as kept:
            await near.send({"type": "room_join", "room_code": code, "preferred_lang": "es"})
            await until(lambda: bool(kept), "the mesh put it into the room")
            await join(far, code, "es")
            assert len((await near.receive("room_members"))["members"]) == 3
        assert len((await near.receive("room_members"))["members"]) == 3, "the answer, as it is now"


@pytest.mark.parametrize("edge", [0, 1], ids=["here", "elsewhere"])
async def test_member_that_comes_back_hears_who_is_there_now(tmp: Path, edge: int) -> None:
    async with running(tmp, edges=2) as rig:
        member, other = await rig.session(**RESUMABLE), await rig.session(1)
        code = await enter(rig, member, (other, "es"))
        cut(member)
        await until(lambda: rig.selector.records[member.id].away, "the mesh knows")
        await other.send({"type": "room_leave", "room_code": code})
        await until(lambda: len(rig.selector.rooms[code]) == 1, "the other one left meanwhile")
        again, ack = await back(rig, member, edge)
        assert ack["room_code"] == code
        assert [one["session_id"] for one in (await again.receive("room_members"))["members"]] == [member.id]


async def test_member_whose_room_ended_while_it_was_away_hears_that(tmp: Path) -> None:
    async with running(tmp, edges=2) as rig:
        member = await rig.session(**RESUMABLE)
        code = await enter(rig, member)
        cut(member)
        await until(lambda: rig.selector.records[member.id].away, "the mesh knows")
        del rig.selector.rooms[code]
        again, _ = await back(rig, member, 1)
        assert (await again.receive("room_error"))["code"] == "ROOM_NOT_FOUND"
        await again.send({"type": "room_create", "client_ts": 1})
        await again.receive("room_members")
