"""The broker process on real sockets."""

from __future__ import annotations

import asyncio
import os
import signal
import socket as sockets
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zmq

from broker.core.routes import rank
from mesh.frames import (
    BROKER,
    FRAME_VERSION,
    Beat,
    Bounce,
    Busy,
    Cancel,
    Failed,
    Push,
    ResultAck,
    ResultAcks,
    SessionClaim,
    decode_frame,
    decode_head,
    encode,
)
from mesh.frames.packets import read_opened
from mesh.link.sockets import drainer, sender
from tests.support.conditions import DEADLINE_S, until
from tests.support.processes.broker import CONFIG, Rig, claim, introduce, parts_of, rig_in, start

ACKS = ResultAcks([ResultAck("n", "job-00-x", 1, "delivered")])


@pytest.fixture
async def rig(tmp: Path) -> AsyncIterator[Rig]:
    async for rig in rig_in(tmp):
        yield rig


async def test_one_selector_sees_all_work_of_a_cell_by_every_broker(rig: Rig) -> None:
    rig.broker()
    rig.broker()
    selectors = [await rig.selector(100) for _ in range(3)]
    edge = await rig.edge()
    await until(lambda: edge.link.selectors_live() == 3, "the edge hears of three selectors")
    for number in range(64):
        avoid = rig.brokers[number // 16 % 2].front
        assert edge.link.send("", number % 16, claim(f"{number % 16}/{number}"), avoid=avoid)
    await until(lambda: len(edge.frames(Failed)) == 64, "all answered")
    seen = defaultdict(set)
    for answer in edge.frames(Failed):
        seen[int(answer.ref.partition("/")[0])].add(answer.message)
    # Identities are random, so one of them may rank first for no cell at all.
    names = [selector.link.identity for selector in selectors]
    assert seen == {cell: {max(names, key=lambda name: rank(cell, name))} for cell in range(16)}


async def test_payload_is_unchanged_between_any_two_peers(rig: Rig) -> None:
    rig.broker()
    edges, selector = [await rig.edge(), await rig.edge()], await rig.selector(1)
    payload = [os.urandom(200_000), b"", b"\x00"]
    push = Push("job-00-x", 1, "n", "e", "r", "s", 0)
    for source, target in ((edges[0], edges[1]), (edges[1], selector), (selector, edges[0])):
        assert source.link.send(target.link.identity, 0, push, *payload)
        await until(lambda target=target: target.messages, "it arrives")  # type: ignore[misc]
        received = target.messages[0]
        assert (received.frame, list(map(bytes, received.payload))) == (push, payload)
        assert [type(part) for part in received.payload] == [zmq.Frame, bytes, bytes]
        assert received.head.source == source.link.identity


async def test_work_beyond_the_window_is_refused_as_busy_until_credit_comes_back(rig: Rig) -> None:
    rig.broker()
    selector, edge = await rig.selector(3, keep=True), await rig.edge()
    await until(lambda: edge.link.selectors_live(), "the edge hears of the selector")
    await until(lambda: rig.brokers[0].metrics()["lingua_broker_credit"] == 3, "the window is open")
    for number in range(10):
        edge.link.send("", 1, claim(str(number)), b"audio")
    await until(lambda: len(edge.frames(Busy)) == 7 and len(selector.messages) == 3, "3 delivered, 7 refused")
    refused = edge.messages[0]
    assert decode_head(refused.payload[0]).source == edge.link.identity
    assert [decode_frame(m.payload[1]).ref for m in edge.messages] == [str(number) for number in range(3, 10)]  # type: ignore[union-attr]
    assert len(refused.payload) == 2, "head and frame, not the audio"
    selector.answer(selector.messages)
    await until(lambda: len(edge.frames(Failed)) == 3, "the three are answered")
    edge.link.send("", 1, claim("again"))
    await until(lambda: len(selector.messages) == 4, "credit is back")


async def test_control_reaches_a_selector_whose_window_is_full(rig: Rig) -> None:
    rig.broker()
    selector, edge = await rig.selector(1, keep=True), await rig.edge()
    await until(lambda: rig.brokers[0].metrics()["lingua_broker_credit"] == 1, "the window is open")
    for number in range(50):
        edge.link.send("", 1, claim(str(number)))
    # Control overtakes work: sent at once, the cancel might arrive before the first claim.
    await until(lambda: selector.frames(SessionClaim), "the window is full")
    edge.link.send("", 1, Cancel("r", "", 1, "", "", "gone"))
    await until(lambda: selector.frames(Cancel), "the cancel arrives")
    assert len(selector.frames(SessionClaim)) == 1


async def test_control_overtakes_queued_work_of_a_peer_that_does_not_read(rig: Rig) -> None:
    """The pipe and the kernel hold some megabytes; what is behind them waits in the broker, in lanes."""
    broker = rig.broker(LINGUA_LINK_HIGH_WATER="4", LINGUA_LINK_DEAD_MS="60000")
    edge = await rig.edge()
    name = "edge:slow:1"
    slow = rig.raw(broker.front, name)
    introduce(slow, name, "edge")
    push = Push("job-00-x", 1, "n", "e", "r", "s", 0)
    await until(lambda: broker.metrics()['lingua_broker_peers_live{kind="edge"}'] == 2, "both are known")
    sent = 0
    # The kernel may take more of what is queued for a while: filled is what stays queued.
    while min(broker.metrics()['lingua_broker_queue_depth{lane="work"}'] for _ in range(10)) < 10:
        sent += sum(bool(edge.link.send(name, 0, push, bytes(100_000))) for _ in range(5))
        await asyncio.sleep(0.001)
    # The link's own pipe to the broker may be full for a moment too.
    await until(lambda: edge.link.send(name, 0, ACKS), "the broker takes it")
    # What follows it through the same pipe comes back: so the broker has it, queued or handed on.
    await until(lambda: edge.link.send("edge:nobody:1", 0, ACKS), "the broker takes that")
    await until(lambda: edge.messages, "the bounce")
    drain, kinds = drainer(slow, 1), []
    while kinds.count(Push) < sent:
        assert slow.poll(int(DEADLINE_S * 1_000))
        kinds += [type(entry.frame) for parts in drain() for entry in read_opened(parts[0])[0]]
    assert kinds.index(ResultAcks) < len(kinds) - 10, "it went past everything that waited in the broker"
    assert broker.metrics()['lingua_broker_queue_depth{lane="work"}'] == 0


async def test_undeliverable_message_is_bounced_with_its_reason(rig: Rig) -> None:
    rig.broker()
    edge = await rig.edge()
    edge.link.send("", 0, claim("1"))
    edge.link.send("edge:nobody:1", 0, claim("2"))
    edge.link.send("", 0, claim("3"), deadline_ms=1)
    await until(lambda: len(edge.messages) == 3, "three bounces")
    reasons = {decode_frame(m.payload[1]).ref: m.frame.reason for m in edge.messages}  # type: ignore[union-attr]
    assert reasons == {"1": "no_selector", "2": "unroutable", "3": "expired"}


async def test_no_message_sent_after_the_death_of_a_selector_is_lost(rig: Rig) -> None:
    broker = rig.broker(LINGUA_LINK_DEAD_MS="60000")  # so that silence is not what tells
    for _ in range(2):
        rig.processes.append(start(["tests.support.processes.broker", broker.back]))
        assert rig.processes[-1].stdout is not None
        rig.processes[-1].stdout.readline()
    edge = await rig.edge()
    await until(lambda: broker.metrics()["lingua_broker_credit"] == 128, "both windows are open")
    rig.processes[0].kill()
    rig.processes[0].wait()
    wanted = {str(number) for number in range(32)}

    def all_answered() -> bool:
        """Messages in the dead selector's pipe are lost and retried, as edges do."""
        missing = wanted - {answer.ref for answer in edge.frames(Failed)}
        for ref in missing:
            edge.link.send("", int(ref) % 16, claim(ref))
        return not missing

    await until(all_answered, "the other selector answers them all")
    assert not edge.frames(Bounce)
    assert broker.metrics()['lingua_broker_peers_live{kind="selector"}'] == 1


async def test_foreign_source_and_identity_in_use_are_refused(rig: Rig) -> None:
    broker = rig.broker()
    edge, selector = await rig.edge(), await rig.selector(5)
    thief = rig.raw(broker.front, "edge:thief:1")
    sender(thief)(parts_of(edge.link.identity, selector.link.identity, claim("stolen")))
    await until(lambda: broker.metrics().get('lingua_broker_dropped_total{reason="source"}') == 1, "it is counted")
    twin = rig.raw(broker.front, edge.link.identity)
    assert selector.link.send(edge.link.identity, 0, claim("for the real one"))
    await until(lambda: edge.frames(SessionClaim), "the real one gets it")
    assert not twin.poll(100)
    assert not selector.messages


async def test_garbage_on_the_ports_is_dropped(rig: Rig) -> None:
    broker = rig.broker("tcp", LINGUA_LINK_MESSAGE_BYTES_MAX="100000")
    edge, selector = await rig.edge(), await rig.selector(100)
    name = "edge:rude:1"
    rude = rig.raw(broker.front, name)
    host, port = broker.front.removeprefix("tcp://").split(":")
    for junk in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(5_000), b"\xff" * 64, b""):
        with sockets.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
            connection.sendall(junk)
    for parts in (
        [b""],
        [b"x"],
        [b"\xc1", b"\xc1"],
        [os.urandom(50), os.urandom(50)],
        [b"x"] * 1_000,
        parts_of(name, BROKER, claim("not for a broker")),
        parts_of(name, "", claim("old"), version=99),
        [encode([FRAME_VERSION, [[0, BROKER, 0, name, 0, 0, 0, 0, 0, []]]])],
        [encode([FRAME_VERSION, [[0, BROKER, 0, name, 0, 0, 0, 0, ["Nonsense"], []]]])],
    ):
        sender(rude)(parts)
    await until(
        lambda: sum(v for k, v in broker.metrics().items() if k.startswith("lingua_broker_dropped_total")) >= 9,
        "all nine are counted, and what ZeroMQ makes of the bytes",
    )
    sender(rude)([*parts_of(name, "", claim("too large")), bytes(200_000)])
    await until(lambda: broker.metrics()["lingua_broker_credit"] == 100, "the window is open")
    for number in range(10):
        edge.link.send("", number, claim(str(number)))
    await until(lambda: len(edge.frames(Failed)) == 10, "the others are served as if nothing had happened")
    assert len(selector.messages) == 10


async def test_peer_of_version_1_is_refused_and_named_once_in_the_log(rig: Rig) -> None:
    broker = rig.broker()
    old = rig.raw(broker.front, "edge:old:1")
    beat = [encode([1, 0, BROKER, 0, "edge:old:1", 0, 0]), encode(Beat("edge", 0, 0))]
    for _ in range(3):
        sender(old)(beat)
    await until(lambda: broker.metrics().get('lingua_broker_dropped_total{reason="version"}') == 3, "all are counted")
    assert broker.metrics()['lingua_broker_peers_live{kind="edge"}'] == 0
    broker.process.send_signal(signal.SIGTERM)
    _, log = broker.process.communicate(timeout=DEADLINE_S)
    (line,) = [line for line in log.splitlines() if "edge:old:1" in line]
    assert f"frame version 1, expected {FRAME_VERSION}" in line


async def test_one_malformed_frame_of_a_large_packet_costs_that_frame_alone(rig: Rig) -> None:
    broker = rig.broker()
    edge = await rig.edge()
    name = "edge:raw:1"
    raw = rig.raw(broker.front, name)
    entries = [
        [1, edge.link.identity, 0, name, 0, 0, 0, 0, claim(str(number)), []]
        for number in range(CONFIG.batch_frames_max)
    ]
    entries[3][8] = ["Nonsense"]  # for the receiver
    entries[5][3] = "edge:other:1"  # for the broker
    sender(raw)([encode([FRAME_VERSION, entries])])
    await until(lambda: len(edge.messages) == len(entries) - 2, "all others arrive")
    assert [frame.ref for frame in edge.frames(SessionClaim)] == [
        str(number) for number in range(len(entries)) if number not in (3, 5)
    ]
    assert edge.link.counts.garbage == 1
    assert broker.metrics()['lingua_broker_dropped_total{reason="source"}'] == 1


async def test_metrics_export_frames_peers_and_hop_times(rig: Rig) -> None:
    broker = rig.broker()
    edge, _ = await rig.edge(), await rig.selector(5)
    await until(lambda: broker.metrics()["lingua_broker_credit"] == 5, "the window is open")
    edge.link.send("", 1, claim("1"), bytes(5_000))
    await until(lambda: edge.messages, "it is answered")
    shown = broker.metrics()
    assert shown['lingua_broker_frames_total{direction="out",lane="work"}'] == 2
    assert shown['lingua_broker_bytes_total{direction="out"}'] > 5_000
    assert shown["lingua_broker_hop_seconds_count"] == shown['lingua_broker_packets_total{direction="in"}']


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_the_broker_with_exit_code_0(rig: Rig, number: int) -> None:
    broker = rig.broker()
    await rig.edge()
    assert broker.ready["kind"] == "broker"
    assert broker.ready["pid"] == broker.process.pid
    assert broker.stop(number) == 0


@pytest.mark.parametrize(
    ("arguments", "settings", "text"),
    [
        ([], {}, "link.frontends has no entry 0"),
        (["--frontend", "tcp://0.0.0.0:5599", "--backend", "tcp://127.0.0.1:*"], {}, "refusing to listen"),
        (["--frontend", "tcp://127.0.0.1:*", "--backend", "tcp://127.0.0.1:{taken}"], {}, "cannot listen"),
        (
            ["--frontend", "tcp://127.0.0.1:*", "--backend", "tcp://127.0.0.1:*"],
            {"LINGUA_LINK_BEAT_MS": "0"},
            "beat_ms",
        ),
        (["--index", "1"], {"LINGUA_LINK_FRONTENDS": "ipc:///tmp/x"}, "link.frontends has no entry 1"),
    ],
)
def test_invalid_configuration_prints_one_line_and_exits_with_2(
    arguments: list[str], settings: dict[str, str], text: str
) -> None:
    with sockets.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = [argument.replace("{taken}", port) for argument in arguments]
        process = start(["broker", "--name", "b", *given], **settings)
        out, error = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (2, "")
    assert text in error
    assert len(error.splitlines()) == 1


async def test_suspended_broker_resumes_with_its_peers(rig: Rig) -> None:
    broker = rig.broker()
    selector, edge = await rig.selector(5), await rig.edge()
    await until(lambda: broker.metrics()["lingua_broker_credit"] == 5, "the window is open")
    broker.process.send_signal(signal.SIGSTOP)
    await until(lambda: not edge.link.brokers_live() and not selector.link.brokers_live(), "both notice")
    assert edge.link.send("", 1, claim("1")) == ""
    broker.process.send_signal(signal.SIGCONT)
    await until(lambda: edge.link.brokers_live() and selector.link.brokers_live(), "both notice again")
    await until(lambda: broker.metrics()["lingua_broker_credit"] == 5, "credit is whole")
    edge.link.send("", 1, claim("2"))
    await until(lambda: [a.ref for a in edge.frames(Failed)] == ["2"], "work flows again")
