"""Pairing codes through real selectors: asked for by nodes, used once by clients, and not to be guessed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from mesh.cells import cell_of
from mesh.frames import Failed, Frame, Paired, PairingAsk, PairingCode, PairingUse
from mesh.ids import is_code
from mesh.keys import Keys
from tests.support.processes.selector import FakeEdge, Rig, selecting

RedisClient = redis.Redis | redis.RedisCluster
REFS = itertools.count(1)


@pytest.fixture(scope="module", params=["server", "cluster"])
def mesh(request: pytest.FixtureRequest) -> Iterator[Rig]:
    process = "_redis_process" if request.param == "server" else "_cluster_processes"
    with selecting(request.getfixturevalue(process), "s1", "s2", LINGUA_PAIRING_WRONG_PER_CLIENT_MAX="5") as rig:
        yield rig


async def answer(edge: FakeEdge, ref: str) -> Any:
    frame, _ = await edge.take(Frame, lambda frame: getattr(frame, "ref", None) == ref)
    return frame


async def ask(edge: FakeEdge, node_id: str = "node-1") -> Any:
    """What a node gets that asks for a code."""
    ref = str(next(REFS))
    edge.send_record(node_id, PairingAsk(ref, edge.identity, node_id))
    return await answer(edge, ref)


def present(edge: FakeEdge, code: str, client: str = "client", use: str = "") -> str:
    """Present a code as an edge does; the ref."""
    ref = str(next(REFS))
    edge.send_record(code, PairingUse(ref, edge.identity, code, client, use or f"use-{ref}"))
    return ref


async def used(edge: FakeEdge, code: str, client: str = "client", use: str = "") -> Any:
    return await answer(edge, present(edge, code, client, use))


def other_than(code: str) -> str:
    """A code that nobody has."""
    return f"{(int(code) + 1) % 900_000 + 100_000}"


# --- nodes ------------------------------------------------------------------------------------------------


async def test_a_node_gets_a_code_and_a_client_that_presents_it_gets_the_node(edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    code = await ask(edge)
    assert isinstance(code, PairingCode) and code.node_id == "node-1" and is_code(code.code)
    assert code.expires_in_ms == 300_000
    paired = await used(edge, code.code)
    assert isinstance(paired, Paired) and paired.node_id == "node-1"
    again = await used(edge, code.code)
    assert isinstance(again, Failed) and again.code == "INVALID_PAIRING_CODE", "it is used"


async def test_a_node_that_nobody_knows_gets_none(edge: FakeEdge) -> None:
    for node_id, error in (("node-9", "NOT_REGISTERED"), ("{x}", "INVALID_ID")):
        refused = await ask(edge, node_id)
        assert isinstance(refused, Failed) and refused.code == error


async def test_a_new_code_ends_the_older_one(edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    old, new = [(await ask(edge)).code for _ in range(2)]
    assert old != new
    assert (await used(edge, old)).code == "INVALID_PAIRING_CODE"
    assert (await used(edge, new)).node_id == "node-1"


async def test_a_request_that_is_repeated_gets_one_code(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    ref = str(next(REFS))
    for name in ("s1", "s2", "s1", "s2"):
        assert edge.link.send(rig.identities[name], 0, PairingAsk(ref, edge.identity, "node-1"))
    codes = [await answer(edge, ref) for _ in range(4)]
    assert len({frame.code for frame in codes}) == 1
    assert (await used(edge, codes[0].code)).node_id == "node-1"


async def test_a_late_copy_of_a_request_ends_no_code(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    first = PairingAsk(str(next(REFS)), edge.identity, "node-1")
    edge.send_record("node-1", first)
    await answer(edge, first.ref)
    shown = await ask(edge)
    edge.send_record("node-1", first)
    await edge.query("selectors", to=rig.identities["s1"])
    assert (await used(edge, shown.code)).node_id == "node-1"


async def test_a_node_that_asks_all_the_time_is_told_to_wait(edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    answers = [await ask(edge) for _ in range(8)]
    assert [type(frame) for frame in answers] == [PairingCode] * 6 + [Failed] * 2
    assert answers[-1].code == "SLOW_DOWN" and "6 codes" in answers[-1].message and " s" in answers[-1].message
    assert (await used(edge, answers[5].code)).node_id == "node-1", "the last one that it got is good"
    await edge.add_node("node-2")
    assert isinstance(await ask(edge, "node-2"), PairingCode), "others need not wait"


async def test_many_nodes_have_codes_of_their_own(edge: FakeEdge) -> None:
    nodes = [f"node-{number}" for number in range(60)]
    for node_id in nodes:
        await edge.add_node(node_id)
    codes = {node_id: (await ask(edge, node_id)).code for node_id in nodes}
    assert len(set(codes.values())) == 60
    for node_id, code in codes.items():
        assert (await used(edge, code, client=f"of-{node_id}")).node_id == node_id


# --- clients ----------------------------------------------------------------------------------------------


async def test_of_twenty_clients_with_the_same_code_one_is_paired(edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    code = (await ask(edge)).code
    refs = [present(edge, code, client=f"client-{number}") for number in range(20)]
    answers = [await answer(edge, ref) for ref in refs]
    assert sum(isinstance(frame, Paired) for frame in answers) == 1
    assert {frame.code for frame in answers if isinstance(frame, Failed)} == {"INVALID_PAIRING_CODE"}


async def test_a_repeat_of_a_use_gets_the_same_answer(edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    code = (await ask(edge)).code
    answers = await asyncio.gather(*(used(edge, code, use="use-1") for _ in range(5)))
    assert {frame.node_id for frame in answers} == {"node-1"}, "the first answer may have been lost"
    wrong = [await used(edge, other_than(code), use="use-2") for _ in range(20)]
    assert {frame.code for frame in wrong} == {"INVALID_PAIRING_CODE"}, "however often it is sent, it is one try"


async def test_who_guesses_is_stopped_and_learns_nothing_more(rig: Rig, edge: FakeEdge, raw: RedisClient) -> None:
    await edge.add_node("node-1")
    code = (await ask(edge)).code
    refs = [present(edge, other_than(code), "guesser") for _ in range(300)]
    answers = [(await answer(edge, ref)).code for ref in refs]
    assert (answers.count("INVALID_PAIRING_CODE"), answers.count("SLOW_DOWN")) == (5, 295)
    right = await used(edge, code, "guesser")
    assert isinstance(right, Failed) and right.code == "SLOW_DOWN" and " s" in right.message, "also for a right one"
    raw.delete(Keys().pairing_wrong(cell_of("guesser", rig.config.mesh.cells), "guesser"))
    assert (await used(edge, code, "guesser")).node_id == "node-1", "in the next window; it was not used up"


async def test_another_client_may_pair_meanwhile_and_right_codes_do_not_count(edge: FakeEdge) -> None:
    for _ in range(6):
        await used(edge, "100000", "guesser")
    for number in range(8):
        node_id = f"node-{number}"
        await edge.add_node(node_id)
        assert (await used(edge, (await ask(edge, node_id)).code, "patient")).node_id == node_id


@pytest.mark.parametrize("code", ["", "12345", "1234567", "12345x", "{x}:no"])
async def test_what_is_no_code_is_wrong(edge: FakeEdge, code: str) -> None:
    refused = await used(edge, code)
    assert isinstance(refused, Failed) and refused.code == "INVALID_PAIRING_CODE"


async def test_a_code_that_has_lapsed_is_wrong(rig: Rig, edge: FakeEdge, raw: RedisClient) -> None:
    await edge.add_node("node-1")
    code = (await ask(edge)).code
    key = Keys().pairing(cell_of(code, rig.config.mesh.cells), code)
    assert 0 < raw.pttl(key) <= 300_000
    raw.pexpireat(key, 1)  # long ago
    assert (await used(edge, code)).code == "INVALID_PAIRING_CODE"


# --- operators --------------------------------------------------------------------------------------------


async def test_an_operator_gets_a_code_for_a_node(edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    status, told = await edge.query("pair", node_id="node-1")
    assert (status, told["node_id"], told["expires_in_ms"]) == (200, "node-1", 300_000) and is_code(told["code"])
    assert (await used(edge, told["code"])).node_id == "node-1"
    answers = [await edge.query("pair", node_id="node-1") for _ in range(6)]
    assert [status for status, _ in answers] == [200] * 5 + [429]
    assert answers[-1][1]["code"] == "SLOW_DOWN" and "6 codes" in answers[-1][1]["message"]


async def test_an_operator_hears_what_is_wrong(edge: FakeEdge) -> None:
    assert (await edge.query("pair"))[0] == 400
    assert (await edge.query("pair", node_id="{x}"))[0] == 400
    status, told = await edge.query("pair", node_id="node-9")
    assert (status, told["code"]) == (404, "NOT_REGISTERED")
