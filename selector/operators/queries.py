"""Queries and commands of operators: one handler per kind; every query gets an answer, also on an error.

They have a lane of their own. Scans of all nodes yield in between, so that placements go first.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from mesh.errors import ErrorCode, PeerError, StoreError
from mesh.frames import Query, QueryAnswer
from mesh.ids import is_id
from mesh.link.link import Received
from mesh.log import get_logger
from mesh.words import ProcessKind, QueryKind
from selector.context import SelectorContext
from selector.fleet.missing_models import MissingModels
from selector.fleet.registration import NodeRegistration
from selector.operators.core.query_params import Params, QueryRefusal
from selector.operators.core.report_json import invariants_answer
from selector.operators.decision_log import DecisionLog
from selector.operators.fleet_view import FleetView
from selector.placement.weights import CurrentWeights
from selector.sessions.pairing import PairingHandler

Answer = dict[str, Any] | bytes

#: Maximum deadline of a drain.
DRAIN_MS_MAX: Final = 86_400_000
VERSION_MAX: Final = 2**53

log = get_logger()


class Queries:
    """Handlers of queries, by kind."""

    def __init__(
        self,
        identity: str,
        context: SelectorContext,
        weights: CurrentWeights,
        decisions: DecisionLog,
        nodes: NodeRegistration,
        models: MissingModels,
        pairing: PairingHandler,
    ) -> None:
        self._identity = identity
        self._store = context.store
        self._config = context.config
        self._metrics = context.metrics
        self._send = context.send
        self._fleet = FleetView(context, weights)
        self._current = weights
        self._decisions = decisions
        self._nodes = nodes
        self._models = models
        self._pairing = pairing
        self._kinds: dict[str, Callable[[Params], Awaitable[Answer]]] = {
            QueryKind.SELECTORS: self._selectors,
            QueryKind.EXPLAIN: self._explain,
            QueryKind.INVARIANTS: self._invariants,
            QueryKind.POOLS: self._pools,
            QueryKind.SIMULATE: self._simulate,
            QueryKind.METRICS: self._metrics_of_ours,
            QueryKind.RECORDING: self._recording,
            QueryKind.NODE: self._node,
            QueryKind.DRAIN: self._drain,
            QueryKind.PAIR: self._pair,
            QueryKind.WEIGHTS: self._weights,
            QueryKind.WEIGHTS_SET: self._weights_set,
        }

    async def on_query(self, frame: Query, message: Received) -> None:
        """Answer one question."""
        status, body = 200, b""
        try:
            answer = await self._answer_of(frame)
            body = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
            if len(body) > self._config.link.message_bytes_max:
                raise QueryRefusal(413, f"the answer has {len(body)} bytes", ErrorCode.MESSAGE_TOO_LARGE)
        except QueryRefusal as refusal:
            status, body = refusal.status, msgspec.json.encode(refusal.answer())
        except StoreError as error:
            log.warning("query_failed", kind=frame.kind, ref=frame.ref, error=str(error))
            status, body = _failed(503, ErrorCode.SCHEDULER_DEPENDENCY_DOWN)
        except Exception as error:  # gateway: the operator gets an error, the lane goes on
            log.error("query_failed", kind=frame.kind, ref=frame.ref, exc_info=error)
            status, body = _failed(500, ErrorCode.INTERNAL_ERROR)
        self._reply(message, frame, status, body)

    def refuse(self, message: Received) -> None:
        """The lane is full: reply SLOW_DOWN at once."""
        frame = message.frame
        assert isinstance(frame, Query)
        self._reply(message, frame, *_failed(503, ErrorCode.SLOW_DOWN))

    def _reply(self, message: Received, frame: Query, status: int, body: bytes) -> None:
        self._metrics.queries_total.labels(frame.kind, str(status)).inc()
        self._send(frame.edge, message.head.cell, QueryAnswer(frame.ref, status), body, prefer=message.broker)

    async def _answer_of(self, frame: Query) -> Answer:
        handler = self._kinds.get(frame.kind)
        if handler is None:
            raise QueryRefusal(
                400, f"there is no question {frame.kind[:64]!r}; there are {', '.join(sorted(self._kinds))}"
            )
        return await handler(Params(frame.params))

    # --- processes and jobs ---------------------------------------------------------------------------------

    async def _selectors(self, params: Params) -> Answer:
        present = await self._store.deployment.processes(ProcessKind.SELECTOR)
        return {"selectors": sorted({self._identity, *(identity for identity, _ in present)})}

    async def _explain(self, params: Params) -> Answer:
        key = params.text("job_id") or params.text("request_id")
        if not key:
            raise QueryRefusal(400, "job_id or request_id is missing")
        record = self._decisions.find(key)
        if record is None:
            raise QueryRefusal(404, f"{key} is not among the decisions that this selector remembers")
        return record

    async def _recording(self, params: Params) -> Answer:
        return await self._decisions.recording()

    async def _metrics_of_ours(self, params: Params) -> Answer:
        return {
            "model_not_available": self._models.counts.answer(),
            "dispatch_exclude": {"by_reason": self._excluded()},
        }

    def _excluded(self) -> list[dict[str, Any]]:
        """Filters that removed nodes from refused jobs, most frequent first, with nodes that they remove at present."""
        totals = {reason: int(total) for (reason,), total in self._metrics.removed_total.totals().items()}
        samples = self._fleet.stopped_by()
        return [
            {"reason": reason, "total": totals[reason], "sample_node_ids": samples.get(reason, [])}
            for reason in sorted(totals, key=lambda reason: (-totals[reason], reason))
        ]

    async def _invariants(self, params: Params) -> Answer:
        edges, selectors = await asyncio.gather(
            self._store.deployment.processes(ProcessKind.EDGE), self._store.deployment.processes(ProcessKind.SELECTOR)
        )
        counts = {identity: facts.counts for identity, facts in selectors}
        counts[self._identity] = self._nodes.ledger_counts()  # newer than our presence record
        return invariants_answer(self._fleet.oversold(), edges, counts, self._fleet.drift())

    # --- nodes ----------------------------------------------------------------------------------------------

    async def _pools(self, params: Params) -> Answer:
        return await self._fleet.pools()

    async def _simulate(self, params: Params) -> Answer:
        return await self._fleet.simulate(params)

    async def _node(self, params: Params) -> Answer:
        node_id = _node_id(params)
        answer = await self._fleet.node(node_id)
        if answer is None:
            raise QueryRefusal(404, f"there is no node {node_id}", ErrorCode.NODE_UNAVAILABLE)
        return answer

    async def _drain(self, params: Params) -> Answer:
        node_id = _node_id(params)
        resume = params.flag("resume", default=False)
        deadline_ms = params.number("deadline_ms", self._config.node.drain_deadline_ms, DRAIN_MS_MAX)
        reason = params.text("reason", "operator")
        drained = await self._nodes.drain(node_id, deadline_ms, reason, resume=resume)
        if not drained.known:
            raise QueryRefusal(404, f"there is no node {node_id}", ErrorCode.NODE_UNAVAILABLE)
        return {"node_id": node_id, "status": drained.status, "drain_until_ms": drained.drain_until_ms}

    async def _pair(self, params: Params) -> Answer:
        node_id = _node_id(params)
        try:
            # A random asker, because an operator's request is never retried.
            issued = await self._pairing.code_for(node_id, secrets.token_hex(8), 1)
        except PeerError as error:
            status = 404 if error.code is ErrorCode.NOT_REGISTERED else 429
            raise QueryRefusal(status, error.message, error.code) from None
        assert issued is not None, "no copy of this is late"
        return {"node_id": node_id, "code": issued.code, "expires_in_ms": issued.expires_in_ms}

    # --- weights --------------------------------------------------------------------------------------------

    async def _weights(self, params: Params) -> Answer:
        await self._current.refresh()
        stored = self._current.stored
        return {
            "version": self._current.version,
            "weights": msgspec.to_builtins(self._current.weights),
            "since_ms": stored.since_ms,
            "by": stored.by,
        }

    async def _weights_set(self, params: Params) -> Answer:
        weights = params.weights()
        expected = params.number("expected_version", -1, VERSION_MAX)
        by = params.text("by", "operator")
        stored = await self._current.put(weights, None if expected < 0 else expected, by)
        if stored is None:
            raise QueryRefusal(409, f"another set of weights is in force than version {expected}")
        return {"version": stored.version}


def _node_id(params: Params) -> str:
    node_id = params.text("node_id")
    if not is_id(node_id):
        raise QueryRefusal(400, f"node_id: {ErrorCode.INVALID_ID.hint}", ErrorCode.INVALID_ID)
    return node_id


def _failed(status: int, code: ErrorCode) -> tuple[int, bytes]:
    return status, msgspec.json.encode({"code": code.name, "message": code.hint})
