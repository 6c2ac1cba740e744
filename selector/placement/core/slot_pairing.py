"""Slot pairing: which waiting request is committed in the call that ends which job. Pure.

The calls of a batch run one after another, each ending its job before it commits its request. A request whose first
choice is a node that is freed in this batch must therefore be in the call that frees it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple


class Pairing(NamedTuple):
    """Per ended job: the index of its request or None, and how many slots of that request's node later calls free."""

    requests: list[int | None]
    freed_later: list[int]
    #: Indexes of the requests that have no call.
    left: list[int]


def pair(freed: Sequence[str], wanted: Sequence[str]) -> Pairing:
    """Pair ended jobs with requests. `freed`: node of each job; `wanted`: first choice of each request."""
    waiting: dict[str, deque[int]] = {}
    for index, node_id in enumerate(wanted):
        waiting.setdefault(node_id, deque()).append(index)
    to_come = Counter(freed)
    requests: list[int | None] = []
    freed_later = []
    for node_id in freed:
        to_come[node_id] -= 1
        own = waiting.get(node_id)
        requests.append(own.popleft() if own else None)
        freed_later.append(0 if requests[-1] is None else to_come[node_id])
    left = deque(sorted(index for indexes in waiting.values() for index in indexes))
    for place, request in enumerate(requests):
        if request is None and left:
            requests[place] = left.popleft()
    return Pairing(requests, freed_later, list(left))
