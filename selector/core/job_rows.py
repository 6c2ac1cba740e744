"""Job rows: Dispatch frames as the numbers that the kernel reads. Strings are looked up, never interned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from mesh.frames import Dispatch, pair_of
from selector.core.interner import UNKNOWN
from selector.core.kernel import JOB_ROW, LANGUAGE_PLANES, NO_ROW, NOT_ASKED, STAGES, JobRows
from selector.core.node_table import NodeTable
from selector.core.pools import PoolOrder, PoolPlan

AUTO: Final = "auto"
#: Node ids that one job may exclude, and languages that may be spoken in it; more are ignored (our edges send fewer).
EXCLUDED_MAX: Final = 64
AUTO_LANGUAGES_MAX: Final = 64
_PLANE_BITS: Final = (1 << 64) - 1


class JobLanguages(NamedTuple):
    """The languages that a job needs of a node."""

    sources: tuple[str, ...]  # must be recognised
    targets: tuple[str, ...]  # must be translated to
    pairs: tuple[str, ...]
    is_auto: bool = False
    #: The spoken language is unrestricted: any recogniser will do.
    is_any: bool = False

    def all(self) -> tuple[str, ...]:
        """Every language of the job, in lower case."""
        return tuple(sorted({word.lower() for word in (*self.sources, *self.targets)}))


def job_rows(
    dispatches: Sequence[Dispatch],
    table: NodeTable,
    plan: PoolPlan,
    rejected: Mapping[str, Collection[str]] | None = None,
) -> JobRows:
    """The batch as numbers. `rejected`: request id -> further nodes to exclude, which a commit rejected."""
    jobs = []
    languages = []
    lists: list[int] = []
    pools = _Pools(table, plan)
    for dispatch in dispatches:
        services = {service.lower() for service in dispatch.services}
        spoken = job_languages(dispatch)
        bits, services_unknown = _bits(services.union(dispatch.models), table)
        asr, semantic, tts = _stages(spoken, services, table)
        order = order_of(dispatch, plan, spoken)
        pairs_from = len(lists)
        if "nmt" in services:
            lists.extend(map(table.interners.pairs.find, spoken.pairs))
        excluded_from = len(lists)
        also = rejected.get(dispatch.request_id, ()) if rejected else ()
        lists.extend(_rows((*dispatch.excluded[:EXCLUDED_MAX], *also), table))
        languages.append((asr.planes, semantic.planes, tts.planes))
        row = (
            dispatch.public,
            not order.order,
            table.interners.tenants.find(dispatch.tenant_id),
            table.interners.regions.find(dispatch.region) if dispatch.region else NOT_ASKED,
            table.interners.tiers.find(dispatch.gpu_tier) if dispatch.gpu_tier else NOT_ASKED,
            bits,
            services_unknown,
            spoken.is_auto,
            spoken.is_any and "asr" in services,
            asr.is_unknown,
            semantic.is_unknown,
            tts.is_unknown,
            table.speeds.pairs.find(pair_of(dispatch.src_lang, dispatch.tgt_lang)),
            max(0, min(dispatch.audio_ms, 2**31 - 1)),
            table.row_of(dispatch.preferred_node) if dispatch.preferred_node else NO_ROW,
            table.row_of(dispatch.warm_node) if dispatch.warm_node else NO_ROW,
            pairs_from,
            excluded_from,
            excluded_from,
            len(lists),
            *pools.place_of(order),
            seed_of(dispatch),
        )
        jobs.append(row)
    return JobRows(
        np.array(jobs, dtype=JOB_ROW),
        np.array(languages, dtype=np.uint64).reshape(len(jobs), STAGES, LANGUAGE_PLANES),
        np.array(lists, dtype=np.int32),
        np.array(pools.numbers, dtype=np.int32),
    )


def seed_of(dispatch: Dispatch) -> int:
    """Breaks ties for this attempt: equal in every selector, different for every request."""
    return crc32(dispatch.request_id.encode()) << 8 | dispatch.attempt & 0xFF


def order_of(dispatch: Dispatch, plan: PoolPlan, spoken: JobLanguages | None = None) -> PoolOrder:
    """The pools in which a job may look. It is routed by its tenant, else by its session."""
    if not plan.enabled:
        return plan.order_for("", "", ())
    return plan.order_for(
        dispatch.tenant_id.strip() or dispatch.session_id,
        dispatch.tenant_id,
        sorted({service.lower() for service in dispatch.services}),
        (spoken or job_languages(dispatch)).all(),
        dispatch.region.lower(),
        dispatch.gpu_tier.lower(),
    )


def job_languages(dispatch: Dispatch) -> JobLanguages:
    """The languages of a job: a pair, two speakers, or a list of candidates."""
    source, target = dispatch.src_lang, dispatch.tgt_lang
    if source.lower() != AUTO:
        return JobLanguages((source,), (target,), _pairs((source,), (target,)))
    a, b = dispatch.lang_a, dispatch.lang_b
    if a and b:  # two speakers: everything both ways
        return JobLanguages((a, b), (a, b), _pairs((a, b), (a, b)), is_auto=True)
    sources = tuple(dispatch.auto_langs[:AUTO_LANGUAGES_MAX])
    return JobLanguages(sources, (target,), _pairs(sources, (target,)), is_auto=True, is_any=not sources)


def _pairs(sources: tuple[str, ...], targets: tuple[str, ...]) -> tuple[str, ...]:
    """Every directed pair that may be needed; none into the same language."""
    return tuple(pair_of(one, other) for one in sources for other in targets if one.lower() != other.lower())


class _Stage(NamedTuple):
    planes: tuple[int, ...]
    is_unknown: bool


_NOTHING: Final = _Stage((0,) * LANGUAGE_PLANES, False)


def _stages(spoken: JobLanguages, services: set[str], table: NodeTable) -> tuple[_Stage, _Stage, _Stage]:
    """Languages needed for recognition, translation and speech. A job that skips a stage needs none of it."""
    find = table.interners.languages.find
    targets = _stage(spoken.targets, find)
    return (
        _stage(spoken.sources, find) if "asr" in services else _NOTHING,
        targets if "nmt" in services else _NOTHING,
        targets if "tts" in services else _NOTHING,
    )


def _stage(words: Iterable[str], find: Callable[[str], int]) -> _Stage:
    bits = 0
    is_unknown = False
    for word in words:
        number = find(word)
        if number == UNKNOWN:
            is_unknown = True
        else:
            bits |= 1 << number
    return _Stage(tuple(bits >> 64 * plane & _PLANE_BITS for plane in range(LANGUAGE_PLANES)), is_unknown)


def _bits(words: Iterable[str], table: NodeTable) -> tuple[int, bool]:
    """Services and models as one bitset; True if no node has one of them."""
    bits = 0
    for word in words:
        number = table.interners.services.find(word)
        if number == UNKNOWN:
            return 0, True
        bits |= 1 << number
    return bits, False


def _rows(node_ids: Iterable[str], table: NodeTable) -> list[int]:
    rows = (table.row_of(node_id) for node_id in node_ids)
    return [row for row in rows if row != NO_ROW]


class _Pools:
    """The pools of a batch as numbers; jobs with the same order share them."""

    def __init__(self, table: NodeTable, plan: PoolPlan) -> None:
        self.numbers: list[int] = []
        self._table = table
        self._plan = plan
        #: By identity, with the order itself, so that no other one can take its identity meanwhile.
        self._places: dict[int, tuple[PoolOrder, tuple[int, int]]] = {}

    def place_of(self, order: PoolOrder) -> tuple[int, int]:
        """The range of its numbers. Pools without a node are left out."""
        known = self._places.get(id(order))
        if known is None:
            start = len(self.numbers)
            self.numbers.extend(self._numbers_of(order))
            known = self._places[id(order)] = (order, (start, len(self.numbers)))
        return known[1]

    def _numbers_of(self, order: PoolOrder) -> Iterable[int]:
        if not self._plan.enabled:
            # Nodes may still be listed in pools of an earlier configuration.
            return range(self._table.pools.size)
        found = (self._table.pools.find(name) for name in order.order)
        return [number for number in found if number != UNKNOWN]
