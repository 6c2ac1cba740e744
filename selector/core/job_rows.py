"""Job rows: Dispatch frames as the numbers that the kernel reads. Strings are looked up, never interned."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from mesh.frames import Dispatch, pair_of
from selector.core.interner import UNKNOWN
from selector.core.kernel import JOB_ROW, LANGUAGE_PLANES, NO_ROW, NOT_ASKED, STAGES, JobRows
from selector.core.node_table import NodeTable
from selector.core.pools import ANYWHERE, PoolOrder, PoolPlan

AUTO: Final = "auto"
#: Node ids that one job may exclude, and languages that may be spoken in it; more are ignored (our edges send fewer).
EXCLUDED_MAX: Final = 64
AUTO_LANGUAGES_MAX: Final = 64
_BYTES_PER_STAGE: Final = 8 * LANGUAGE_PLANES
#: No language, and none that is unknown.
_NOTHING: Final = (0, False)


class JobLanguages(NamedTuple):
    """The languages that a job needs of a node."""

    #: As its speed is measured.
    pair: str
    sources: tuple[str, ...]  # must be recognised
    targets: tuple[str, ...]  # must be translated to
    pairs: tuple[str, ...]  # directed, of which a node that names pairs must name all
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
    interners = table.interners
    for dispatch in dispatches:
        services = {service.lower() for service in dispatch.services}
        spoken = job_languages(dispatch)
        needed, is_unserved = interners.services.find_bits(services.union(dispatch.models))
        # A job that skips a stage needs no language of it.
        sources, is_source_unknown = interners.languages.find_bits(spoken.sources) if "asr" in services else _NOTHING
        targets, is_target_unknown = interners.languages.find_bits(spoken.targets)
        is_translated, is_spoken = "nmt" in services, "tts" in services
        languages += [sources, targets if is_translated else 0, targets if is_spoken else 0]
        order = order_of(dispatch, plan, spoken) if plan.enabled else ANYWHERE
        pairs_from = len(lists)
        if is_translated:
            lists.extend(map(interners.pairs.find, spoken.pairs))
        excluded_from = len(lists)
        also = rejected.get(dispatch.request_id, ()) if rejected else ()
        excluded = (table.rows.get(node_id, NO_ROW) for node_id in (*dispatch.excluded[:EXCLUDED_MAX], *also))
        lists.extend(row for row in excluded if row != NO_ROW)
        row = (
            dispatch.public,
            not order.order,
            interners.tenants.find(dispatch.tenant_id),
            interners.regions.find(dispatch.region) if dispatch.region else NOT_ASKED,
            interners.tiers.find(dispatch.gpu_tier) if dispatch.gpu_tier else NOT_ASKED,
            0 if is_unserved else needed,
            is_unserved,
            spoken.is_auto,
            spoken.is_any and "asr" in services,
            is_source_unknown,
            is_translated and is_target_unknown,
            is_spoken and is_target_unknown,
            table.speeds.pairs.find(spoken.pair),
            max(0, min(dispatch.audio_ms, 2**31 - 1)),
            table.rows.get(dispatch.preferred_node, NO_ROW),
            table.rows.get(dispatch.warm_node, NO_ROW),
            pairs_from,
            excluded_from,
            excluded_from,
            len(lists),
            *pools.place_of(order),
            seed_of(dispatch),
        )
        jobs.append(row)
    planes = b"".join([bits.to_bytes(_BYTES_PER_STAGE, "little") for bits in languages])
    return JobRows(
        np.array(jobs, dtype=JOB_ROW),
        np.frombuffer(planes, dtype="<u8").astype(np.uint64).reshape(len(jobs), STAGES, LANGUAGE_PLANES),
        np.array(lists, dtype=np.int32),
        np.array(pools.numbers, dtype=np.int32),
    )


def seed_of(dispatch: Dispatch) -> int:
    """Breaks ties for this attempt: equal in every selector, different for every request."""
    return crc32(dispatch.request_id.encode()) << 8 | dispatch.attempt & 0xFF


def order_of(dispatch: Dispatch, plan: PoolPlan, spoken: JobLanguages | None = None) -> PoolOrder:
    """The pools in which a job may look. It is routed by its tenant, else by its session."""
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
    pair = pair_of(source, target)
    if source.lower() != AUTO:
        pairs = (pair,) if source.lower() != target.lower() else ()
        return JobLanguages(pair, (source,), (target,), pairs)
    a, b = dispatch.lang_a, dispatch.lang_b
    if a and b:  # two speakers: everything both ways
        return JobLanguages(pair, (a, b), (a, b), _pairs((a, b), (a, b)), is_auto=True)
    sources = tuple(dispatch.auto_langs[:AUTO_LANGUAGES_MAX])
    return JobLanguages(pair, sources, (target,), _pairs(sources, (target,)), is_auto=True, is_any=not sources)


def _pairs(sources: tuple[str, ...], targets: tuple[str, ...]) -> tuple[str, ...]:
    """Every directed pair that may be needed; none into the same language."""
    return tuple(pair_of(one, other) for one in sources for other in targets if one.lower() != other.lower())


@dataclass(slots=True)
class _Pools:
    """The pools of a batch as numbers; jobs with the same order share them."""

    table: NodeTable
    plan: PoolPlan
    numbers: list[int] = field(default_factory=list)
    #: By identity, with the order itself, so that no other one can take its identity meanwhile.
    places: dict[int, tuple[PoolOrder, tuple[int, int]]] = field(default_factory=dict)

    def place_of(self, order: PoolOrder) -> tuple[int, int]:
        """The range of its numbers. Pools without a node are left out."""
        known = self.places.get(id(order))
        if known is None:
            start = len(self.numbers)
            if self.plan.enabled:
                found = map(self.table.pools.find, order.order)
                self.numbers.extend(number for number in found if number != UNKNOWN)
            else:  # nodes may still be listed in pools of an earlier configuration
                self.numbers.extend(range(self.table.pools.size))
            known = self.places[id(order)] = (order, (start, len(self.numbers)))
        return known[1]
