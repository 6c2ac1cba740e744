"""The kernel: hard filters, score, best k and in-batch charging, compiled by numba. See docs/adr/0005-kernel.md.

Owns the layout of the columns and of a job's row, and nothing else: no names, no ids, no clock. Its slow and obvious
twin is tests/unit/naive_kernel.py; hypothesis holds the two together. To add a filter: a member in filters.py, a
line in `_standing_obstacle` or `_job_obstacle`, the same in the twin. To add to the score: `_standing_ms` or `_score`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from selector.core.filters import Filter

F = TypeVar("F", bound=Callable[..., Any])
Words = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int32]
Scores = npt.NDArray[np.int64]
#: One element of a JOB_ROW array; numpy has no type for its fields.
JobRow = Any

#: 4 x 64 languages. Services fit one word: there are about ten.
LANGUAGE_PLANES: Final = 4
SERVICES_MAX: Final = 64
FILTERS: Final = len(Filter)

NOT_ASKED: Final = -1
NO_ROW: Final = -1
READY_STATUS: Final = 1
PREDICTED_MS: Final = 0
LEAST_CONNECTIONS: Final = 1

# Filters as plain numbers: numba folds them into the code.
_PASSED: Final = -1
_OFFLINE: Final = int(Filter.OFFLINE)
_STATUS: Final = int(Filter.STATUS)
_UNREACHABLE: Final = int(Filter.UNREACHABLE)
_GPU: Final = int(Filter.GPU)
_RESOURCES: Final = int(Filter.RESOURCES)
_PUBLIC: Final = int(Filter.PUBLIC)
_TENANT: Final = int(Filter.TENANT)
_INSTALLED: Final = int(Filter.INSTALLED)
_READY: Final = int(Filter.READY)
_LANGUAGE: Final = int(Filter.LANGUAGE)
_EXCLUDED: Final = int(Filter.EXCLUDED)
_SLOT: Final = int(Filter.SLOT)


class Columns(NamedTuple):
    """All nodes, one array per fact, one place per node. Language sets: one plane of 64 languages per first index."""

    seen_ms: npt.NDArray[np.int64]  # last heartbeat, on the caller's clock
    unreachable_until_ms: npt.NDArray[np.int64]
    status: npt.NDArray[np.uint8]  # READY_STATUS or not
    gpus: npt.NDArray[np.int32]
    load_percent: npt.NDArray[np.float64]  # the highest of cpu, gpu and memory
    accept_public: npt.NDArray[np.uint8]
    tenant: npt.NDArray[np.int32]
    installed: npt.NDArray[np.uint64]
    ready: npt.NDArray[np.uint64]
    asr: npt.NDArray[np.uint64]
    semantic: npt.NDArray[np.uint64]
    tts: npt.NDArray[np.uint64]
    tts_named: npt.NDArray[np.uint8]  # 0: the node did not say, any target its semantic stage can do
    used: npt.NDArray[np.int32]  # leases in Redis
    running: npt.NDArray[np.int32]  # what the node said in its heartbeat
    max_jobs: npt.NDArray[np.int32]


#: One job. Languages are numbers of the vocabulary, NOT_ASKED, or vocabulary.UNKNOWN, which matches nothing.
JOB_ROW: Final = np.dtype([
    ("public", np.uint8),
    ("tenant", np.int32),
    ("services", np.uint64),
    ("services_unknown", np.uint8),
    ("asr_any", np.uint8),  # src "auto" with no hint: any recogniser will do
    ("asr_a", np.int32),
    ("asr_b", np.int32),
    ("semantic_a", np.int32),
    ("semantic_b", np.int32),
    ("tts_a", np.int32),
    ("tts_b", np.int32),
    ("preferred", np.int32),  # row or NO_ROW
    ("excluded_from", np.int32),  # its part of the `excluded` array
    ("excluded_to", np.int32),
    ("seed", np.uint64),  # breaks ties; equal nodes share the load because jobs have different seeds
])  # fmt: skip


class Rules(NamedTuple):
    """What holds for a whole batch: now, limits, and the prices of the score in milliseconds."""

    now_ms: int
    heartbeat_timeout_ms: int
    heartbeat_interval_ms: int
    #: A heartbeat's running_jobs counts beside the leases for this long.
    running_fresh_ms: int
    resource_threshold_percent: float
    strategy: int = PREDICTED_MS
    #: What a job takes longer on a node with every slot in use than on an idle one.
    busy_ms: float = 300.0
    #: The same for full cpu, gpu or memory; grows with the square, so that noise at rest costs nothing.
    load_ms: float = 200.0
    #: Per ms of age beyond the heartbeat interval; no cliff, only a slope.
    stale_ms_per_ms: float = 0.005
    #: What a warm session saves.
    preferred_ms: float = 50.0


class Choice(NamedTuple):
    """Per job: the best rows (NO_ROW fills up), their scores, and how many nodes each filter removed."""

    rows: npt.NDArray[np.int32]
    scores: npt.NDArray[np.int64]
    removed: npt.NDArray[np.int32]


def _compiled(function: F) -> F:
    """The one place with numba's options.

    nopython is the default. cache: a selector must be ready in seconds, and compiling takes several; the files go
    beside this one (selector/warm.py finds another place when that is read-only). No fastmath: the naive twin must
    give the very same numbers. No parallel: a batch takes less time than waking threads, and the other cores have
    selectors too.
    """
    options: dict[str, Any] = {"cache": True, "error_model": "numpy"}
    try:
        return numba.njit(**options)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        # No directory at all can be written: compile at each start rather than not start.
        return numba.njit(**(options | {"cache": False}))(function)  # type: ignore[no-any-return]


@_compiled
def _has(planes: Words, row: int, language: int) -> bool:
    """True if the set at `row` holds `language`; NOT_ASKED is in every set, UNKNOWN in none."""
    if language < 0:
        return language == NOT_ASKED
    word = planes[language >> 6, row]
    return bool((word >> np.uint64(language & 63)) & np.uint64(1) != np.uint64(0))


@_compiled
def _is_empty(planes: Words, row: int) -> bool:
    joined = np.uint64(0)
    for plane in range(planes.shape[0]):
        joined |= planes[plane, row]
    return bool(joined == np.uint64(0))


@_compiled
def tie_hash(seed: np.uint64, row: int) -> np.uint64:
    """Equal scores are ordered by this: 64 well mixed bits (the finalizer of splitmix64)."""
    mixed = seed + np.uint64(row + 1) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@_compiled
def _standing_obstacle(columns: Columns, row: int, rules: Rules) -> int:
    """The first filter that keeps this node from any job, or _PASSED."""
    if rules.now_ms - columns.seen_ms[row] >= rules.heartbeat_timeout_ms:
        return _OFFLINE
    if columns.status[row] != READY_STATUS:
        return _STATUS
    if rules.now_ms < columns.unreachable_until_ms[row]:
        return _UNREACHABLE
    if columns.gpus[row] < 1:
        return _GPU
    if columns.load_percent[row] > rules.resource_threshold_percent:
        return _RESOURCES
    return _PASSED


@_compiled
def _speaks(columns: Columns, row: int, job: JobRow) -> bool:
    """True if the node can take the job's languages in and give them out."""
    if job.asr_any and _is_empty(columns.asr, row):
        return False
    if not (_has(columns.asr, row, job.asr_a) and _has(columns.asr, row, job.asr_b)):
        return False
    if not (_has(columns.semantic, row, job.semantic_a) and _has(columns.semantic, row, job.semantic_b)):
        return False
    if columns.tts_named[row]:
        return _has(columns.tts, row, job.tts_a) and _has(columns.tts, row, job.tts_b)
    return True


@_compiled
def _job_obstacle(columns: Columns, row: int, job: JobRow, excluded: Rows, used: int) -> int:
    """The first filter that keeps this node from this job, or _PASSED."""
    if not columns.accept_public[row]:
        if job.public:
            return _PUBLIC
        if columns.tenant[row] != job.tenant:
            return _TENANT
    if job.services_unknown or columns.installed[row] & job.services != job.services:
        return _INSTALLED
    if columns.ready[row] & job.services != job.services:
        return _READY
    if not _speaks(columns, row, job):
        return _LANGUAGE
    for place in range(job.excluded_from, job.excluded_to):
        if excluded[place] == row:
            return _EXCLUDED
    if used >= columns.max_jobs[row]:
        return _SLOT
    return _PASSED


@_compiled
def _standing_ms(columns: Columns, row: int, rules: Rules) -> float:
    """The part of the score that neither the job nor the batch changes."""
    load = columns.load_percent[row] / 100.0
    late_ms = max(0, rules.now_ms - columns.seen_ms[row] - rules.heartbeat_interval_ms)
    return float(rules.load_ms * load * load + rules.stale_ms_per_ms * late_ms)


@_compiled
def _score(standing_ms: float, used: int, max_jobs: int, is_preferred: bool, rules: Rules) -> np.int64:
    """Predicted milliseconds, whole ones: nodes that differ by less are equals and share the load. Lowest wins."""
    if rules.strategy == LEAST_CONNECTIONS:
        return np.int64(used - (1 if is_preferred else 0))
    total = standing_ms + rules.busy_ms * used / max_jobs
    if is_preferred:
        total -= rules.preferred_ms
    return np.int64(np.floor(total + 0.5))


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
def _choose(
    columns: Columns, count: int, jobs: npt.NDArray[np.void], excluded: Rows, rules: Rules, best: int
) -> tuple[Rows, Scores, Rows]:
    rows = np.full((len(jobs), best), NO_ROW, dtype=np.int32)
    scores = np.zeros((len(jobs), best), dtype=np.int64)
    removed = np.zeros((len(jobs), FILTERS), dtype=np.int32)
    ties = np.zeros(best, dtype=np.uint64)

    # Once per batch: who may work at all, and what is fixed of their scores.
    standing_removed = np.zeros(FILTERS, dtype=np.int32)
    standing = np.empty(count, dtype=np.int32)
    standing_ms = np.empty(count, dtype=np.float64)
    used = np.empty(count, dtype=np.int32)
    standing_count = 0
    for row in range(count):
        obstacle = _standing_obstacle(columns, row, rules)
        if obstacle != _PASSED:
            standing_removed[obstacle] += 1
            continue
        standing[standing_count] = row
        standing_ms[standing_count] = _standing_ms(columns, row, rules)
        in_use = columns.used[row]
        if rules.now_ms - columns.seen_ms[row] < rules.running_fresh_ms:
            in_use = max(in_use, columns.running[row])
        used[standing_count] = in_use
        standing_count += 1

    for index in range(len(jobs)):
        job = jobs[index]
        removed[index, :] = standing_removed
        filled = 0
        first_place = -1
        for place in range(standing_count):
            row = standing[place]
            obstacle = _job_obstacle(columns, row, job, excluded, used[place])
            if obstacle != _PASSED:
                removed[index, obstacle] += 1
                continue
            score = _score(standing_ms[place], used[place], columns.max_jobs[row], row == job.preferred, rules)
            # Most nodes are worse than what is already kept: spare them the hash and the insertion.
            if filled == best and score > scores[index, best - 1]:
                continue
            tie = tie_hash(job.seed, row)
            filled = _insert(rows[index], scores[index], ties, filled, row, score, tie)
            if rows[index, 0] == row:
                first_place = place
        if first_place >= 0:
            used[first_place] += 1
    return rows, scores, removed


def choose(columns: Columns, count: int, jobs: npt.NDArray[np.void], excluded: Rows, rules: Rules, best: int) -> Choice:
    """The `best` candidates for each of `jobs` among the first `count` nodes.

    The first pick of a job is charged before the next job looks, so a burst spreads instead of piling on one node.
    """
    return Choice(*_choose(columns, count, jobs, excluded, rules, best))
