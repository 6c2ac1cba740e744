"""Decision records: why each request went where it went. Bounded; cheap to keep, put into words only when asked for.

On the way of a job only references are kept: to the arrays of its batch (which the recording holds anyway) and to its
frame. A record leaves with the batch that was the newest when it ended, or when there are too many.
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
from selector.operators.core.recorder import Batch, Recorder
from selector.operators.core.recording_format import pack
from selector.placement.placement import Placement, PlacementRound

#: What a record takes beside its batch, about.
RECORD_BYTES: Final = 1_024
#: What a message needs beside the recording that it carries.
MARGIN_BYTES: Final = 1_024


class _Kept(NamedTuple):
    """What is remembered of one attempt."""

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
        self._kept_max = config.selector.decisions_kept
        self._packed_max = config.link.message_bytes_max - MARGIN_BYTES
        self._recorder = Recorder(config.selector.decisions_kept, config.selector.decisions_bytes_max)
        #: (request, attempt) -> record, the oldest first.
        self._kept: OrderedDict[tuple[str, int], _Kept] = OrderedDict()
        #: Request or job -> its latest record.
        self._by_name: dict[str, tuple[str, int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    # --- while a job is placed --------------------------------------------------------------------------

    def note(
        self,
        table: NodeTable,
        rows: JobRows,
        prior: Floats,
        rules: Rules,
        choice: Choice,
        weights: Weights,
        weights_version: int,
    ) -> Batch:
        """Keep a choice, before anything else is written into the table."""
        batch = self._recorder.note(
            table, rows, prior, rules, choice,
            at_ms=clock.wall_ms(), weights=weights, weights_version=weights_version,
        )  # fmt: skip
        gone = self._recorder.trim(len(self._kept) * RECORD_BYTES)
        if gone:
            self._forget_until(gone[-1].number)
        return batch

    def end(
        self,
        request: Placement,
        outcome: str,
        *,
        answer: Committed | None = None,
        refused: Refused | None = None,
        waited_ms: int = 0,
    ) -> None:
        """An attempt came to its end: placed, found placed, refused, or unknown."""
        dispatch = request.dispatch
        key = (dispatch.request_id, dispatch.attempt)
        if key in self._kept and outcome == DispatchOutcome.BOUND:
            return  # a repeat: the record of the placing itself tells more
        self._forget(key)
        job_id, node_id = (answer.job_id, answer.node_id) if answer is not None else ("", "")
        order = request.pools.order if request.pools is not None else ()
        self._kept[key] = _Kept(
            dispatch, outcome, job_id, node_id, clock.wall_ms(), waited_ms, order, request.removed,
            tuple(request.rounds), refused, self._recorder.newest,
        )  # fmt: skip
        self._by_name[dispatch.request_id] = key
        if job_id:
            self._by_name[job_id] = key
        if len(self._kept) > self._kept_max:
            self._forget(next(iter(self._kept)))

    def _forget_until(self, batch: int) -> None:
        """The records that ended before or with this batch."""
        while self._kept:
            key, kept = next(iter(self._kept.items()))
            if kept.newest > batch:
                return
            self._forget(key)

    def _forget(self, key: tuple[str, int]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            for name in (kept.dispatch.request_id, kept.job_id):
                if self._by_name.get(name) == key:
                    del self._by_name[name]

    # --- for operators ------------------------------------------------------------------------------------

    def find(self, name: str) -> dict[str, Any] | None:
        """The record of a job or request, with words; None if it is not (or no longer) here."""
        key = self._by_name.get(name)
        return None if key is None else explain.record_of(_decision(self._kept[key]))

    def recording(self) -> bytes:
        """All recorded choices as bytes, as many as fit one message; b"" before the first. Takes a moment."""
        recording = self._recorder.taken()
        return b"" if recording is None else pack(recording, self._packed_max)

    async def pack_recording(self) -> bytes:
        """The same beside the work: the packing is another thread's, nobody waits for it."""
        recording = self._recorder.taken()
        return b"" if recording is None else await asyncio.to_thread(pack, recording, self._packed_max)


def _decision(kept: _Kept) -> explain.Decision:
    dispatch, refused = kept.dispatch, kept.refused
    last = kept.rounds[-1].batch if kept.rounds else None
    rounds = [_round(chosen, kept.node_id) for chosen in kept.rounds]
    if not rounds:
        rounds = [explain.Round(0, "", removed_by_name(kept.removed), [])]
    return explain.Decision(
        request_id=dispatch.request_id,
        attempt=dispatch.attempt,
        session_id=dispatch.session_id,
        trace_id=dispatch.trace_id,
        at_ms=kept.at_ms,
        outcome=kept.outcome,
        job_id=kept.job_id,
        node_id=kept.node_id,
        pair=pair_of(dispatch.src_lang, dispatch.tgt_lang),
        audio_ms=dispatch.audio_ms,
        waited_ms=kept.waited_ms,
        snapshot_version=last.snapshot_version if last else 0,
        weights_version=last.weights_version if last else 0,
        seed=seed_of(dispatch),
        strategy=last.weights.strategy if last else "",
        pool_order=kept.pool_order,
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
