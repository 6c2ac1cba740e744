"""Requests and results of a turnover: a job ends, and a waiting request gets its slot. Plain values, no Redis."""

from __future__ import annotations

from typing import NamedTuple

from lua.store.types.commits import CommitRequest, Committed
from lua.store.types.jobs import Advance, Advanced
from mesh.errors import StoreError


class Turnover(NamedTuple):
    """The end of a job, and the request that is committed after it in the same call."""

    finish: Advance
    request: CommitRequest | None = None


class TurnedOver(NamedTuple):
    """Result of a Turnover. `committed` is None without a request, and "unknown" on a store error.

    `finished.used` is the load of the job's node before the commit, so it must be applied first.
    """

    finished: Advanced | StoreError
    committed: Committed | None = None
