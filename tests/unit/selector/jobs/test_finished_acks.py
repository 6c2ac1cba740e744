from __future__ import annotations

from typing import Any

from mesh.config.network import LinkConfig
from mesh.frames import FinishedAck, FinishedJob, Frame
from selector.jobs.finished_acks import FinishedAcks
from tests.support.conditions import until


def job(number: int) -> FinishedJob:
    return FinishedJob("n", f"job-03-{number}", 1)


class Sent(list[tuple[str, int, Frame]]):
    def send(self, to: str, cell: int, frame: Frame, *payload: Any, **_: Any) -> str:
        self.append((to, cell, frame))
        return "broker"


async def test_ends_of_jobs_are_acknowledged_with_the_next_frames_in_one_frame_per_edge() -> None:
    sent = Sent()
    acks = FinishedAcks(LinkConfig(ack_delay_ms=1_000), sent.send)
    for number, edge in enumerate("bcb"):
        acks.add(edge, job(number))
    assert sent == []
    acks.send_all()
    assert sent == [("b", 3, FinishedAck([job(0), job(2)])), ("c", 3, FinishedAck([job(1)]))]
    acks.send_all()
    assert len(sent) == 2, "each once"


async def test_they_leave_by_themselves_after_the_delay_and_a_full_batch_at_once() -> None:
    sent = Sent()
    acks = FinishedAcks(LinkConfig(ack_delay_ms=1, ack_batch_max=2), sent.send)
    for number in range(3):
        acks.add("b", job(number))
    assert sent == [("b", 3, FinishedAck([job(0), job(1)]))]
    await until(lambda: len(sent) == 2, "the delay is over")
    assert sent[1] == ("b", 3, FinishedAck([job(2)]))
