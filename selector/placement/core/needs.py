"""Needs: which nodes may take a job, as a number that is equal for jobs that can use the same nodes.

The wait queue and the forecasts look needs up several times per request; a number is hashed faster than its strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from operator import attrgetter
from typing import Final

from mesh.frames import Dispatch

#: Fields of a Dispatch that a filter reads: two jobs that differ in one of them have different needs.
NEEDED_VALUES: Final = ("tenant_id", "public", "src_lang", "tgt_lang", "lang_a", "lang_b")
NEEDED_LISTS: Final = ("services", "auto_langs", "models", "excluded")
#: Fields that no filter reads: identity, time, cost terms; region and tier count by the order of pools.
OTHER_FIELDS: Final = (
    *("request_id", "attempt", "session_id", "utterance_index", "edge", "deadline_ms", "trace_id", "beside"),
    *("resend", "session_epoch", "arrived_us"),
    *("audio_ms", "preferred_node", "warm_node", "region", "gpu_tier"),
)
assert sorted((*NEEDED_VALUES, *NEEDED_LISTS, *OTHER_FIELDS)) == sorted(Dispatch.__struct_fields__), (
    "a field of Dispatch that a filter reads belongs to the needs, any other to OTHER_FIELDS"
)
#: Needs that are remembered. Beyond it all are forgotten: equal needs of requests before and after count as different.
NEEDS_MAX: Final = 4_096
_values_of = attrgetter(*NEEDED_VALUES)
_lists_of = attrgetter(*NEEDED_LISTS)


class NeedsNumbers:
    """Numbers the needs of jobs. If one job finds no node, another with the same number finds none either."""

    def __init__(self, bound: int = NEEDS_MAX) -> None:
        self._bound = bound
        self._numbers: dict[tuple[object, ...], int] = {}
        self._next = count(1)

    def of(self, dispatch: Dispatch, order: Sequence[str]) -> int:
        """The number of a job's needs. `order`: the pools that it may use."""
        key = (*_values_of(dispatch), *map(tuple, _lists_of(dispatch)), tuple(order))
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= self._bound:
                self._numbers.clear()
            number = self._numbers[key] = next(self._next)
        return number
