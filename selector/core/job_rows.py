"""Job rows: Dispatch frames as the numbers that the kernel reads. Strings are looked up, never interned."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from mesh.frames import Dispatch, pair_of
from selector.core.interner import UNKNOWN
from selector.core.kernel import JOB_ROW, LANGUAGE_PLANES, NO_ROW, NOT_ASKED, STAGES, JobRows, Rows
from selector.core.node_table import NodeTable
from selector.core.pools import PoolOrder, PoolPlan

AUTO: Final = "auto"
#: Node ids that one job may exclude, and languages that may be spoken in it; more are ignored (our edges send fewer).
EXCLUDED_MAX: Final = 64
AUTO_LANGUAGES_MAX: Final = 64
_BYTES_PER_STAGE: Final = 8 * LANGUAGE_PLANES
#: Kinds of jobs whose strings are cached.
KNOWN_MAX: Final = 4_096
_INT32_MAX: Final = 2**31 - 1
_NO_NUMBERS: Final[Rows] = np.zeros(0, dtype=np.int32)
#: A row of JOB_ROW: packing the bytes costs a tenth of numpy's conversion of tuples.
_ROW: Final = Struct("@" + "".join(JOB_ROW[name].char for name in JOB_ROW.names or ()))
assert _ROW.size == JOB_ROW.itemsize, "the struct has the fields and the padding of JOB_ROW"
_pack_row = _ROW.pack
#: Fields of a Dispatch that a cached part is made of.
_strings_of = attrgetter("src_lang", "tgt_lang", "lang_a", "lang_b", "tenant_id", "region", "gpu_tier")
_lists_of = attrgetter("services", "models", "auto_langs")
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


class _KnownNeeds(NamedTuple):
    """The part of a row that follows from the strings of a job; jobs of one kind share it."""

    #: Fields of JOB_ROW from `tenant` to `speed_pair`.
    facts: tuple[int, ...]
    #: Bytes of its languages at each stage.
    planes: bytes
    #: Numbers of the directed pairs that a node must have.
    pairs: tuple[int, ...]
    #: For the order of its pools.
    services: tuple[str, ...]
    languages: tuple[str, ...]


class JobRowBuilder:
    """Builds the rows of batches. Caches what follows from strings, until a string gets or loses its number."""

    def __init__(self, table: NodeTable, plan: PoolPlan) -> None:
        self._table = table
        self._plan = plan
        self._known: dict[tuple[object, ...], _KnownNeeds] = {}
        self._words_version = -1
        #: Without pools: the numbers of all pools.
        self._everywhere = _NO_NUMBERS

    def rows(self, dispatches: Sequence[Dispatch], rejected: Mapping[str, Collection[str]] | None = None) -> JobRows:
        """The batch as numbers. `rejected`: request id -> further nodes to exclude, which a commit rejected."""
        table, plan = self._table, self._plan
        version = table.words_version()
        if version != self._words_version or len(self._known) > KNOWN_MAX:
            self._known.clear()
            self._words_version = version
        jobs, planes = bytearray(), bytearray()
        lists: list[int] = []
        pools = _Pools(table) if plan.enabled else None
        everywhere = table.pools.size
        row_of = table.rows.get
        for dispatch in dispatches:
            key = (*_strings_of(dispatch), *map(tuple, _lists_of(dispatch)))
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = self._look_up(dispatch)
            is_barred, pools_from, pools_to = False, 0, everywhere
            if pools is not None:
                order = self._order_of(dispatch, known)
                is_barred = not order.order
                pools_from, pools_to = pools.place_of(order)
            pairs_from = len(lists)
            lists += known.pairs
            excluded_from = len(lists)
            if dispatch.excluded or rejected:
                also = rejected.get(dispatch.request_id, ()) if rejected else ()
                excluded = (row_of(node_id, NO_ROW) for node_id in (*dispatch.excluded[:EXCLUDED_MAX], *also))
                lists.extend(row for row in excluded if row != NO_ROW)
            planes += known.planes
            jobs += _pack_row(
                dispatch.public,
                is_barred,
                *known.facts,
                max(0, min(dispatch.audio_ms, _INT32_MAX)),
                row_of(dispatch.preferred_node, NO_ROW),
                row_of(dispatch.warm_node, NO_ROW),
                pairs_from,
                excluded_from,
                excluded_from,
                len(lists),
                pools_from,
                pools_to,
                seed_of(dispatch),
            )
        return JobRows(
            np.frombuffer(jobs, JOB_ROW),
            np.frombuffer(planes, np.uint64).reshape(len(dispatches), STAGES, LANGUAGE_PLANES),
            np.array(lists, np.int32) if lists else _NO_NUMBERS,
            self._all_pools(everywhere) if pools is None else np.array(pools.numbers, np.int32),
        )

    def _look_up(self, dispatch: Dispatch) -> _KnownNeeds:
        interners = self._table.interners
        services = {service.lower() for service in dispatch.services}
        spoken = job_languages(dispatch)
        needed, is_unserved = interners.services.find_bits(services.union(dispatch.models))
        # A job that skips a stage needs no language of it.
        sources, is_source_unknown = interners.languages.find_bits(spoken.sources) if "asr" in services else _NOTHING
        targets, is_target_unknown = interners.languages.find_bits(spoken.targets)
        is_translated, is_spoken = "nmt" in services, "tts" in services
        languages = (sources, targets if is_translated else 0, targets if is_spoken else 0)
        facts = (
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
            self._table.speeds.pairs.find(spoken.pair),
        )
        planes = b"".join([bits.to_bytes(_BYTES_PER_STAGE, "little") for bits in languages])
        native = np.frombuffer(planes, dtype="<u8").astype(np.uint64).tobytes()
        pairs = tuple(map(interners.pairs.find, spoken.pairs)) if is_translated else ()
        return _KnownNeeds(facts, native, pairs, tuple(sorted(services)), spoken.all())

    def _order_of(self, dispatch: Dispatch, known: _KnownNeeds) -> PoolOrder:
        return self._plan.order_for(
            dispatch.tenant_id.strip() or dispatch.session_id,
            dispatch.tenant_id,
            known.services,
            known.languages,
            dispatch.region.lower(),
            dispatch.gpu_tier.lower(),
        )

    def _all_pools(self, size: int) -> Rows:
        """Without pools every job looks everywhere: nodes may still be listed in pools of an earlier configuration."""
        if len(self._everywhere) != size:
            self._everywhere = np.arange(size, dtype=np.int32)
        return self._everywhere


def job_rows(
    dispatches: Sequence[Dispatch],
    table: NodeTable,
    plan: PoolPlan,
    rejected: Mapping[str, Collection[str]] | None = None,
) -> JobRows:
    """One batch as numbers, without a cache."""
    return JobRowBuilder(table, plan).rows(dispatches, rejected)


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
    numbers: list[int] = field(default_factory=list)
    #: By identity, with the order itself, so that no other one can take its identity meanwhile.
    places: dict[int, tuple[PoolOrder, tuple[int, int]]] = field(default_factory=dict)

    def place_of(self, order: PoolOrder) -> tuple[int, int]:
        """The range of its numbers. Pools without a node are left out."""
        known = self.places.get(id(order))
        if known is None:
            start = len(self.numbers)
            found = map(self.table.pools.find, order.order)
            self.numbers.extend(number for number in found if number != UNKNOWN)
            known = self.places[id(order)] = (order, (start, len(self.numbers)))
        return known[1]
