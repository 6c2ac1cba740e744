"""Completion: the last step of a request: its outcome, the client's notification, the cancels of live attempts."""

from __future__ import annotations

from edge.requests.core.hedge_budget import HedgeBudget
from edge.requests.core.request import Attempt, CountHedge, Deliver, Effect, Fail, Failure, Request
from edge.requests.core.table import RequestTable
from mesh.errors import ErrorCode
from mesh.words import CancelReason, EdgeCount, HedgeOutcome


class Completion:
    """Completes requests. `finished`: the attempt that ended by itself, which needs no cancel."""

    def __init__(self, table: RequestTable, hedge_budget: HedgeBudget) -> None:
        self._table = table
        self._hedge_budget = hedge_budget

    def end(
        self, request: Request, outcome: EdgeCount, reason: str, now_ms: int, finished: Attempt | None = None
    ) -> list[Effect]:
        """End the request and cancel its other attempts."""
        live = [attempt for attempt in request.live() if attempt is not finished]
        effects: list[Effect] = [request.cancel(attempt, reason) for attempt in live]
        if request.hedge is not None:
            done = HedgeOutcome.WON if finished is request.hedge else HedgeOutcome.LOST
            effects.append(self.count_hedge(HedgeOutcome.CANCELLED if finished is None else done))
        self._table.end(request, outcome, now_ms, finished)
        return effects

    def refuse(self, request: Request, now_ms: int, finished: Attempt | None = None) -> list[Effect]:
        """No node could take it. The details: the reason, the nodes that each filter removed, the nearest node."""
        code = ErrorCode.NO_AVAILABLE_NODE
        waited_ms = now_ms - request.current.began_ms
        details: dict[str, object] = {"reason": request.obstacle, "waited_ms": waited_ms}
        refusal, message = request.refusal, f"no node can take the utterance: {request.obstacle}"
        if refusal is not None:
            if refusal.nearest_node:
                message += f"; {refusal.nearest_node} came closest: {refusal.nearest}"
            code = ErrorCode.__members__.get(refusal.code, code)
            details |= {
                "removed": refusal.removed,
                "nearest_node": refusal.nearest_node,
                "nearest": refusal.nearest,
                "waited_ms": max(refusal.waited_ms, waited_ms),
                "retry_after_ms": refusal.retry_after_ms,
            }
        return self.fail(request, code, message, details, now_ms, finished)

    def fail(
        self,
        request: Request,
        code: ErrorCode,
        message: str,
        details: dict[str, object],
        now_ms: int,
        finished: Attempt | None = None,
    ) -> list[Effect]:
        """There is no result. A failure that a node reported takes precedence: it explains more than a failed retry."""
        if request.failure is not None:
            return self.deliver_failure(request, request.failure, now_ms, finished)
        outcome = EdgeCount.REFUSED if code is ErrorCode.NO_AVAILABLE_NODE else EdgeCount.FAILED
        return [Fail(request, code, message, details), *self.end(request, outcome, code.name.lower(), now_ms, finished)]

    def deliver_failure(
        self, request: Request, failure: Failure, now_ms: int, finished: Attempt | None
    ) -> list[Effect]:
        """A node failed on it, and no other attempt succeeded."""
        return [Deliver(request, *failure), *self.end(request, EdgeCount.FAILED, CancelReason.FAILED, now_ms, finished)]

    def count_hedge(self, outcome: HedgeOutcome) -> CountHedge:
        """Count the outcome of a hedge."""
        self._hedge_budget.ended(outcome)
        return CountHedge(outcome)
