"""Ends: how a request is over, what the client hears then, and whom to tell that nobody waits any more."""

from __future__ import annotations

from edge.requests.core.hedge_budget import HedgeBudget
from edge.requests.core.request import Attempt, CountHedge, Deliver, Effect, Fail, Failure, Request
from edge.requests.core.table import RequestTable
from mesh.errors import ErrorCode
from mesh.words import CancelReason, EdgeCount, HedgeOutcome


class Completion:
    """The last step of every request. `but`: an attempt that is over by itself and needs no cancellation."""

    def __init__(self, retained: RequestTable, hedging: HedgeBudget) -> None:
        self._retained = retained
        self._hedging = hedging

    def end(
        self, request: Request, outcome: EdgeCount, reason: str, now_ms: int, but: Attempt | None = None
    ) -> list[Effect]:
        """End the request and cancel its attempts."""
        effects: list[Effect] = [request.cancel(attempt, reason) for attempt in request.live() if attempt is not but]
        if request.hedge is not None:
            done = HedgeOutcome.WON if but is request.hedge else HedgeOutcome.LOST
            effects.append(self.count_hedge(HedgeOutcome.CANCELLED if but is None else done))
        self._retained.end(request, outcome, now_ms, but)
        return effects

    def refuse(self, request: Request, now_ms: int, but: Attempt | None = None) -> list[Effect]:
        """No node could take it: why, how many nodes each filter removed, and which came closest."""
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
        return self.fail(request, code, message, details, now_ms, but)

    def fail(
        self,
        request: Request,
        code: ErrorCode,
        message: str,
        details: dict[str, object],
        now_ms: int,
        but: Attempt | None = None,
    ) -> list[Effect]:
        """There is no result. What a node said of its failure tells more than that others could not be had."""
        if request.failure is not None:
            return self.tell_failure(request, request.failure, now_ms, but)
        outcome = EdgeCount.REFUSED if code is ErrorCode.NO_AVAILABLE_NODE else EdgeCount.FAILED
        return [Fail(request, code, message, details), *self.end(request, outcome, code.name.lower(), now_ms, but)]

    def tell_failure(self, request: Request, failure: Failure, now_ms: int, but: Attempt | None) -> list[Effect]:
        """A node failed on it, and no other did better."""
        return [Deliver(request, *failure), *self.end(request, EdgeCount.FAILED, CancelReason.FAILED, now_ms, but)]

    def count_hedge(self, outcome: HedgeOutcome) -> CountHedge:
        """What came of a hedge."""
        self._hedging.ended(outcome)
        return CountHedge(outcome)
