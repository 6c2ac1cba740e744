"""Cells: the hash slot of a record.

Redis Cluster runs a script only if all its keys share a slot, so each record belongs to one cell and every
commit uses the keys of one cell (on a single server, of any). See docs/adr/0002-cells.md.
"""

from __future__ import annotations

from binascii import crc_hqx
from typing import Final

JOB_PREFIX: Final = "job-"
#: Cells that a deployment may have: their numbers have two digits.
CELLS_MAX: Final = 100


def cell_of(record_id: str, cells: int) -> int:
    """The cell of a node or session id: CRC-16 (XMODEM, as Redis Cluster itself uses) modulo `cells`."""
    return crc_hqx(record_id.encode(), 0) % cells


def job_id_in(cell: int, unique: str) -> str:
    """A job id that contains its cell, so that the keys of a job follow from its id."""
    return f"{JOB_PREFIX}{cell:02d}-{unique}"


def cell_of_job(job_id: str) -> int:
    """The cell of a job id; ValueError if it contains none."""
    if not job_id.startswith(JOB_PREFIX):
        raise ValueError(f"{job_id!r} is not a job id: expected job-<cell>-<id>")
    return int(job_id[len(JOB_PREFIX) :].split("-", 1)[0])
