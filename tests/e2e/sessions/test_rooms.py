"""Rooms across edges: eight members, three languages, three edges; receivers, raw voices, leaving, expiry."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from linguamesh.node import Job, Node, Result
from tests.support.clients.raw_sessions import PIECES, abort, opened
from tests.support.conditions import until
from tests.support.processes.edge import Talk
from tests.support.processes.running_mesh import RunningMesh

LANGS = ("es", "fr", "de")


async def echo(job: Job) -> Result:
    """Names the language, so that a result at the wrong member shows."""
    await asyncio.sleep(0.001 * (len(job.session_id) % 7))
    return Result(text_asr=f"{job.session_id}/{job.utterance_index}", text_translated=f"{job.tgt}")


def node(url: str, name: str, **options: Any) -> Node:
    return Node(url, echo, node_id=name, asr=["en"], semantic=[*LANGS, "en"], max_jobs=16, **options)


class Member:
    """One member of a room: a socket that is read all the time."""

    def __init__(self, talk: Talk, lang: str) -> None:
        self.talk = talk
        self.id = talk.id
        self.lang = lang
        self.seq = 0
        self.received: list[dict[str, Any]] = []
        self.ack = False
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            message = await self.talk.receive_any(
                "translation_result", "missing_result", "room_members", "room_error", "room_expired", "webrtc_offer",
                "room_create_ack", "utterance_ended", "error",
            )  # fmt: skip
            self.received.append(message)
            if self.ack and message["type"] in ("translation_result", "missing_result"):
                index, speaker = message["utterance_index"], message["session_id"]
                await self.talk.send({"type": "result_ack", "session_id": speaker, "utterance_index": index})

    async def speak(self) -> None:
        await self.talk.chunk(self.seq, PIECES[self.seq % 39], is_final=True)
        self.seq += 1

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.received if message["type"] == kind]

    def results(self) -> list[tuple[str, int, str]]:
        """Speaker, index and language of every result, in the order they came."""
        return [
            (message["session_id"], message["utterance_index"], message["text_translated"])
            for message in self.of("translation_result")
        ]

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
        await self.talk.close()


async def members_of(mesh: RunningMesh, langs: list[str], edges: int, **fields: Any) -> tuple[str, list[Member]]:
    """A room whose members sit on the edges in turn, and its code."""
    members: list[Member] = []
    code = ""
    for number, lang in enumerate(langs):
        talk, _ = await opened(mesh.url(f"edge-{number % edges}"), **{"resumable": False, **fields})
        member = Member(talk, lang)
        member.ack = bool(fields.get("resumable"))
        members.append(member)
        about = {"display_name": f"m{number}", **({"preferred_lang": lang} if lang else {})}
        if number == 0:
            await talk.send({"type": "room_create", "client_ts": 1, **about})
            await until(lambda: members[0].of("room_create_ack"), "the room is there")
            code = members[0].of("room_create_ack")[0]["room_code"]
        else:
            await talk.send({"type": "room_join", "room_code": code, **about})
    for member in members:
        await until(
            lambda member=member: any(len(message["members"]) == len(langs) for message in member.of("room_members")),
            f"{member.id} has the full list of members",
        )
    return code, members


@pytest.mark.parametrize("resumable", [False, True], ids=["plain", "acknowledging"])
async def test_defect_13_eight_members_three_languages_three_edges(redis_server, mesh_dir, resumable: bool) -> None:
    with RunningMesh(mesh_dir, redis_server.url, edges=3) as mesh:
        async with node(mesh.url("edge-0"), "n-0"), node(mesh.url("edge-1"), "n-1"):
            langs = ["es", "fr", "de", "es", "fr", "de", "es", ""]
            code, members = await members_of(mesh, langs, 3, resumable=resumable)
            assert code.isdigit() and len(code) == 6
            for _ in range(3):
                await asyncio.gather(*(member.speak() for member in members))
            expected = {
                member.id: Counter(
                    (other.id, index, member.lang)
                    for other in members
                    for index in range(3)
                    if other is not member and member.lang
                )
                for member in members
            }
            for member in members:
                count = sum(expected[member.id].values())
                await until(
                    lambda member=member, count=count: len(member.results()) >= count, "all results are received"
                )
            for member in members:
                assert Counter(member.results()) == expected[member.id], "exactly the right ones, each once"
                for other in members:
                    indices = [index for speaker, index, _ in member.results() if speaker == other.id]
                    assert indices == sorted(indices), "in the order of speech"
                if resumable:
                    await until(
                        lambda member=member: len(member.of("utterance_ended")) == 3,
                        "speakers receive the end of their utterances",
                    )
                assert not member.of("error")
            for member in members:
                await member.close()


async def test_members_who_left_or_vanished_receive_nothing(redis_server, mesh_dir) -> None:
    with RunningMesh(mesh_dir, redis_server.url, edges=2) as mesh:
        async with node(mesh.url("edge-0"), "n-0"):
            code, (ann, bob, cleo) = await members_of(mesh, ["en", "es", "fr"], 2)
            await bob.talk.send({"type": "room_leave", "room_code": code})
            await until(lambda: len(ann.of("room_members")[-1]["members"]) == 2, "the others receive the new list")
            abort(cleo.talk)
            await until(lambda: len(ann.of("room_members")[-1]["members"]) == 1, "also without the one that vanished")
            await ann.speak()
            await until(lambda: ann.results(), "alone, the speaker receives its own result")
            assert ann.results() == [(ann.id, 0, "es")], "in its own target language"
            assert not bob.results()
            await bob.talk.send({"type": "room_join", "room_code": code, "preferred_lang": "de"})
            await until(lambda: len(ann.of("room_members")[-1]["members"]) == 2, "bob is back")
            await ann.speak()
            await until(lambda: bob.results(), "bob receives results")
            assert bob.results() == [(ann.id, 1, "de")] and len(ann.results()) == 1
            for wrong, problem in (("999", "INVALID_ROOM_CODE"), ("100000", "ROOM_NOT_FOUND")):
                loner, _ = await opened(mesh.url("edge-1"))
                await loner.send({"type": "room_join", "room_code": wrong})
                assert (await loner.receive("room_error"))["code"] == problem
                await loner.close()
            await bob.talk.send({"type": "room_create", "client_ts": 1})
            await until(lambda: bob.of("room_error"), "one room at a time")
            assert bob.of("room_error")[-1]["code"] == "ALREADY_IN_ROOM"
            await ann.close()
            await bob.close()
            cleo._reading.cancel()
            await asyncio.wait([cleo._reading])


async def test_voices_are_relayed_to_members_who_want_them(redis_server, mesh_dir) -> None:
    with RunningMesh(mesh_dir, redis_server.url, edges=2) as mesh:
        code, (ann, bob) = await members_of(mesh, ["en", "es"], 2)
        offer = {"type": "webrtc_offer", "room_code": code, "to": bob.id, "sdp": {"deep": [1, None]}}
        await ann.talk.send(offer)
        await until(lambda: bob.of("webrtc_offer"), "the offer crosses edges")
        assert bob.of("webrtc_offer")[0] == {**offer, "to": ann.id}, "and names its sender"
        prefer = {"type": "room_raw_voice_preference", "room_code": code, "target_session_id": ann.id}
        await bob.talk.send({**prefer, "receive_raw_voice": False})
        await until(
            lambda: any(
                one["raw_voice_preferences"] == {ann.id: False}
                for message in ann.of("room_members")
                for one in message["members"]
            ),
            "all members receive the preference",
        )
        await ann.talk.send(offer)
        await until(lambda: ann.of("room_error"), "bob does not want it")
        assert ann.of("room_error")[0]["code"] == "RAW_VOICE_DECLINED" and len(bob.of("webrtc_offer")) == 1
        stranger, _ = await opened(mesh.url("edge-0"))
        await stranger.send({**offer, "to": ann.id})
        assert (await stranger.receive("room_error"))["code"] == "NOT_IN_ROOM"
        await stranger.close()
        await ann.close()
        await bob.close()


async def test_silent_room_expires_and_its_members_are_notified(redis_server, mesh_dir) -> None:
    env = {"LINGUA_ROOMS_SILENT_MS": "5000", "LINGUA_ROOMS_SCAN_MS": "200"}
    with RunningMesh(mesh_dir, redis_server.url, edges=2, env=env) as mesh:
        code, (ann, bob) = await members_of(mesh, ["en", "es"], 2)
        for member in (ann, bob):
            await until(lambda member=member: member.of("room_expired"), "both are notified")
            assert [message["room_code"] for message in member.of("room_expired")] == [code]
        await ann.talk.send({"type": "room_create", "client_ts": 1})
        await until(lambda: len(ann.of("room_create_ack")) == 2, "ann is free for another room")
        await ann.close()
        await bob.close()


@pytest.mark.parametrize("edge", ["edge-1", "edge-2"], ids=["here", "elsewhere"])
async def test_member_that_resumes_is_still_in_its_room_and_misses_nothing(redis_server, mesh_dir, edge: str) -> None:
    with RunningMesh(mesh_dir, redis_server.url, edges=3) as mesh:
        async with node(mesh.url("edge-0"), "n-0"):
            talk, ack = await opened(mesh.url("edge-1"))
            code, (ann,) = await members_of(mesh, ["en"], 1)
            await talk.send({"type": "room_join", "room_code": code, "preferred_lang": "fr"})
            await talk.receive("room_members")
            abort(talk)
            await until(lambda: len(ann.of("room_members")) >= 2, "ann knows")
            for _ in range(3):
                await ann.speak()
            await until(lambda: mesh.metric("lingua_selector_parked_total", "post") >= 1, "the first waits in the mail")
            back, again = await opened(mesh.url(edge), resume_token=ack["resume_token"], last_index=-1, last_seq=-1)
            assert again["room_code"] == code
            bob = Member(back, "fr")
            bob.ack = True
            await until(lambda: len(bob.results()) >= 3, "all results of the meantime")
            assert bob.results() == [(ann.id, index, "fr") for index in range(3)]
            await bob.speak()
            await until(lambda: ann.results(), "and it can speak")
            assert ann.results() == [(bob.id, 0, "en")]
            await ann.close()
            await bob.close()
