"""The kernel: hard filters, score, best k and in-batch charging, compiled by numba. See docs/adr/0005-kernel.md.

Owns the layout of the columns and of a job's row, and nothing else: no names, no ids, no clock. Its slow and obvious
twin is tests/unit/naive_kernel.py; hypothesis holds the two together. To add a filter: a member in filters.py, a
line in `_standing_obstacle` or `_choose_one`, the same in the twin. To add to the score: `_standing_ms`, `_price_ms`.

Longer than other files on purpose: numba keeps compiled code until this very file changes, so everything that it
compiles in (layout, constants, rules) must be here.
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
Jobs = npt.NDArray[np.void]
#: One element of a JOB_ROW array; numpy has no type for its fields.
JobRow = Any

#: 4 x 64 languages. Services fit one word: there are about ten.
LANGUAGE_PLANES: Final = 4
SERVICES_MAX: Final = 64

NOT_ASKED: Final = -1
NO_ROW: Final = -1
READY_STATUS: Final = 1
PREDICTED_MS: Final = 0
LEAST_CONNECTIONS: Final = 1

# Filters as plain numbers. Written out, because compiled code is kept on disk until this very file changes: numbers
# taken over from filters.py would stay the old ones.
_PASSED: Final = -1
_OFFLINE, _STATUS, _UNREACHABLE, _GPU, _RESOURCES = 0, 1, 2, 3, 4
_PUBLIC, _TENANT, _INSTALLED, _READY, _LANGUAGE, _EXCLUDED, _SLOT = 5, 6, 7, 8, 9, 10, 11
FILTERS: Final = 12
assert [*Filter] == [
    _OFFLINE, _STATUS, _UNREACHABLE, _GPU, _RESOURCES, _PUBLIC, _TENANT, _INSTALLED, _READY, _LANGUAGE, _EXCLUDED, _SLOT
]  # fmt: skip
assert len(Filter) == FILTERS


# numba counts references of arrays each time a tuple of them is passed or a field is read, about 10 ns a time. So the
# compiled functions take the tuples once per batch or job, read the fields into locals before the loop over the
# nodes, and call only functions of plain numbers inside it.


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


class Batch(NamedTuple):
    """Scratch of one batch: the nodes that may work at all, with the charges of earlier jobs of the batch."""

    rows: Rows
    used: Rows
    standing_ms: npt.NDArray[np.float64]
    price_ms: npt.NDArray[np.float64]


class Top(NamedTuple):
    """The best nodes so far for one job, ordered by (score, tie, row)."""

    rows: Rows
    scores: Scores
    ties: Words


class Choice(NamedTuple):
    """Per job: the best rows (NO_ROW fills up), their scores, and how many nodes each filter removed."""

    rows: npt.NDArray[np.int32]
    scores: npt.NDArray[np.int64]
    removed: npt.NDArray[np.int32]


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

    A selector must be ready in seconds, and compiling takes several. The files go beside this one; selector/warm.py
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


@_compiled
def _standing_obstacle(
    seen_ms: int, status: int, unreachable_until_ms: int, gpus: int, load_percent: float, rules: Rules
) -> int:
    """The first filter that keeps a node from any job, or _PASSED."""
    if rules.now_ms - seen_ms >= rules.heartbeat_timeout_ms:
        return _OFFLINE
    if status != READY_STATUS:
        return _STATUS
    if rules.now_ms < unreachable_until_ms:
        return _UNREACHABLE
    if gpus < 1:
        return _GPU
    if load_percent > rules.resource_threshold_percent:
        return _RESOURCES
    return _PASSED


@_compiled
def _standing_ms(seen_ms: int, load_percent: float, rules: Rules) -> float:
    """The part of the score that neither the job nor the batch changes."""
    load = load_percent / 100.0
    late_ms = max(0, rules.now_ms - seen_ms - rules.heartbeat_interval_ms)
    return float(rules.load_ms * load * load + rules.stale_ms_per_ms * late_ms)


@_compiled
def _price_ms(standing_ms: float, used: int, max_jobs: int, rules: Rules) -> float:
    """The score of a node for a job that does not prefer it, before rounding."""
    if rules.strategy == LEAST_CONNECTIONS:
        return float(used)
    return standing_ms + rules.busy_ms * used / max_jobs


@_compiled
def _score(price_ms: float, is_preferred: bool, rules: Rules) -> np.int64:
    """Predicted milliseconds, whole ones: nodes that differ by less are equals and share the load. Lowest wins."""
    if is_preferred:
        price_ms -= 1.0 if rules.strategy == LEAST_CONNECTIONS else rules.preferred_ms
    return np.int64(np.floor(price_ms + 0.5))


@_compiled
def _plane(planes: Words, language: int) -> Words:
    """The 64 languages among which `language` is."""
    plane: Words = planes[max(language, 0) >> 6]
    return plane


@_compiled
def _bit(language: int) -> np.uint64:
    """The bit of a language in its plane. None for NOT_ASKED: every set holds all of nothing."""
    return np.uint64(0) if language < 0 else np.uint64(1) << np.uint64(language & 63)


@_compiled
def _is_empty(planes: Words, row: int) -> bool:
    joined = np.uint64(0)
    for plane in range(planes.shape[0]):
        joined |= planes[plane, row]
    return bool(joined == np.uint64(0))


@_compiled
def _is_among(rows: Rows, start: int, stop: int, row: int) -> bool:
    found = False
    for place in range(start, stop):
        found = found or rows[place] == row
    return found


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
def _stand(columns: Columns, count: int, rules: Rules, batch: Batch, removed: Rows) -> int:
    """Find the nodes that may work at all and what is fixed of their prices; returns how many."""
    seen_ms, status, gpus, load_percent = columns.seen_ms, columns.status, columns.gpus, columns.load_percent
    unreachable_until_ms, leases, running = columns.unreachable_until_ms, columns.used, columns.running
    max_jobs = columns.max_jobs
    rows, used, standing_ms, price_ms = batch.rows, batch.used, batch.standing_ms, batch.price_ms
    standing = 0
    for row in range(count):
        obstacle = _standing_obstacle(
            seen_ms[row], status[row], unreachable_until_ms[row], gpus[row], load_percent[row], rules
        )
        if obstacle != _PASSED:
            removed[obstacle] += 1
            continue
        in_use = leases[row]
        if rules.now_ms - seen_ms[row] < rules.running_fresh_ms:
            in_use = max(in_use, running[row])
        rows[standing] = row
        used[standing] = in_use
        standing_ms[standing] = _standing_ms(seen_ms[row], load_percent[row], rules)
        price_ms[standing] = _price_ms(standing_ms[standing], in_use, max_jobs[row], rules)
        standing += 1
    return standing


@_compiled
def _choose_one(
    columns: Columns, batch: Batch, standing: int, job: JobRow, excluded: Rows, rules: Rules, top: Top, removed: Rows
) -> int:
    """Fill `top` with the best nodes for one job; returns the place of the first in `batch`, or -1."""
    accept_public, tenant, installed, ready = columns.accept_public, columns.tenant, columns.installed, columns.ready
    asr, tts_named, max_jobs = columns.asr, columns.tts_named, columns.max_jobs
    batch_rows, used, price_ms = batch.rows, batch.used, batch.price_ms
    rows, scores, ties = top.rows, top.scores, top.ties
    hears_a, hears_b = _plane(asr, job.asr_a), _plane(asr, job.asr_b)
    asr_a, asr_b = _bit(job.asr_a), _bit(job.asr_b)
    means_a, means_b = _plane(columns.semantic, job.semantic_a), _plane(columns.semantic, job.semantic_b)
    semantic_a, semantic_b = _bit(job.semantic_a), _bit(job.semantic_b)
    says_a, says_b = _plane(columns.tts, job.tts_a), _plane(columns.tts, job.tts_b)
    tts_a, tts_b = _bit(job.tts_a), _bit(job.tts_b)
    lowest = min(job.asr_a, job.asr_b, job.semantic_a, job.semantic_b, job.tts_a, job.tts_b)
    unheard_of = lowest < NOT_ASKED
    is_public, its_tenant, services, services_unknown = job.public, job.tenant, job.services, job.services_unknown
    any_asr, preferred, seed = job.asr_any, job.preferred, job.seed
    has_excluded = job.excluded_to > job.excluded_from
    best = len(rows)
    filled = 0
    first = -1
    for place in range(standing):
        row = batch_rows[place]
        if not accept_public[row] and (is_public or tenant[row] != its_tenant):
            removed[_PUBLIC if is_public else _TENANT] += 1
            continue
        if services_unknown or installed[row] & services != services:
            removed[_INSTALLED] += 1
            continue
        if ready[row] & services != services:
            removed[_READY] += 1
            continue
        speaks = (
            hears_a[row] & asr_a == asr_a
            and hears_b[row] & asr_b == asr_b
            and means_a[row] & semantic_a == semantic_a
            and means_b[row] & semantic_b == semantic_b
            and (not tts_named[row] or (says_a[row] & tts_a == tts_a and says_b[row] & tts_b == tts_b))
        )
        if unheard_of or not speaks or (any_asr and _is_empty(asr, row)):
            removed[_LANGUAGE] += 1
            continue
        if has_excluded and _is_among(excluded, job.excluded_from, job.excluded_to, row):
            removed[_EXCLUDED] += 1
            continue
        if used[place] >= max_jobs[row]:
            removed[_SLOT] += 1
            continue
        score = _score(price_ms[place], row == preferred, rules)
        # Most nodes are worse than what is already kept: spare them the hash and the insertion.
        if filled == best and score > scores[best - 1]:
            continue
        filled = _insert(rows, scores, ties, filled, row, score, tie_hash(seed, row))
        if rows[0] == row:
            first = place
    return first


@_entry
def _choose(
    columns: Columns, count: int, jobs: Jobs, excluded: Rows, rules: Rules, batch: Batch, choice: Choice, ties: Words
) -> None:
    """Fill `choice`. All memory comes from the caller: compiling numpy's constructors would double the start-up."""
    removed = choice.removed
    # The nodes removed from every job are counted in the first job's place, then copied to the others.
    standing = _stand(columns, count, rules, batch, removed[0])
    for index in range(1, len(jobs)):
        for place in range(FILTERS):
            removed[index, place] = removed[0, place]
    for index in range(len(jobs)):
        top = Top(choice.rows[index], choice.scores[index], ties)
        first = _choose_one(columns, batch, standing, jobs[index], excluded, rules, top, removed[index])
        if first >= 0:
            batch.used[first] += 1
            batch.price_ms[first] = _price_ms(
                batch.standing_ms[first], batch.used[first], columns.max_jobs[batch.rows[first]], rules
            )


def choose(columns: Columns, count: int, jobs: Jobs, excluded: Rows, rules: Rules, best: int) -> Choice:
    """The `best` candidates for each of `jobs` among the first `count` nodes.

    The first pick of a job is charged before the next job looks, so a burst spreads instead of piling on one node.
    """
    choice = Choice(
        rows=np.full((len(jobs), best), NO_ROW, dtype=np.int32),
        scores=np.zeros((len(jobs), best), dtype=np.int64),
        removed=np.zeros((len(jobs), FILTERS), dtype=np.int32),
    )
    if len(jobs) and count:
        batch = Batch(
            rows=np.empty(count, dtype=np.int32),
            used=np.empty(count, dtype=np.int32),
            standing_ms=np.empty(count, dtype=np.float64),
            price_ms=np.empty(count, dtype=np.float64),
        )
        _choose(columns, count, jobs, excluded, rules, batch, choice, np.zeros(best, dtype=np.uint64))
    return choice
