"""Acknowledgements of ended jobs, gathered per edge: they leave with the next frames of this selector, or soon."""

from __future__ import annotations

import asyncio

from mesh import clock
from mesh.cells import cell_of_job
from mesh.config.network import LinkConfig
from mesh.frames import FinishedAck, FinishedJob
from mesh.link.gathered import Gathered
from mesh.link.link import Send


class FinishedAcks:
    """Sends FinishedAck. `send_all` is to be called when frames leave anyway (Link.before_flush)."""

    def __init__(self, config: LinkConfig, send: Send) -> None:
        self._gathered: Gathered[FinishedJob] = Gathered(config.ack_batch_max, config.ack_delay_ms, self._arm)
        self._send = send

    def add(self, edge: str, job: FinishedJob) -> None:
        """Acknowledge the end of a job to the edge of its node."""
        full = self._gathered.add(edge, job, clock.now_ms())
        if full is not None:
            self._send_to(edge, full)

    def send_all(self) -> None:
        """Send everything that is gathered."""
        if self._gathered:
            for edge, jobs in self._gathered.pop_all():
                self._send_to(edge, jobs)

    def _send_to(self, edge: str, jobs: list[FinishedJob]) -> None:
        self._send(edge, cell_of_job(jobs[0].job_id), FinishedAck(jobs))

    def _arm(self, due_ms: int) -> None:
        """One timer for the first that is gathered; it finds nothing if they left before."""
        loop = asyncio.get_running_loop()  # its clock is that of now_ms
        loop.call_at(due_ms / 1_000, self.send_all)
