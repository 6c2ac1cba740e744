"""The link on real sockets, with brokers that die and come back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import uvloop
import zmq

from mesh.errors import ConfigError
from mesh.frames import FRAME_VERSION, Busy, Cancel, Failed, SessionClaim, encode
from mesh.link.link import Link, LinkError, Received
from mesh.link.sockets import sender
from mesh.random_ids import new_peer_identity
from tests.support.conditions import until
from tests.support.processes.broker import CONFIG, Rig, claim, parts_of, rig_in


@pytest.fixture
async def rig(tmp: Path) -> AsyncIterator[Rig]:
    async for rig in rig_in(tmp):
        yield rig


async def credit_is(rig: Rig, each: int) -> None:
    for broker in rig.brokers:
        await until(lambda broker=broker: broker.metrics()["lingua_broker_credit"] == each, f"credit {each}")  # type: ignore[misc]


async def test_link_reconnects_to_a_restarted_broker(rig: Rig) -> None:
    broker = rig.broker()
    await rig.selector(8)
    edge = await rig.edge()
    await credit_is(rig, 8)
    for life in range(3):
        # The beats of the last life may still count when the socket has not reconnected yet.
        await until(lambda life=life: edge.link.send("", 1, claim(str(life))), f"taken in life {life}")  # type: ignore[misc]
        await until(lambda life=life: len(edge.frames(Failed)) == life + 1, f"answered in life {life}")  # type: ignore[misc]
        broker.process.kill()
        broker.process.communicate()
        await until(lambda: edge.link.send("", 1, claim("lost")) == "", "the socket notices before the beats do")
        broker.start()
        await credit_is(rig, 8)
        await until(lambda: edge.link.brokers_live() == 1, "it is live")


async def test_no_send_fails_when_one_of_two_brokers_dies(rig: Rig) -> None:
    rig.broker()
    rig.broker()
    await rig.selector(64)
    edge = await rig.edge()
    await credit_is(rig, 32)
    rig.brokers[0].process.kill()
    rig.brokers[0].process.communicate()
    await until(lambda: edge.link.counts.brokers_lost == 1, "the edge notices")
    for number in range(20):
        assert edge.link.send("", number, claim(str(number))) == rig.brokers[1].front
    await until(lambda: len(edge.frames(Failed)) == 20, "all answered by the other broker")
    rig.brokers[0].start()
    await until(lambda: edge.link.brokers_live() == 2, "it is back")
    used = {edge.link.send("", cell, claim(f"again {cell}")) for cell in range(16)}
    assert used == {broker.front for broker in rig.brokers}


async def test_avoided_broker_is_used_if_it_is_the_only_one(rig: Rig) -> None:
    one, other = rig.broker(), rig.broker()
    edge = await rig.edge()
    for cell in range(4):
        assert edge.link.send("", cell, claim("x"), avoid=one.front) == other.front
    other.process.kill()
    other.process.communicate()
    await until(lambda: edge.link.brokers_live() == 1, "the edge notices")
    assert edge.link.send("", 1, claim("x"), avoid=one.front) == one.front


async def test_one_destination_uses_one_broker(rig: Rig) -> None:
    rig.broker()
    rig.broker()
    edge = await rig.edge()
    assert len({edge.link.send("", 5, claim(str(number))) for number in range(10)}) == 1
    assert len({edge.link.send("edge:x:1", 0, claim(str(number))) for number in range(10)}) == 1


async def test_control_is_received_before_work_of_the_same_batch(rig: Rig) -> None:
    rig.broker()
    batches: list[list[type]] = []
    link = await rig.link("edge", lambda batch: batches.append([type(received.frame) for received in batch]))
    sender_link = await rig.edge()
    link_fd = next(iter(link._brokers.values())).fd
    asyncio.get_running_loop().remove_reader(link_fd)  # let them pile up
    for _ in range(5):
        sender_link.link.send(link.identity, 0, claim("x"))
    sender_link.link.send(link.identity, 0, Cancel("r", "", 1, "", "", ""))
    await until(
        lambda: rig.brokers[0].metrics()['lingua_broker_frames_total{direction="out",lane="work"}'] == 5, "sent"
    )
    asyncio.get_running_loop().add_reader(link_fd, link._on_readable, next(iter(link._brokers.values())))
    await until(lambda: sum(map(len, batches)) == 6, "all six arrive")
    biggest = max(batches, key=len)
    assert biggest == sorted(biggest, key=lambda kind: kind is SessionClaim)


async def test_burst_beyond_drain_max_arrives_complete(rig: Rig) -> None:
    rig.broker()
    edge, other = await rig.edge(), await rig.edge()
    for number in range(900):
        await until(lambda number=number: edge.link.send(other.link.identity, 0, claim(str(number))), "taken")  # type: ignore[misc]
    await until(lambda: len(other.messages) == 900, "all arrive")
    assert [frame.ref for frame in other.frames(SessionClaim)] == [str(number) for number in range(900)]


async def test_garbage_from_a_broker_is_counted_and_skipped(rig: Rig) -> None:
    broker = rig.broker()
    edge = await rig.edge()
    raw = rig.raw(broker.front, "edge:raw:1")
    for frame, payload in ((["Nonsense"], []), (claim("x"), [None])):
        entry = [1, edge.link.identity, 0, "edge:raw:1", 0, 0, 0, 0, frame, payload]
        sender(raw)([encode([FRAME_VERSION, [entry]])])
    sender(raw)(parts_of("edge:raw:1", edge.link.identity, claim("good")))
    await until(lambda: edge.messages, "the good one arrives")
    assert edge.link.counts.garbage == 2


async def test_frames_of_one_turn_are_one_packet_and_keep_their_order(rig: Rig) -> None:
    broker = rig.broker(LINGUA_LINK_BEAT_MS="60000", LINGUA_LINK_DEAD_MS="60000")
    config = msgspec.structs.replace(CONFIG, beat_ms=60_000, dead_ms=60_000)
    batches: list[list[Received]] = []
    link = await rig.link("edge", batches.append, config=config)
    other = await rig.link("edge", batches.append, config=config)
    before = broker.metrics()
    audio = os.urandom(10_000)
    for number in range(20):
        assert link.send(other.identity, 0, claim(str(number)), str(number).encode(), audio) == broker.front
    assert link.counts.sent == 0, "the turn has not ended"
    await until(lambda: batches, "they arrive")
    after = broker.metrics()
    key = 'lingua_broker_packets_total{direction="%s"}'
    assert {after[key % way] - before[key % way] for way in ("in", "out")} == {1}
    received = [one for batch in batches for one in batch]
    assert [(one.frame.ref, one.payload[0], bytes(one.payload[1])) for one in received] == [  # type: ignore[attr-defined]
        (str(number), str(number).encode(), audio) for number in range(20)
    ]
    assert len({one.head.sent_us for one in received}) == 20
    assert link.counts.sent == 20


async def test_packet_is_sent_at_once_when_it_reaches_a_bound(rig: Rig) -> None:
    rig.broker()
    edge, other = await rig.edge(), await rig.edge()
    for number in range(CONFIG.batch_frames_max + 1):
        edge.link.send(other.link.identity, 0, claim(str(number)))
    assert edge.link.counts.sent == CONFIG.batch_frames_max
    await until(lambda: len(other.messages) == CONFIG.batch_frames_max + 1, "all arrive")


async def test_what_the_hook_sends_joins_the_packets_of_the_turn(rig: Rig) -> None:
    broker = rig.broker(LINGUA_LINK_BEAT_MS="60000", LINGUA_LINK_DEAD_MS="60000")
    config = msgspec.structs.replace(CONFIG, beat_ms=60_000, dead_ms=60_000)
    received: list[Received] = []
    link = await rig.link("edge", lambda batch: None, config=config)
    other = await rig.link("edge", received.extend, config=config)
    calls = 0

    def ride() -> None:
        nonlocal calls
        calls += 1
        link.send(other.identity, 0, claim("riding"))
        if calls == 2:
            raise RuntimeError("a bug of the hook")

    link.before_flush = ride
    key = 'lingua_broker_packets_total{direction="in"}'
    for turn in (1, 2, 3):
        before = broker.metrics()[key]
        link.send(other.identity, 0, claim("first"))
        await until(lambda turn=turn: len(received) == 2 * turn, "both arrive")  # type: ignore[misc]
        assert (calls, broker.metrics()[key] - before) == (turn, 1)
    assert [one.frame.ref for one in received] == ["first", "riding"] * 3  # type: ignore[attr-defined]


async def test_packet_for_a_full_pipe_is_diverted_to_another_broker(rig: Rig) -> None:
    rig.broker()
    rig.broker()
    edge, other = await rig.edge(), await rig.edge()
    first = edge.link.send(other.link.identity, 0, claim("0"))
    await until(lambda: len(other.messages) == 1, "it arrives")
    gone = next(broker for broker in rig.brokers if broker.front == first)
    gone.process.kill()
    gone.process.communicate()
    refs = [str(number) for number in range(1, 50)]

    def all_arrived() -> bool:
        """Frames may be lost in the socket of the dead broker, and are retried."""
        arrived = {frame.ref for frame in other.frames(SessionClaim)}
        for ref in refs:
            if ref not in arrived:
                edge.link.send(other.link.identity, 0, claim(ref))
        return arrived >= set(refs)

    await until(all_arrived, "the other broker takes them")
    assert edge.link.counts.unsent == 0
    assert edge.link.counts.diverted > 0


async def test_received_blob_is_sent_on_by_reference(rig: Rig) -> None:
    rig.broker()
    edge, other = await rig.edge(), await rig.edge()
    audio = os.urandom(100_000)
    edge.link.send(other.link.identity, 0, claim("there"), audio, b"x")
    await until(lambda: other.messages, "it arrives")
    payload = other.messages[0].payload
    assert type(payload[0]) is zmq.Frame
    other.link.send(edge.link.identity, 0, claim("back"), *payload)
    await until(lambda: edge.messages, "it is back")
    assert list(map(bytes, edge.messages[0].payload)) == [audio, b"x"]


async def test_draining_selector_gets_no_new_work_over_the_link(rig: Rig) -> None:
    rig.broker()
    leaving, staying = await rig.selector(8), await rig.selector(8)
    edge = await rig.edge()
    await credit_is(rig, 16)
    leaving.link.drain()
    before = rig.brokers[0].metrics()['lingua_broker_frames_total{direction="in",lane="control"}']
    key = 'lingua_broker_frames_total{direction="in",lane="control"}'
    await until(lambda: rig.brokers[0].metrics()[key] > before + 3, "the broker heard it")
    for number in range(8):
        edge.link.send("", number, claim(str(number)))
    await until(lambda: len(edge.frames(Failed)) + len(edge.frames(Busy)) == 8, "all answered")
    assert not leaving.messages
    assert staying.messages


async def test_goodbye_removes_the_peer_at_once(rig: Rig) -> None:
    broker = rig.broker(LINGUA_LINK_DEAD_MS="60000")
    edge = await rig.edge()
    await edge.link.close()
    await until(lambda: broker.metrics()['lingua_broker_peers_live{kind="edge"}'] == 0, "the broker forgets it")


async def test_ready_without_a_broker_names_the_tried_endpoints(tmp: Path) -> None:
    link = Link(
        identity=new_peer_identity("edge", "x"),
        kind="edge",
        endpoints=[f"ipc://{tmp}/nobody"],
        config=CONFIG,
        window=0,
        on_messages=lambda batch: None,
    )
    await link.start()
    with pytest.raises(LinkError, match=r"tried: ipc://.*nobody"):
        await link.ready(50)
    assert link.send("", 0, claim("x")) == ""
    assert link.counts.unsent == 1
    await link.close()


async def test_message_beyond_the_broker_s_size_limit_is_not_sent(rig: Rig) -> None:
    rig.broker()
    edge = await rig.edge()
    assert edge.link.send(edge.link.identity, 0, claim("x"), bytes(CONFIG.message_bytes_max + 1)) == ""
    assert edge.link.send(edge.link.identity, 0, claim("y"), bytes(CONFIG.message_bytes_max))
    await until(lambda: [frame.ref for frame in edge.frames(SessionClaim)] == ["y"], "the largest allowed arrives")
    assert edge.link.counts.brokers_lost == 0


async def test_invalid_endpoint_is_a_configuration_error() -> None:
    link = Link(
        identity="edge:x:1", kind="edge", endpoints=["nonsense"], config=CONFIG, window=0, on_messages=lambda _: None
    )
    with pytest.raises(ConfigError, match="'nonsense' is no endpoint"):
        await link.start()
    await link.close()


async def exchange(rig: Rig) -> None:
    rig.broker()
    await rig.selector(32)
    edge = await rig.edge()
    await credit_is(rig, 32)
    for number in range(300):
        await until(lambda number=number: edge.link.send("", 1, claim(str(number))), "taken")  # type: ignore[misc]
    await until(lambda: len(edge.frames(Failed)) + len(edge.frames(Busy)) == 300, "all answered")


def test_link_runs_on_uvloop(tmp: Path) -> None:
    async def main() -> None:
        async for rig in rig_in(tmp):
            await exchange(rig)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
