"""Explanation of a decision: a plain record, and the record as sentences.

Knows no kernel, no columns and no clock: it gets numbers with their names. Operators read the sentences; programs read
the record (docs/choosing.md), never the sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from mesh.words import DispatchOutcome

#: Cost term -> why a node lost by it.
_LOST_BY: Final[Mapping[str, str]] = {
    "work": "it is slower with this language pair",
    "risk": "its speed varies more",
    "busy": "it is busier",
    "load": "its machine is more loaded",
    "stale": "its last heartbeat is older",
    "detached": "its socket is closed",
    "region": "it is in another region",
    "tier": "its GPU is of another tier",
    "warm": "it did not have the session's last utterance",
    "paired": "the session is not paired with it",
}
#: Reason of the commit -> why the candidate was rejected.
_REJECTED: Final[Mapping[str, str]] = {
    "moved": "others had just given it a job",
    "full": "others had just taken its last slot",
    "gone": "it had just gone",
    "stale": "it had been silent for too long",
    "not_ready": "it had just ceased to be ready",
    "draining": "it had just begun to drain",
}
TAKEN: Final = "taken"


class Candidate(NamedTuple):
    """A candidate, and the commit's reason for rejecting it ("" = it was not tried)."""

    node_id: str
    score_ms: int
    terms: Mapping[str, float]
    #: Slots in use that the choice assumed, and that the commit found (-1: unknown).
    expected: int
    answer: str = ""
    found: int = -1


class Round(NamedTuple):
    """One choice: number of compared nodes, the candidates, and how many nodes each filter removed."""

    compared: int
    pool: str
    removed: Mapping[str, int]
    candidates: Sequence[Candidate]


class Decision(NamedTuple):
    """Everything about one attempt to place a request."""

    request_id: str
    attempt: int
    session_id: str
    trace_id: str
    at_ms: int
    outcome: str
    job_id: str
    node_id: str
    pair: str
    audio_ms: int
    waited_ms: int
    snapshot_version: int
    weights_version: int
    seed: int
    strategy: str
    pool_order: Sequence[str]
    rounds: Sequence[Round]
    #: Of a refusal: its reason, the nearest miss, and when to come again.
    reason: str = ""
    nearest: str = ""
    retry_after_ms: int = 0


def record_of(decision: Decision) -> dict[str, Any]:
    """The decision as JSON would have it, with `words`."""
    record = decision._asdict()
    record["pool_order"] = list(decision.pool_order)
    record["rounds"] = [
        {
            "compared": one.compared,
            "pool": one.pool,
            "removed": dict(one.removed),
            "candidates": [
                {**candidate._asdict(), "terms": {name: round(ms, 3) for name, ms in candidate.terms.items()}}
                for candidate in one.candidates
            ],
        }
        for one in decision.rounds
    ]
    record["words"] = words_of(decision)
    return record


def words_of(decision: Decision) -> list[str]:
    """The decision as sentences."""
    words = [_outcome(decision)]
    for number, one in enumerate(decision.rounds[:-1], 1):
        words.append(_passed_over(number, one.candidates))
    if decision.rounds:
        last = decision.rounds[-1]
        words += _rivals(decision, last.candidates)
        words += _not_considered(last)
    return [sentence for sentence in words if sentence]


def _outcome(decision: Decision) -> str:
    waited = f" after {decision.waited_ms} ms in the wait queue" if decision.waited_ms else ""
    if decision.outcome == DispatchOutcome.REFUSED:
        words = f"Nobody was chosen{waited}: {decision.reason or 'no node'}."
        if decision.nearest:
            words += f" Nearest miss: {decision.nearest}."
        if decision.retry_after_ms:
            words += f" It may try again in {decision.retry_after_ms} ms."
        return words
    chosen = _chosen(decision)
    if decision.outcome == DispatchOutcome.BOUND:
        return f"The request was placed before, on {decision.node_id}."
    if chosen is None:
        return f"Nobody was chosen{waited}: {decision.outcome}."
    if decision.strategy == "least_connections":
        return f"{chosen.node_id} was chosen{waited}: {chosen.score_ms} jobs, the fewest."
    return f"{chosen.node_id} was chosen{waited}: {chosen.score_ms} ms predicted ({_sum(decision, chosen.terms)})."


def _chosen(decision: Decision) -> Candidate | None:
    if not decision.rounds:
        return None
    return next((one for one in decision.rounds[-1].candidates if one.node_id == decision.node_id), None)


def _sum(decision: Decision, terms: Mapping[str, float]) -> str:
    """The terms that count, the work with its factors."""
    parts = []
    for name, ms in terms.items():
        if round(ms) == 0 and name != "work":
            continue
        if name == "work" and decision.audio_ms > 0:
            parts.append(f"audio {decision.audio_ms} ms x {ms / decision.audio_ms:.2f} = {ms:.0f}")
        else:
            parts.append(f"{name} {ms:.0f}")
    return ", ".join(parts)


def _passed_over(number: int, candidates: Sequence[Candidate]) -> str:
    """A round whose candidates were all rejected."""
    told = [f"{one.node_id}: {_REJECTED.get(one.answer, one.answer or 'not asked')}" for one in candidates]
    return f"Choice {number} came to nothing: {'; '.join(told)}." if told else ""


def _rivals(decision: Decision, candidates: Sequence[Candidate]) -> list[str]:
    chosen = _chosen(decision)
    words = []
    for one in candidates:
        if chosen is None or one.node_id == chosen.node_id:
            continue
        if one.answer in _REJECTED:
            found = f" ({one.found} slots in use, not {one.expected})" if one.found > one.expected >= 0 else ""
            better_ms, why = chosen.score_ms - one.score_ms, _REJECTED[one.answer]
            words.append(f"{one.node_id} was better by {better_ms} ms, but {why}{found}.")
        elif one.score_ms == chosen.score_ms:
            words.append(f"{one.node_id} was as good; chance decided.")
        else:
            unit = "jobs" if decision.strategy == "least_connections" else "ms"
            words.append(f"{one.node_id} lost by {one.score_ms - chosen.score_ms} {unit}{_why(chosen, one)}.")
    return words


def _why(chosen: Candidate, other: Candidate) -> str:
    """The term by which the other one lost most."""
    worst, most = "", 0.5
    for name, ms in other.terms.items():
        more = ms - chosen.terms.get(name, 0.0)
        if more > most:
            worst, most = name, more
    if not worst:
        return ""
    return f": {_LOST_BY.get(worst, worst)} ({worst} {other.terms[worst]:.0f})"


def _not_considered(last: Round) -> list[str]:
    total = sum(last.removed.values())
    words = []
    if total:
        reasons = ", ".join(f"{count} {name}" for name, count in sorted(last.removed.items(), key=lambda one: -one[1]))
        words.append(f"{total} {'node was' if total == 1 else 'nodes were'} not considered: {reasons}.")
    if last.compared:
        pool = f" of pool {last.pool}" if last.pool else ""
        words.append(f"{last.compared} {'node' if last.compared == 1 else 'nodes'}{pool} could have taken it.")
    return words
