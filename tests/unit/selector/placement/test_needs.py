from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mesh.frames import Dispatch
from selector.placement.core.needs import OTHER_FIELDS, NeedsNumbers
from tests.support.builders.selector import job


def changed(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, list):
        return [*value, "x"]
    return not value if isinstance(value, bool) else value * 2 or type(value)(7)


@pytest.mark.parametrize("field", Dispatch.__struct_fields__)
def test_needs_differ_by_exactly_the_fields_that_a_filter_reads(field: str) -> None:
    """A field that is missing from the needs would refuse one job because another one found no node."""
    needs = NeedsNumbers()
    other = msgspec.structs.replace(job(), **{field: changed(getattr(job(), field))})
    assert other != job()
    differ = needs.of(other, ("p",)) != needs.of(job(), ("p",))
    assert differ is (field not in OTHER_FIELDS)


def test_needs_follow_the_pools_and_not_the_person() -> None:
    needs = NeedsNumbers()
    assert needs.of(job(), ("p", "q")) != needs.of(job(), ("q", "p"))
    other = job(request_id="r-2", session_id="s-2", audio_ms=9, warm_node="n", preferred_node="m", deadline_ms=5)
    assert needs.of(other, ()) == needs.of(job(), ())


def test_remembered_needs_are_bounded_and_no_number_is_used_twice() -> None:
    needs = NeedsNumbers(bound=2)
    numbers = [needs.of(job(tenant_id=f"t-{number}"), ()) for number in range(5)]
    assert len(set(numbers)) == 5 and len(needs._numbers) <= 2
    assert needs.of(job(tenant_id="t-4"), ()) == numbers[4]
    assert needs.of(job(tenant_id="t-0"), ()) not in numbers, "forgotten: it counts as different"
