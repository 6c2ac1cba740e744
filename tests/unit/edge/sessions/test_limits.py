"""SessionLimits: one immutable object for all sessions, which the parts of a session obey."""

from __future__ import annotations

import pytest

from edge.sessions.core.limits import SessionLimits
from mesh.errors import ErrorCode
from tests.unit.edge.sessions.harness import Case, limits


def test_limits_cannot_be_changed() -> None:
    made = limits()
    assert isinstance(made, SessionLimits)
    with pytest.raises(AttributeError):
        made.pending_max = 1  # type: ignore[misc]


@pytest.mark.parametrize("pending_max", [1, 3])
def test_session_obeys_the_limits_that_it_got(pending_max: int) -> None:
    case = Case(bounds=limits(pending_max=pending_max))
    for index in range(pending_max + 1):
        case.utter(index)
    assert len(case.submitted) == pending_max and case.codes == [ErrorCode.TOO_MANY_UTTERANCES.name]


def test_limits_have_no_default() -> None:
    assert not SessionLimits._field_defaults, "every bound is named where the configuration is read"
