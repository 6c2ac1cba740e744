from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.cells import cell_of, cell_of_job, job_id_in
from mesh.ids import is_id
from mesh.random_ids import new_job_unique

ids = st.text(alphabet="abcXYZ019_.:-", min_size=1, max_size=64)


@pytest.mark.parametrize(("text", "slot"), [("123456789", 0x31C3), ("foo", 12182), ("", 0)])
def test_hash_matches_redis_cluster(text: str, slot: int) -> None:
    # 0x31C3 is the check value of CRC-16/XMODEM; `CLUSTER KEYSLOT foo` is 12182.
    assert cell_of(text, 16384) == slot % 16384


@given(ids, st.integers(1, 100))
def test_cell_is_in_range_and_stable(record_id: str, cells: int) -> None:
    assert 0 <= cell_of(record_id, cells) < cells
    assert cell_of(record_id, cells) == cell_of(record_id, cells)


def test_ids_spread_over_all_cells() -> None:
    assert {cell_of(f"node-{number}", 16) for number in range(1_000)} == set(range(16))


@given(st.integers(0, 99))
def test_job_id_contains_its_cell(cell: int) -> None:
    job_id = job_id_in(cell, new_job_unique())
    assert cell_of_job(job_id) == cell
    assert is_id(job_id)


@pytest.mark.parametrize("job_id", ["", "job", "job-", "job-x-1", "node-01-a", "JOB-01-a"])
def test_other_ids_have_no_cell(job_id: str) -> None:
    with pytest.raises(ValueError, match=r"job id|invalid literal"):
        cell_of_job(job_id)
