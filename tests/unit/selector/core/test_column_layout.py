from __future__ import annotations

import math

import pytest

from mesh.frames import NodeLoad
from selector.core.column_layout import empty_columns, small, write_caps, write_load
from selector.core.interner import NOT_INTERNED, NodeInterners
from selector.core.kernel import (
    DRAINING_STATUS,
    LANGUAGE_PLANES,
    OFFLINE_STATUS,
    OTHER_STATUS,
    PAIR_PLANES,
    READY_STATUS,
    SPEED_SLOTS,
    Columns,
)
from tests.support.builders.selector import caps


def test_every_column_has_a_row_per_node_and_its_width() -> None:
    columns = empty_columns(3)
    assert {len(getattr(columns, name)) for name in Columns._fields} == {3}
    assert columns.asr.shape == (3, LANGUAGE_PLANES)
    assert columns.pairs.shape == (3, PAIR_PLANES)
    assert columns.speed_mean.shape == (3, SPEED_SLOTS)


@pytest.mark.parametrize(("number", "stored"), [(-1, 0), (7, 7), (2**40, 2**31 - 1)])
def test_number_of_a_peer_is_clipped_to_its_column(number: int, stored: int) -> None:
    assert small(number) == stored


@pytest.mark.parametrize(
    ("status", "stored"),
    [("ready", READY_STATUS), ("draining", DRAINING_STATUS), ("offline", OFFLINE_STATUS), ("degraded", OTHER_STATUS)],
)
def test_load_is_the_highest_percentage_and_nan_counts_as_none(status: str, stored: int) -> None:
    columns = empty_columns(1)
    write_load(columns, 0, status, NodeLoad(12.5, 80.0, math.nan, 3), -5)
    assert (columns.status[0], columns.load_percent[0], columns.running[0]) == (stored, 80.0, 3)
    assert columns.detached_ms[0] == 0


def test_string_that_was_not_interned_matches_no_job() -> None:
    columns, interners = empty_columns(1), NodeInterners([])
    held = interners.hold(caps())._replace(tenants=(), regions=())
    write_caps(columns, 0, caps(), held, [])
    assert columns.tenant[0] == columns.region[0] == NOT_INTERNED
    assert columns.tier[0] == 0
