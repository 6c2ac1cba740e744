"""The kernel: hard filters, score, best k and in-batch charging, compiled by numba. See docs/adr/0005-kernel.md.

Owns the layout of the columns and of a job's row, and nothing else: no names, no ids, no clock. Everything it reads is
plain numbers, so a recorded choice can be replayed bit for bit. Its slow and obvious twin is
tests/support/reference/naive_kernel.py; hypothesis compares them. A new filter or cost term: docs/changing.md.

Longer than other files on purpose: numba caches compiled code until this very file changes, so everything that it
compiles in (layout, constants, rules) must be here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from mesh.config.weights import Weights
from selector.core.filters import Filter

F = TypeVar("F", bound=Callable[..., Any])
Words = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int32]
Scores = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Jobs = npt.NDArray[np.void]
#: One element of a JOB_ROW array; numpy has no type for its fields.
JobRow = Any
#: An int64 of compiled code. One type for all calls of a function: each other one would be compiled anew.
Int = Any

#: 4 x 64 languages, 16 x 64 directed pairs. Services, and the models that features need, fit one word.
LANGUAGE_PLANES: Final = 4
PAIR_PLANES: Final = 16
SERVICES_MAX: Final = 64
#: Speeds per node: the one over all pairs first, then single pairs.
SPEED_SLOTS: Final = 17
ANY_PAIR_NUMBER: Final = 0

NOT_ASKED: Final = -1
NO_ROW: Final = -1
NO_POOL: Final = -1
OTHER_STATUS: Final = 0
READY_STATUS: Final = 1
DRAINING_STATUS: Final = 2
OFFLINE_STATUS: Final = 3
STATUSES: Final = 4
PREDICTED_MS: Final = 0
LEAST_CONNECTIONS: Final = 1
#: Stages that need languages: indexes of JobRows.languages.
ASR_STAGE, SEMANTIC_STAGE, TTS_STAGE = 0, 1, 2
STAGES: Final = 3
#: Jobs without a candidate that are remembered in one batch, for others with the same needs.
_WITHOUT_MAX: Final = 64
#: Templates of empty results that are cached, and the size up to which: a copy costs a third of building one.
_TEMPLATES_MAX: Final = 256
_TEMPLATE_CELLS_MAX: Final = 1_024
#: Standard deviations above the mean that 19 of 20 jobs stay below.
LATE_DEVIATIONS: Final = 1.65

# Filters as plain numbers. Written out, because compiled code is cached on disk until this very file changes: numbers
# imported from filters.py would stay the old ones.
PASSED: Final = -1
_POOL: Final = 0
_EXCLUDED: Final = 1
_OFFLINE: Final = 2
_STATUS: Final = 3
_DRAINING: Final = 4
_UNREACHABLE: Final = 5
_GPU: Final = 6
_RESOURCES: Final = 7
_PUBLIC: Final = 8
_TENANT: Final = 9
_INSTALLED: Final = 10
_READY: Final = 11
_MODEL: Final = 12
_ASR: Final = 13
_AUTO: Final = 14
_PAIR: Final = 15
_TTS: Final = 16
_SLOT: Final = 17
FILTERS: Final = 18
assert {one.name: one.value for one in Filter} == {one.name: globals().get(f"_{one.name}") for one in Filter}
assert len(Filter) == FILTERS

#: What a score is the sum of, in this order, in predicted milliseconds; the last two are savings and thus negative.
TERMS: Final = ("work", "risk", "busy", "load", "stale", "detached", "region", "tier", "warm", "paired")


# numba counts references of arrays each time a tuple of them is passed or a field is read, about 10 ns a time. So the
# compiled functions take the tuples once per job, read the fields into locals before the loop over the nodes, and
# call only functions of plain numbers inside it.


class Columns(NamedTuple):
    """All nodes, one array per fact; the first index is the node's row. Sets are words of 64 bits side by side."""

    seen_ms: npt.NDArray[np.int64]  # last heartbeat, on the caller's clock
    unreachable_until_ms: npt.NDArray[np.int64]
    detached_ms: npt.NDArray[np.int64]  # when its socket closed; 0: it is open
    status: npt.NDArray[np.uint8]  # one of the *_STATUS
    gpus: npt.NDArray[np.int32]
    load_percent: npt.NDArray[np.float64]  # the highest of cpu, gpu and memory
    accept_public: npt.NDArray[np.uint8]
    tenant: npt.NDArray[np.int32]  # 0: none
    pool: npt.NDArray[np.int32]  # home pool; 0: none
    region: npt.NDArray[np.int32]
    tier: npt.NDArray[np.int32]
    installed: npt.NDArray[np.uint64]  # services, and models that features need
    ready: npt.NDArray[np.uint64]
    marked: npt.NDArray[np.uint64]  # services whose model it reported as missing
    asr: npt.NDArray[np.uint64]  # [row, plane]
    semantic: npt.NDArray[np.uint64]
    tts: npt.NDArray[np.uint64]
    tts_named: npt.NDArray[np.uint8]  # 0: it lists none, so any target of its semantic stage
    pairs: npt.NDArray[np.uint64]  # [row, plane]
    pairs_named: npt.NDArray[np.uint8]  # 0: it lists none, so any asr language to any semantic one
    used: npt.NDArray[np.int32]  # leases in Redis
    running: npt.NDArray[np.int32]  # running jobs by its last heartbeat
    max_jobs: npt.NDArray[np.int32]
    charged: npt.NDArray[np.int32]  # picks of the batch under way; 0 between batches
    speed_pair: npt.NDArray[np.int32]  # [row, slot]: number of the pair, NOT_ASKED where the list ends
    speed_mean: npt.NDArray[np.float32]
    speed_variance: npt.NDArray[np.float32]
    speed_jobs: npt.NDArray[np.float32]
    speed_at_ms: npt.NDArray[np.int64]


class PoolIndex(NamedTuple):
    """The rows of each home pool, and what its nodes have between them. selector/core/pool_index.py builds it."""

    members: Rows  # all rows, pool by pool, in each by number
    starts: Rows  # pool p has members[starts[p]:starts[p + 1]]
    installed: Words  # per pool: services that any member has installed
    ready: Words  # per pool: services that are ready on any ready member
    by_status: Rows  # [pool, *_STATUS]: how many members


#: One job. Strings are numbers of an Interner, NOT_ASKED, or interner.UNKNOWN, which matches nothing. A field that a
#: filter reads must be compared in `_needs_the_same`.
_JOB_FIELDS: Final = [
    ("public", np.uint8),
    ("barred", np.uint8),  # no pool will ever take it; the kernel does not read this
    ("tenant", np.int32),
    ("region", np.int32),
    ("tier", np.int32),
    ("services", np.uint64),
    ("services_unknown", np.uint8),
    ("is_auto", np.uint8),  # the spoken language is unknown
    ("asr_any", np.uint8),  # and unrestricted: any recogniser will do
    ("asr_unknown", np.uint8),  # it needs a language that no node has
    ("semantic_unknown", np.uint8),
    ("tts_unknown", np.uint8),
    ("speed_pair", np.int32),
    ("audio_ms", np.int32),
    ("paired", np.int32),  # row or NO_ROW
    ("warm", np.int32),
    ("pairs_from", np.int32),  # its parts of JobRows.lists
    ("pairs_to", np.int32),
    ("excluded_from", np.int32),
    ("excluded_to", np.int32),
    ("pools_from", np.int32),  # its part of JobRows.pools
    ("pools_to", np.int32),
    ("seed", np.uint64),  # breaks ties; equal nodes share the load because jobs have different seeds
]
JOB_ROW: Final = np.dtype(_JOB_FIELDS, align=True)


class JobRows(NamedTuple):
    """A batch of jobs as numbers."""

    jobs: Jobs
    languages: Words  # [job, stage, plane]: what a node must have at each stage
    lists: Rows  # pairs that a node must have, and rows that are excluded
    pools: Rows  # home pools in the order in which they are looked at


class Rules(NamedTuple):
    """Values of a whole batch: now, limits and weights. mesh/config/weights.py explains them."""

    now_ms: int
    heartbeat_timeout_ms: int
    heartbeat_interval_ms: int
    #: A heartbeat's running_jobs counts beside the leases for this long.
    running_fresh_ms: int
    reconnect_grace_ms: int
    #: Suitable nodes that are compared for one job.
    compared_max: int
    #: Shorter audio counts as this long.
    audio_ms_min: int
    strategy: int
    resource_threshold_percent: float
    busy: float
    busy_ms: float
    load_ms: float
    stale_ms_per_ms: float
    risk: float
    speed_even: float
    optimism: float
    speed_unknown: float
    optimism_jobs: float
    speed_half_life_ms: float
    warm_ms: float
    paired_ms: float
    region_ms: float
    tier_ms: float
    detached_ms: float

    @classmethod
    def of(
        cls,
        weights: Weights,
        *,
        now_ms: int,
        heartbeat_timeout_ms: int,
        heartbeat_interval_ms: int,
        running_fresh_ms: int,
        resource_threshold_percent: float,
        reconnect_grace_ms: int,
        compared_max: int,
        audio_ms_min: int = 500,
    ) -> Rules:
        """The rules of a moment, with the types that the kernel was compiled for."""
        return cls(
            now_ms=now_ms,
            heartbeat_timeout_ms=heartbeat_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            running_fresh_ms=running_fresh_ms,
            reconnect_grace_ms=reconnect_grace_ms,
            compared_max=compared_max,
            audio_ms_min=audio_ms_min,
            strategy=LEAST_CONNECTIONS if weights.strategy == "least_connections" else PREDICTED_MS,
            resource_threshold_percent=float(resource_threshold_percent),
            busy=float(weights.busy),
            busy_ms=float(weights.busy_ms),
            load_ms=float(weights.load_ms),
            stale_ms_per_ms=weights.stale_ms_per_s / 1_000.0,
            risk=float(weights.risk),
            speed_even=float(weights.speed_even),
            optimism=float(weights.optimism),
            speed_unknown=float(weights.speed_unknown),
            optimism_jobs=float(weights.optimism_jobs),
            speed_half_life_ms=weights.speed_half_life_s * 1_000.0,
            warm_ms=float(weights.warm_ms),
            paired_ms=float(weights.paired_ms),
            region_ms=float(weights.region_ms),
            tier_ms=float(weights.tier_ms),
            detached_ms=float(weights.detached_ms),
        )


class Choice(NamedTuple):
    """Per job: the best nodes in order, and the number of nodes that each filter removed."""

    rows: Rows  # [job, k]; NO_ROW fills up
    scores: Scores
    expected: Rows  # slots that Redis should find in use there when it comes to this job
    terms: Floats  # [job, k, term]
    #: Nodes that each filter removed. A scan that ended early did not count the rest; without a candidate all are in.
    removed: Rows
    pool: Rows  # home pool of the first candidate, or NO_POOL
    compared: Rows  # nodes that passed all filters
    late_ms: Scores  # [job, k]: a result that takes longer is late for that node


class Examined(NamedTuple):
    """One job against every node: the first filter that removes it, PASSED if none, and its cost terms."""

    obstacle: npt.NDArray[np.int32]
    terms: Floats  # [row, term]
    scores: Scores


class Top(NamedTuple):
    """The best nodes so far for one job, ordered by (score, tie, row)."""

    rows: Rows
    scores: Scores
    ties: Words


class Scratch(NamedTuple):
    """Memory of one call. `obstacles` has a place per node when they are examined, else none."""

    ties: Words
    special: Rows
    without: Rows  # jobs of the batch without a candidate, as far as they fit
    obstacles: Rows


#: numba's types do not know of all its options.
_njit: Final[Any] = numba.njit


def _compiled(function: F) -> F:
    """Compiled, to be called by compiled functions only. With `_entry` the one place with numba's options.

    nopython is the default. No fastmath: the naive twin must give the very same numbers. No parallel: a batch takes
    less time than waking threads, and the other cores have selectors too. No wrappers: they would cost start-up time,
    and Python never calls these.
    """
    compiled: F = _njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    return compiled


def _entry(function: F) -> F:
    """Compiled, to be called from Python, and kept on disk with all that it calls.

    A selector must be ready in seconds, and compiling takes several. The cache lies beside it; selector/kernel_cache.py
    finds another place where that is read-only.
    """
    try:
        compiled: F = _njit(error_model="numpy", no_cfunc_wrapper=True, cache=True)(function)
    except RuntimeError:
        # No directory at all can be written: compile at each start rather than not start.
        compiled = _njit(error_model="numpy", no_cfunc_wrapper=True)(function)
    return compiled


@_compiled
def tie_hash(seed: np.uint64, row: int) -> np.uint64:
    """Equal scores are ordered by this: 64 well mixed bits (the finalizer of splitmix64)."""
    mixed = seed + np.uint64(row + 1) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


# --- cost terms: functions of plain numbers -----------------------------------------------------------------


@_compiled
def _assumed(fleet: float, fleet_all: float, rules: Rules) -> float:
    """The prior speed of a node without observations."""
    known = fleet if fleet >= 0.0 else fleet_all
    return float(rules.optimism * known if known >= 0.0 else rules.speed_unknown)


@_compiled
def _weight(jobs: float, at_ms: int, rules: Rules) -> float:
    """The weight of the observations, in fresh ones: half after the half-life, then ever less."""
    age_ms = float(max(0, rules.now_ms - at_ms))
    half_life = rules.speed_half_life_ms * rules.speed_half_life_ms
    return float(jobs * half_life / (half_life + age_ms * age_ms))


@_compiled
def _audio_ms(audio_ms: int, rules: Rules) -> float:
    """The length that is priced; a job without a length has no work to compare nodes by."""
    return float(max(audio_ms, rules.audio_ms_min)) if audio_ms > 0 else 0.0


@_compiled
def _evened(mean: float, fleet: float, rules: Rules) -> float:
    """A node's speed without noise: the fleet's, unless it differs by more than `speed_even`."""
    chance = fleet * rules.speed_even
    off = mean - fleet
    if fleet < 0.0:
        return mean
    return float(fleet + (max(off - chance, 0.0) + min(off + chance, 0.0)))


@_compiled
def _work_ms(audio_ms: float, assumed: float, mean: float, weight: float, rules: Rules) -> float:
    """Predicted time on an idle node: its own speed and the assumed one, by the weight of its observations."""
    part = 1.0 / (weight + rules.optimism_jobs)
    return float(audio_ms * ((weight * mean + rules.optimism_jobs * assumed) * part))


@_compiled
def _busy_ms(work_ms: float, used: int, max_jobs: int, rules: Rules) -> float:
    """Predicted delay by the jobs that the node already runs."""
    return float(max(rules.busy * work_ms, rules.busy_ms) * (used / max(max_jobs, 1)))


@_compiled
def _price(
    audio_ms: float,
    assumed: float,
    mean: float,
    variance: float,
    weight: float,
    used: int,
    max_jobs: int,
    load_percent: float,
    seen_ms: int,
    detached_ms: int,
    is_far: bool,
    is_other_tier: bool,
    is_warm: bool,
    is_paired: bool,
    rules: Rules,
) -> tuple[float, float, float, float, float, float, float, float, float, float]:
    """The score's TERMS."""
    if rules.strategy == LEAST_CONNECTIONS:
        return 0.0, 0.0, float(used), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    work_ms = _work_ms(audio_ms, assumed, mean, weight, rules)
    deviation = np.sqrt(weight * variance * (1.0 / (weight + rules.optimism_jobs)))
    load = load_percent / 100.0
    late_ms = max(0, rules.now_ms - seen_ms - rules.heartbeat_interval_ms)
    return (
        work_ms,
        audio_ms * (rules.risk * max(deviation - rules.speed_even * mean, 0.0)),
        _busy_ms(work_ms, used, max_jobs, rules),
        rules.load_ms * (load * load),
        rules.stale_ms_per_ms * late_ms,
        rules.detached_ms if detached_ms > 0 else 0.0,
        rules.region_ms if is_far else 0.0,
        rules.tier_ms if is_other_tier else 0.0,
        -rules.warm_ms if is_warm else 0.0,
        -rules.paired_ms if is_paired else 0.0,
    )


@_compiled
def _rounded(milliseconds: float) -> np.int64:
    """Whole milliseconds: nodes that differ by less are equal and share the load."""
    return np.int64(np.floor(milliseconds + 0.5))


@_compiled
def _late_ms(
    audio_ms: float,
    assumed: float,
    mean: float,
    variance: float,
    weight: float,
    used: int,
    max_jobs: int,
    rules: Rules,
) -> np.int64:
    """19 of 20 results take less time. The unknown part of a node's deviation is assumed as large as its mean."""
    work_ms = _work_ms(audio_ms, assumed, mean, weight, rules)
    known = weight * variance + rules.optimism_jobs * (assumed * assumed)
    deviation = np.sqrt(known / (weight + rules.optimism_jobs))
    return _rounded(work_ms + audio_ms * (LATE_DEVIATIONS * deviation) + _busy_ms(work_ms, used, max_jobs, rules))


# --- one job --------------------------------------------------------------------------------------------


@_compiled
def _insert(rows: Rows, scores: Scores, ties: Words, filled: int, row: int, score: np.int64, tie: np.uint64) -> int:
    """Put a node into the best k, ordered by (score, tie, row); returns how many places are filled now."""
    size = len(rows)
    place = filled
    while place > 0:
        above = place - 1
        if scores[above] < score or (scores[above] == score and ties[above] < tie):
            break
        if scores[above] == score and ties[above] == tie and rows[above] < row:
            break
        if place < size:
            rows[place] = rows[above]
            scores[place] = scores[above]
            ties[place] = ties[above]
        place = above
    if place < size:
        rows[place] = row
        scores[place] = score
        ties[place] = tie
    return min(filled + 1, size)


@_compiled
def _look(
    columns: Columns,
    members: Rows,
    start: Int,
    size: Int,
    offset: Int,
    enough: Int,
    job: JobRow,
    needs: Words,
    lists: Rows,
    without_a: int,
    without_b: int,
    fleet: float,
    fleet_all: float,
    rules: Rules,
    top: Top,
    filled: Int,
    removed: Rows,
    obstacles: Rows,
) -> tuple[Int, Int]:
    """Filter members[start:start + size], except two, in a circle from `offset` on until `enough` have passed.

    Nodes that pass go into `top`; returns how many places of it are filled now, and how many nodes passed.
    """
    seen_ms, detached_ms, unreachable_until_ms = columns.seen_ms, columns.detached_ms, columns.unreachable_until_ms
    status, gpus, load_percent = columns.status, columns.gpus, columns.load_percent
    accept_public, tenant, region, tier = columns.accept_public, columns.tenant, columns.region, columns.tier
    installed, ready, marked = columns.installed, columns.ready, columns.marked
    asr, semantic, tts, tts_named = columns.asr, columns.semantic, columns.tts, columns.tts_named
    pairs, pairs_named = columns.pairs, columns.pairs_named
    leases, running, max_jobs, charged = columns.used, columns.running, columns.max_jobs, columns.charged
    speed_pair, speed_mean, speed_variance = columns.speed_pair, columns.speed_mean, columns.speed_variance
    speed_jobs, speed_at_ms = columns.speed_jobs, columns.speed_at_ms
    rows, scores, ties = top.rows, top.scores, top.ties
    is_public, its_tenant, its_region, its_tier = job.public != 0, job.tenant, job.region, job.tier
    services, services_unknown = job.services, job.services_unknown != 0
    asr_filter = _AUTO if job.is_auto != 0 else _ASR
    public_filter = _PUBLIC if is_public else _TENANT
    asr_any, asr_unknown = job.asr_any != 0, job.asr_unknown != 0
    semantic_unknown, tts_unknown, its_pair = job.semantic_unknown != 0, job.tts_unknown != 0, job.speed_pair
    pairs_from, pairs_to, paired, warm, seed = job.pairs_from, job.pairs_to, job.paired, job.warm, job.seed
    excluded_from, excluded_to = job.excluded_from, job.excluded_to
    heard, meant, said = needs[ASR_STAGE, 0], needs[SEMANTIC_STAGE, 0], needs[TTS_STAGE, 0]
    # Most jobs need languages of the first plane only.
    is_wide = asr_any
    for plane in range(1, LANGUAGE_PLANES):
        is_wide |= needs[ASR_STAGE, plane] | needs[SEMANTIC_STAGE, plane] | needs[TTS_STAGE, plane] != np.uint64(0)
    first = np.uint64(0)
    # A public job without a tenant belongs to no tenant.
    has_own = its_tenant != 0 or not is_public
    fresh_ms, grace_ms, timeout_ms = rules.running_fresh_ms, rules.reconnect_grace_ms, rules.heartbeat_timeout_ms
    threshold_percent = rules.resource_threshold_percent
    audio_ms, assumed = _audio_ms(job.audio_ms, rules), _assumed(fleet, fleet_all, rules)
    now_ms, best = rules.now_ms, len(rows)
    is_examining = len(obstacles) > 0
    passed = 0
    for step in range(size):
        place = offset + step
        if place >= size:
            place -= size
        node = members[start + place]
        if node in (without_a, without_b):
            continue
        # Unsigned, so that the compiled code need not check at each access for a negative index.
        row = np.uint64(node)
        age_ms, gone_ms, state = now_ms - seen_ms[row], detached_ms[row], status[row]
        said_running = running[row] if age_ms < fresh_ms else np.int32(0)
        in_use = max(leases[row], said_running) + charged[row]
        hears = (asr[row, first] & heard == heard) & (not asr_unknown)
        means = (semantic[row, first] & meant == meant) & (not semantic_unknown)
        says = (tts[row, first] & said == said) & (not tts_unknown)
        if is_wide:
            has_any = not asr_any
            for plane in range(LANGUAGE_PLANES):
                hears &= asr[row, plane] & needs[ASR_STAGE, plane] == needs[ASR_STAGE, plane]
                has_any |= asr[row, plane] != np.uint64(0)
                means &= semantic[row, plane] & needs[SEMANTIC_STAGE, plane] == needs[SEMANTIC_STAGE, plane]
                says &= tts[row, plane] & needs[TTS_STAGE, plane] == needs[TTS_STAGE, plane]
            hears &= has_any
        if pairs_named[row]:
            index = pairs_from
            while means and index < pairs_to:
                pair = lists[index]
                means = pair >= 0 and pairs[row, pair >> 6] >> np.uint64(pair & 63) & np.uint64(1) != np.uint64(0)
                index += 1
        is_excluded = False
        index = excluded_from
        while not is_excluded and index < excluded_to:
            is_excluded = lists[index] == node
            index += 1
        is_ours = (accept_public[row] != 0) | ((tenant[row] == its_tenant) & has_own)
        is_gone = (gone_ms > 0) & (now_ms - gone_ms >= grace_ms) | (age_ms >= timeout_ms)
        # From the last filter to the first, so that the first one that removes the node is assigned last. Without
        # branches: which filter removes a node is hard to predict, and a misprediction costs more than all tests.
        obstacle = PASSED
        obstacle = _SLOT if in_use >= max_jobs[row] else obstacle
        obstacle = _TTS if (tts_named[row] != 0) & (not says) else obstacle
        obstacle = _PAIR if not means else obstacle
        obstacle = asr_filter if not hears else obstacle
        obstacle = _MODEL if marked[row] & services != np.uint64(0) else obstacle
        obstacle = _READY if ready[row] & services != services else obstacle
        obstacle = _INSTALLED if services_unknown | (installed[row] & services != services) else obstacle
        obstacle = public_filter if not is_ours else obstacle
        obstacle = _RESOURCES if load_percent[row] > threshold_percent else obstacle
        obstacle = _GPU if gpus[row] < 1 else obstacle
        obstacle = _UNREACHABLE if now_ms < unreachable_until_ms[row] else obstacle
        obstacle = _STATUS if state != READY_STATUS else obstacle
        obstacle = _DRAINING if state == DRAINING_STATUS else obstacle
        obstacle = _OFFLINE if (state == OFFLINE_STATUS) | is_gone else obstacle
        obstacle = _EXCLUDED if is_excluded else obstacle
        if is_examining:
            obstacles[row] = obstacle
        if obstacle != PASSED:
            removed[obstacle] += 1
            continue
        passed += 1
        slot = np.uint64(ANY_PAIR_NUMBER)
        for number in range(1, SPEED_SLOTS):
            known = np.uint64(number)
            slot = max(slot, known if speed_pair[row, known] == its_pair else np.uint64(0))
        terms = _price(
            audio_ms,
            assumed,
            _evened(speed_mean[row, slot], fleet if slot > np.uint64(ANY_PAIR_NUMBER) else fleet_all, rules),
            speed_variance[row, slot],
            _weight(speed_jobs[row, slot], speed_at_ms[row, slot], rules),
            in_use,
            max_jobs[row],
            load_percent[row],
            seen_ms[row],
            gone_ms,
            its_region != NOT_ASKED and region[row] != its_region,
            its_tier != NOT_ASKED and tier[row] != its_tier,
            node == warm,
            node == paired,
            rules,
        )
        price_ms = 0.0
        for term in terms:
            price_ms += term
        score = _rounded(price_ms)
        # Most nodes are worse than the best k so far: skip the hash and the insertion.
        if filled < best or score <= scores[best - 1]:
            filled = _insert(rows, scores, ties, filled, node, score, tie_hash(seed, node))
        if passed >= enough:
            break
    return filled, passed


@_compiled
def _lacking(index: PoolIndex, pool: int, job: JobRow) -> int:
    """The filter under which a pool as a whole lacks a service of the job, or PASSED. Reads none of its nodes."""
    services = job.services
    if job.services_unknown != 0 or index.installed[pool] & services != services:
        return _INSTALLED
    return _READY if index.ready[pool] & services != services else PASSED


@_compiled
def _count_out(index: PoolIndex, pool: int, obstacle: int, removed: Rows) -> None:
    """Count the nodes of a pool that lacks a service: ready ones under that, the others under their status."""
    removed[_OFFLINE] += index.by_status[pool, OFFLINE_STATUS]
    removed[_STATUS] += index.by_status[pool, OTHER_STATUS]
    removed[_DRAINING] += index.by_status[pool, DRAINING_STATUS]
    removed[obstacle] += index.by_status[pool, READY_STATUS]


@_compiled
def _find_special(columns: Columns, index: PoolIndex, job: JobRow, pools: Rows, special: Rows) -> int:
    """Put the paired and the warm node into `special`, if the job may use their pools; returns how many they are."""
    found = 0
    special[0] = special[1] = NO_ROW
    for which in range(2):
        row = job.paired if which == 0 else job.warm
        if row < 0 or (which == 1 and row == job.paired):
            continue
        pool = columns.pool[row]
        place = job.pools_from
        while place < job.pools_to and pools[place] != pool:
            place += 1
        if place < job.pools_to and _lacking(index, pool, job) == PASSED:
            special[found] = row
            found += 1
    return found


@_compiled
def _needs_the_same(rows: JobRows, one: int, other: int) -> bool:
    """True if every filter gives the same result for both jobs. Paired and warm nodes affect the score only.

    A job field that a filter reads and this function forgets would refuse one job because of the other; a test of the
    kernel checks each field.
    """
    a, b = rows.jobs[one], rows.jobs[other]
    if a.excluded_from != a.excluded_to or b.excluded_from != b.excluded_to:
        return False
    for stage in range(STAGES):
        for plane in range(LANGUAGE_PLANES):
            if rows.languages[one, stage, plane] != rows.languages[other, stage, plane]:
                return False
    pairs = a.pairs_to - a.pairs_from
    if pairs != b.pairs_to - b.pairs_from:
        return False
    for place in range(pairs):
        if rows.lists[a.pairs_from + place] != rows.lists[b.pairs_from + place]:
            return False
    return bool(
        a.services == b.services
        and a.services_unknown == b.services_unknown
        and a.tenant == b.tenant
        and a.public == b.public
        and a.is_auto == b.is_auto
        and a.asr_any == b.asr_any
        and a.asr_unknown == b.asr_unknown
        and a.semantic_unknown == b.semantic_unknown
        and a.tts_unknown == b.tts_unknown
        and a.pools_from == b.pools_from
        and a.pools_to == b.pools_to
    )


@_compiled
def _is_known_to_be_without(rows: JobRows, number: int, scratch: Scratch, removed: Rows) -> bool:
    """True if an earlier job of the batch had the same needs and no candidate; the counts are then equal too.

    Within a batch, slots only become fewer. Without this every job of an overloaded fleet would scan all of it.
    """
    place = 0
    while place < len(scratch.without) and scratch.without[place] >= 0:
        earlier = scratch.without[place]
        if _needs_the_same(rows, earlier, number):
            for obstacle in range(FILTERS):
                removed[number, obstacle] = removed[earlier, obstacle]
            return True
        place += 1
    return False


@_compiled
def _remember_without(number: int, without: Rows) -> None:
    """Remember a job without a candidate."""
    place = 0
    while place < len(without) and without[place] >= 0:
        place += 1
    if place < len(without):
        without[place] = number


@_compiled
def _choose_one(
    columns: Columns,
    index: PoolIndex,
    job: JobRow,
    needs: Words,
    lists: Rows,
    pools: Rows,
    fleet: float,
    fleet_all: float,
    rules: Rules,
    top: Top,
    scratch: Scratch,
    removed: Rows,
) -> tuple[Int, Int]:
    """Fill `top` from the first pool that has a candidate; returns how many places are filled, and how many passed.

    The paired and the warm node are examined first, wherever the circle begins; it then skips them.
    """
    starts, special, obstacles = index.starts, scratch.special, scratch.obstacles
    is_examining = len(obstacles) > 0
    known = len(starts) - 1
    outside = len(index.members)
    for place in range(job.pools_from, job.pools_to):
        if pools[place] < known:
            outside -= starts[pools[place] + 1] - starts[pools[place]]
    removed[_POOL] += outside
    specials = 0 if is_examining else _find_special(columns, index, job, pools, special)
    filled: Int = np.int64(0)
    passed: Int = np.int64(0)
    for place in range(job.pools_from - 1, job.pools_to):
        is_special = place < job.pools_from
        if is_special:
            members, start, size = special, np.int64(0), np.int64(specials)
        else:
            pool = pools[place]
            members, start, size = index.members, np.int64(0), np.int64(0)
            if pool < known:
                start, size = np.int64(starts[pool]), np.int64(starts[pool + 1] - starts[pool])
        if size == 0:
            continue
        if not (is_special or is_examining):
            lacking = _lacking(index, pools[place], job)
            if lacking != PASSED:
                _count_out(index, pools[place], lacking, removed)
                continue
        filled, here = _look(
            columns,
            members,
            start,
            size,
            np.int64(tie_hash(job.seed, NO_ROW) % np.uint64(size)),
            size if is_special or is_examining else np.int64(max(rules.compared_max - passed, 1)),
            job,
            needs,
            lists,
            NO_ROW if is_special or is_examining else special[0],
            NO_ROW if is_special or is_examining else special[1],
            fleet,
            fleet_all,
            rules,
            top,
            filled,
            removed,
            obstacles,
        )
        passed += here
        if passed > 0 and not (is_special or is_examining):
            break
    return filled, passed


@_compiled
def _price_rows(
    columns: Columns,
    rows: Rows,
    count: int,
    job: JobRow,
    fleet: float,
    fleet_all: float,
    rules: Rules,
    expected: Rows,
    scores: Scores,
    terms: Floats,
    late_ms: Scores,
) -> None:
    """The cost terms of each of the first `count` of `rows` for the job."""
    audio_ms, assumed = _audio_ms(job.audio_ms, rules), _assumed(fleet, fleet_all, rules)
    for place in range(count):
        row = rows[place]
        in_use = columns.used[row]
        if rules.now_ms - columns.seen_ms[row] < rules.running_fresh_ms:
            in_use = max(in_use, columns.running[row])
        in_use += columns.charged[row]
        slot = ANY_PAIR_NUMBER
        for number in range(1, SPEED_SLOTS):
            if columns.speed_pair[row, number] == job.speed_pair:
                slot = number
        mean = _evened(columns.speed_mean[row, slot], fleet if slot > ANY_PAIR_NUMBER else fleet_all, rules)
        variance = columns.speed_variance[row, slot]
        weight = _weight(columns.speed_jobs[row, slot], columns.speed_at_ms[row, slot], rules)
        price = _price(
            audio_ms,
            assumed,
            mean,
            variance,
            weight,
            in_use,
            columns.max_jobs[row],
            columns.load_percent[row],
            columns.seen_ms[row],
            columns.detached_ms[row],
            job.region != NOT_ASKED and columns.region[row] != job.region,
            job.tier != NOT_ASKED and columns.tier[row] != job.tier,
            row == job.warm,
            row == job.paired,
            rules,
        )
        price_ms = 0.0
        for number, term in enumerate(price):
            terms[place, number] = term
            price_ms += term
        scores[place] = _rounded(price_ms)
        expected[place] = columns.used[row] + columns.charged[row]
        late_ms[place] = _late_ms(audio_ms, assumed, mean, variance, weight, in_use, columns.max_jobs[row], rules)


@_entry
def _choose(
    columns: Columns, index: PoolIndex, rows: JobRows, prior: Floats, rules: Rules, choice: Choice, scratch: Scratch
) -> None:
    """Fill `choice`. All memory comes from the caller: compiling numpy's constructors would double the start-up."""
    jobs, lists, pools, charged = rows.jobs, rows.lists, rows.pools, columns.charged
    is_examining = len(scratch.obstacles) > 0
    for number in range(len(jobs)):
        if not is_examining and _is_known_to_be_without(rows, number, scratch, choice.removed):
            continue
        job = jobs[number]
        pair = job.speed_pair
        fleet, fleet_all = prior[pair] if pair >= 0 else -1.0, prior[ANY_PAIR_NUMBER]
        best, scores = choice.rows[number], choice.scores[number]
        needs, top, removed = rows.languages[number], Top(best, scores, scratch.ties), choice.removed[number]
        filled, passed = _choose_one(
            columns, index, job, needs, lists, pools, fleet, fleet_all, rules, top, scratch, removed
        )
        choice.compared[number] = passed
        if is_examining:
            best, filled = index.members, len(index.members)
        expected, terms, late_ms = choice.expected[number], choice.terms[number], choice.late_ms[number]
        _price_rows(columns, best, filled, job, fleet, fleet_all, rules, expected, scores, terms, late_ms)
        if filled > 0 and not is_examining:
            choice.pool[number] = columns.pool[best[0]]
            charged[best[0]] += 1
        elif not is_examining:
            _remember_without(number, scratch.without)
    for number in range(len(jobs)):
        if choice.rows[number, 0] >= 0:
            charged[choice.rows[number, 0]] = 0


# --- for Python -----------------------------------------------------------------------------------------


@lru_cache(_TEMPLATES_MAX)
def _choice_template(jobs: int, best: int) -> Choice:
    return Choice(
        rows=np.full((jobs, best), NO_ROW, dtype=np.int32),
        scores=np.zeros((jobs, best), dtype=np.int64),
        expected=np.zeros((jobs, best), dtype=np.int32),
        terms=np.zeros((jobs, best, len(TERMS)), dtype=np.float64),
        removed=np.zeros((jobs, FILTERS), dtype=np.int32),
        pool=np.full(jobs, NO_POOL, dtype=np.int32),
        compared=np.zeros(jobs, dtype=np.int32),
        late_ms=np.zeros((jobs, best), dtype=np.int64),
    )


@lru_cache(_TEMPLATES_MAX)
def _scratch_template(best: int, examined: int) -> Scratch:
    return Scratch(
        ties=np.zeros(best, dtype=np.uint64),
        special=np.zeros(2, dtype=np.int32),
        without=np.full(_WITHOUT_MAX, NO_ROW, dtype=np.int32),
        obstacles=np.full(examined, _POOL, dtype=np.int32),
    )


def _empty_choice(jobs: int, best: int) -> Choice:
    if jobs * best > _TEMPLATE_CELLS_MAX:
        return _choice_template.__wrapped__(jobs, best)
    arrays: list[Any] = list(_choice_template(jobs, best))
    return Choice(*[array.copy() for array in arrays])


def _scratch(best: int, examined: int = 0) -> Scratch:
    if best + examined > _TEMPLATE_CELLS_MAX:
        return _scratch_template.__wrapped__(best, examined)
    arrays: list[Any] = list(_scratch_template(best, examined))
    return Scratch(*[array.copy() for array in arrays])


def choose(columns: Columns, index: PoolIndex, rows: JobRows, prior: Floats, rules: Rules, best: int) -> Choice:
    """The `best` candidates for each job among the nodes of `index`.

    The first candidate of a job is charged before the next job is placed, so a burst spreads over the nodes.
    `prior`: per pair the speed of the fleet, negative where nothing is known; the first is that of all pairs.
    """
    choice = _empty_choice(len(rows.jobs), best)
    if len(rows.jobs) and len(index.members):
        _choose(columns, index, rows, prior, rules, choice, _scratch(best))
    return choice


def examine(columns: Columns, index: PoolIndex, rows: JobRows, prior: Floats, rules: Rules) -> Examined:
    """The verdict on every node for the one job in `rows`. Scans the whole fleet: for reports and refusals."""
    assert len(rows.jobs) == 1, "one job at a time"
    count = len(index.members)
    if not count:
        return Examined(np.zeros(0, np.int32), np.zeros((0, len(TERMS))), np.zeros(0, np.int64))
    choice, scratch = _empty_choice(1, count), _scratch(count, count)
    _choose(columns, index, rows, prior, rules, choice, scratch)
    # The kernel priced the nodes in the order of the index.
    order = np.argsort(index.members)
    return Examined(scratch.obstacles, choice.terms[0][order], choice.scores[0][order])
