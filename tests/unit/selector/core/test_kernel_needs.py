"""`kernel._needs_the_same`: a job without a candidate answers for others of its batch only if no filter differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from selector.core import kernel
from selector.core.job_rows import job_rows
from tests.support.builders.selector import NO_POOLS, facts, job, table_of

#: Fields of a job's row that no filter reads: cost terms, ties, and the flag that only the placer reads.
NOT_FILTERED = {"barred", "region", "tier", "speed_pair", "audio_ms", "paired", "warm", "seed"}


def same_needs(rows: kernel.JobRows) -> bool:
    """The kernel's own test of the first two jobs, uncompiled."""
    plain: Any = kernel._needs_the_same
    return bool(plain.py_func(rows._replace(jobs=rows.jobs.view(np.recarray)), 0, 1))


def twins() -> kernel.JobRows:
    """Two jobs that differ in nothing that a filter reads."""
    table = table_of(("n", facts()))
    rows = job_rows([job(request_id="r-1"), job(request_id="r-2")], table, NO_POOLS)
    for name in ("pairs_from", "pairs_to", "excluded_from", "excluded_to"):
        rows.jobs[name][1] = rows.jobs[name][0]
    return rows


def test_jobs_that_differ_in_no_filtered_field_have_the_same_needs() -> None:
    assert same_needs(twins())


@pytest.mark.parametrize("field", kernel.JOB_ROW.names or ())
def test_a_field_of_a_job_makes_other_needs_unless_no_filter_reads_it(field: str) -> None:
    """A new field must be compared in `_needs_the_same`, or be listed in NOT_FILTERED."""
    rows = twins()
    rows.jobs[field][1] += 1
    assert same_needs(rows) is (field in NOT_FILTERED)


@pytest.mark.parametrize("stage", range(kernel.STAGES))
@pytest.mark.parametrize("plane", range(kernel.LANGUAGE_PLANES))
def test_another_language_of_any_stage_makes_other_needs(stage: int, plane: int) -> None:
    rows = twins()
    rows.languages[1, stage, plane] ^= np.uint64(1 << 63)
    assert not same_needs(rows)


def test_another_pair_makes_other_needs() -> None:
    rows = twins()
    pairs = rows.jobs["pairs_to"][0] - rows.jobs["pairs_from"][0]
    assert pairs > 0
    lists = np.concatenate([rows.lists, rows.lists[:pairs] + 1]).astype(np.int32)
    rows.jobs["pairs_from"][1], rows.jobs["pairs_to"][1] = len(rows.lists), len(lists)
    assert not same_needs(rows._replace(lists=lists))
