"""Options of a load test, beside locust's own, and their parsed form."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from loadtest.limits import Limits
from loadtest.service_time import ServiceTime


class UserKind(StrEnum):
    """The words of --mix, and the types in locust's statistics."""

    #: Whole utterances, one after another.
    UTTERANCE = "utterance"
    #: Chunks in real time, in JSON or in binary frames.
    STREAM_JSON = "stream_json"
    STREAM_BINARY = "stream_binary"
    #: A room with a member per language.
    ROOM = "room"
    #: Sessions of a few utterances; some end without session_close.
    CHURN = "churn"
    #: Sessions that lose their connection in the middle of an utterance and resume at another edge.
    RESUME = "resume"


DEFAULT_MIX: Final = "utterance=4,stream_json=2,stream_binary=2,room=1,churn=2,resume=2"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Everything that users and nodes are built from."""

    edges: list[str]
    mix: dict[UserKind, int]
    nodes: int
    slots: int
    service_time: ServiceTime
    node_churn_s: float
    utterance_bytes: int
    chunk_ms: int
    chunks: int
    languages: list[str]
    think_s: float
    timeout_s: float
    seed: int
    limits: Limits


def parse_mix(text: str) -> dict[UserKind, int]:
    """`utterance=4,room=1`: kind -> weight; a kind that is not named has none."""
    mix: dict[UserKind, int] = {}
    for part in text.split(","):
        name, _, weight = part.partition("=")
        mix[UserKind(name.strip())] = int(weight or 1)
    if min(mix.values()) < 0 or not any(mix.values()):
        raise ValueError(f"--mix is {text!r}; weights are not negative, and one is positive")
    return mix


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to locust's parser."""
    add = parser.add_argument_group("the load test").add_argument
    add("--edge", default="ws://127.0.0.1:5010", metavar="URL[,URL...]", help="edges; sessions resume at the next one")
    add("--mix", default=DEFAULT_MIX, metavar="KIND=WEIGHT,...", help=f"kinds of users ({DEFAULT_MIX})")
    add("--nodes", type=int, default=4, metavar="N", help="nodes of the test's own (4); 0 = those of the mesh")
    add("--slots", type=int, default=4, metavar="N", help="jobs at once, per node (4)")
    add(
        "--service-time",
        default="lognormal:40:0.5",
        metavar="KIND:MS",
        help="constant, exponential, lognormal:MS:SIGMA",
    )
    add(
        "--node-churn",
        type=float,
        default=0.0,
        metavar="S",
        help="mean seconds until every other node leaves; 0 = never",
    )
    add("--utterance-bytes", type=int, default=32_000, metavar="N", help="PCM16 of a whole utterance")
    add("--chunk-ms", type=int, default=100, metavar="MS", help="length of a streamed chunk")
    add("--chunks", type=int, default=10, metavar="N", help="chunks of a streamed utterance")
    add("--languages", default="en,es,fr", metavar="L,...", help="of a room's members; others use the first two")
    add("--think", type=float, default=0.5, metavar="S", help="mean pause of a user between utterances")
    add("--result-timeout", type=float, default=30.0, metavar="S", help="an utterance without a result is missing then")
    add("--seed", type=int, default=1, metavar="N", help="of audio, pauses, service times and drops")
    add(
        "--limit-p95-ms",
        type=float,
        default=500.0,
        metavar="MS",
        help="p95 of utterance -> result, of each kind",
    )
    add("--limit-failures", type=int, default=0, metavar="N", help="failures of any kind")
    add("--limit-results", type=int, default=1, metavar="N", help="results that the run must have had at least")


def parse_options(parsed: argparse.Namespace | Any) -> LoadOptions:
    """Locust's parsed options as this test's; ValueError if one of them is wrong."""
    languages = parsed.languages.split(",")
    if len(languages) < 2:
        raise ValueError(f"--languages is {parsed.languages!r}; a room has at least two")
    if parsed.nodes < 0:
        raise ValueError(f"--nodes is {parsed.nodes}; it is not negative")
    if min(parsed.slots, parsed.chunks, parsed.chunk_ms, parsed.utterance_bytes) < 1:
        raise ValueError("--slots, --chunks, --chunk-ms and --utterance-bytes are positive")
    return LoadOptions(
        edges=parsed.edge.split(","),
        mix=parse_mix(parsed.mix),
        nodes=parsed.nodes,
        slots=parsed.slots,
        service_time=ServiceTime.parse(parsed.service_time),
        node_churn_s=parsed.node_churn,
        utterance_bytes=parsed.utterance_bytes // 2 * 2,
        chunk_ms=parsed.chunk_ms,
        chunks=parsed.chunks,
        languages=languages,
        think_s=parsed.think,
        timeout_s=parsed.result_timeout,
        seed=parsed.seed,
        limits=Limits(parsed.limit_p95_ms, parsed.limit_failures, parsed.limit_results),
    )
