"""Decision log: why each request was placed or refused. Bounded; cheap to write, formatted only on a query.

While a job is placed only references are stored: to the arrays of its batch (which the recording holds anyway) and to
its frame. A record is evicted with the batch that was the newest when it ended, or when there are too many.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from lua.store.types.commits import Committed
from mesh import clock
from mesh.config import Config
from mesh.config.weights import Weights
from mesh.frames import Dispatch, Refused, pair_of
from mesh.words import DispatchOutcome
from selector.core.filters import removed_by_name
from selector.core.job_rows import seed_of
from selector.core.kernel import TERMS, Choice, Floats, JobRows, Rules
from selector.core.node_table import NodeTable
from selector.operators.core import explain
from selector.operators.core.recorder import Recorder
from selector.operators.core.recording_format import pack
from selector.placement.placement import Placement, PlacementRound

#: Approximate size of a record without its batch.
RECORD_BYTES: Final = 1_024
#: Bytes of a message besides the recording in it.
MARGIN_BYTES: Final = 1_024


class _LoggedDecision(NamedTuple):
    """The record of one attempt."""

    dispatch: Dispatch
    outcome: str
    job_id: str
    node_id: str
    at_ms: int
    waited_ms: int
    pool_order: tuple[str, ...]
    removed: Sequence[int]
    rounds: Sequence[PlacementRound]
    refused: Refused | None
    #: The newest batch when it ended.
    newest: int


class DecisionLog:
    """The records of one selector, and the recording behind them."""

    def __init__(self, config: Config) -> None:
        self._records_max = config.selector.decisions_kept
        self._packed_max = config.link.message_bytes_max - MARGIN_BYTES
        self._recorder = Recorder(config.selector.decisions_kept, config.selector.decisions_bytes_max)
        #: (request, attempt) -> record, the oldest first.
        self._records: OrderedDict[tuple[str, int], _LoggedDecision] = OrderedDict()
        #: Request or job -> its latest record.
        self._by_name: dict[str, tuple[str, int]] = {}

    def __len__(self) -> int:
        return len(self._records)

    # --- while a job is placed --------------------------------------------------------------------------

    def note(
        self,
        placements: Sequence[Placement],
        table: NodeTable,
        rows: JobRows,
        prior: Floats,
        rules: Rules,
        choice: Choice,
        weights: Weights,
        weights_version: int,
    ) -> None:
        """Record the choice for these placements; must precede any other write into the table."""
        version = {"at_ms": clock.wall_ms(), "weights_version": weights_version}
        batch = self._recorder.note(table, rows, prior, rules, choice, weights=weights, **version)
        evicted = self._recorder.trim(len(self._records) * RECORD_BYTES)
        if evicted:
            self._evict_until(evicted[-1].number)
        pools = choice.pool.tolist()
        for place, placement in enumerate(placements):
            pool = table.pools.string(pools[place]) if placement.pools is not None and placement.candidates else ""
            placement.rounds.append(PlacementRound(batch, place, pool, placement.candidates))

    def end(
        self,
        placement: Placement,
        outcome: str,
        *,
        answer: Committed | None = None,
        refused: Refused | None = None,
        waited_ms: int = 0,
    ) -> None:
        """An attempt ended: placed, found placed, refused, or unknown."""
        dispatch = placement.dispatch
        key = (dispatch.request_id, dispatch.attempt)
        if key in self._records:
            if outcome == DispatchOutcome.BOUND:
                return  # a retry: the record of the placement itself is more detailed
            self._evict(key)
        job_id, node_id = (answer.job_id, answer.node_id) if answer is not None else ("", "")
        order = placement.pools.order if placement.pools is not None else ()
        self._records[key] = _LoggedDecision(
            dispatch=dispatch,
            outcome=outcome,
            job_id=job_id,
            node_id=node_id,
            at_ms=clock.wall_ms(),
            waited_ms=waited_ms,
            pool_order=order,
            removed=placement.removed,
            rounds=tuple(placement.rounds),
            refused=refused,
            newest=self._recorder.newest,
        )
        self._by_name[dispatch.request_id] = key
        if job_id:
            self._by_name[job_id] = key
        if len(self._records) > self._records_max:
            self._evict(next(iter(self._records)))

    def _evict_until(self, batch: int) -> None:
        """Evict the records that ended before or with this batch."""
        while self._records:
            key, record = next(iter(self._records.items()))
            if record.newest > batch:
                return
            self._evict(key)

    def _evict(self, key: tuple[str, int]) -> None:
        record = self._records.pop(key, None)
        if record is not None:
            for name in (record.dispatch.request_id, record.job_id):
                if self._by_name.get(name) == key:
                    del self._by_name[name]

    # --- for operators ------------------------------------------------------------------------------------

    def find(self, name: str) -> dict[str, Any] | None:
        """The record of a job or request, with its text; None if it is unknown or evicted."""
        key = self._by_name.get(name)
        return None if key is None else explain.record_of(_decision(self._records[key]))

    async def recording(self) -> bytes:
        """The latest recorded choices that fit one message, as bytes; b"" before the first. Runs in a thread."""
        recording = self._recorder.taken()
        return b"" if recording is None else await asyncio.to_thread(pack, recording, self._packed_max)


def _decision(record: _LoggedDecision) -> explain.Decision:
    dispatch, refused = record.dispatch, record.refused
    last = record.rounds[-1].batch if record.rounds else None
    rounds = [_round(chosen, record.node_id) for chosen in record.rounds]
    if not rounds:
        rounds = [explain.Round(0, "", removed_by_name(record.removed), [])]
    return explain.Decision(
        request_id=dispatch.request_id,
        attempt=dispatch.attempt,
        session_id=dispatch.session_id,
        trace_id=dispatch.trace_id,
        at_ms=record.at_ms,
        outcome=record.outcome,
        job_id=record.job_id,
        node_id=record.node_id,
        pair=pair_of(dispatch.src_lang, dispatch.tgt_lang),
        audio_ms=dispatch.audio_ms,
        waited_ms=record.waited_ms,
        snapshot_version=last.snapshot_version if last else 0,
        weights_version=last.weights_version if last else 0,
        seed=seed_of(dispatch),
        strategy=last.weights.strategy if last else "",
        pool_order=record.pool_order,
        rounds=rounds,
        reason=refused.reason if refused else "",
        nearest=f"{refused.nearest_node} {refused.nearest}" if refused and refused.nearest_node else "",
        retry_after_ms=refused.retry_after_ms if refused else 0,
    )


def _round(chosen: PlacementRound, placed_on: str) -> explain.Round:
    choice, place = chosen.batch.choice, chosen.place
    reasons = dict(zip(chosen.candidates, chosen.reasons, strict=False))
    found = {node_id: used for node_id, used, _ in chosen.seen}
    candidates = [
        explain.Candidate(
            node_id=node_id,
            score_ms=int(choice.scores[place, number]),
            terms=dict(zip(TERMS, choice.terms[place, number].tolist(), strict=True)),
            expected=int(choice.expected[place, number]),
            answer=reasons.get(node_id, explain.TAKEN if node_id == placed_on else ""),
            found=found.get(node_id, -1),
        )
        for number, node_id in enumerate(chosen.candidates)
    ]
    removed = removed_by_name(choice.removed[place].tolist())
    return explain.Round(int(choice.compared[place]), chosen.pool, removed, candidates)
