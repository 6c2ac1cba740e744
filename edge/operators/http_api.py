"""Pages: the rim of the HTTP addresses under /api/v1. Asks selectors on behalf of whoever reads, and answers in JSON.

Reads only; what changes anything goes by /ws/control. An answer comes within edge.page_timeout_ms, if only to say that
the selectors are silent, and at most edge.pages_max questions are under way at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final

import msgspec
from websockets.datastructures import Headers
from websockets.http11 import Response

from edge.link.core.rpc import QueryReply
from edge.link.link import EdgeLink
from edge.metrics import NO_PAGE, EdgeMetrics
from edge.operators.core.routes import API as API
from edge.operators.core.routes import Route, RouteError, Whom, added_up, route_of
from mesh.clock import now_ms
from mesh.config.network import EdgeConfig
from mesh.errors import ErrorCode
from mesh.log import get_logger
from mesh.words import EdgeCount, QueryKind

JSON: Final = "application/json"
MSGPACK: Final = "application/vnd.msgpack"

log = get_logger()


class HttpApi:
    """All pages of one edge. `counts`: what became of the utterances that this edge accepted."""

    def __init__(
        self, config: EdgeConfig, link: EdgeLink, metrics: EdgeMetrics, counts: Callable[[], dict[str, int]]
    ) -> None:
        self._link = link
        self._metrics = metrics
        self._counts = counts
        self._pages_max = config.pages_max
        self._selectors_max = config.selectors_asked_max
        # A reader who has no answer by open_timeout_ms is cut off, and would never hear why.
        self._timeout_ms = min(config.page_timeout_ms, config.open_timeout_ms * 4 // 5)
        self._open = 0

    async def answer(self, target: str) -> Response:
        """The answer to a GET of `target`, whatever happens."""
        kind = NO_PAGE
        self._open += 1
        try:
            if self._open > self._pages_max:
                raise RouteError(503, ErrorCode.SLOW_DOWN, f"{self._pages_max} questions are under way")
            page = route_of(target)
            kind = page.kind
            response = await self._answer(page)
        except RouteError as error:
            response = json_response(error.status, error.body())
        except Exception:
            # The gateway from HTTP: our own bug must cost this one answer.
            log.exception("page_failed", path=target[:200])
            response = json_response(500, {"code": ErrorCode.INTERNAL_ERROR.name, "message": "the page failed"})
        finally:
            self._open -= 1
        self._metrics.pages_total.labels(kind, str(response.status_code)).inc()
        return response

    async def _answer(self, page: Route) -> Response:
        end_ms = now_ms() + self._timeout_ms
        if page.whom is Whom.FIRST:
            return _passed_on(await self._first(page, end_ms))
        if page.whom is Whom.SUM:
            return json_response(200, await self._sum(page, end_ms))
        if page.whom is Whom.NAMED:
            return _passed_on(await self._named(page, end_ms), MSGPACK)
        answer = await self._ask(page, end_ms, record_id=page.about)
        if page.kind == QueryKind.INVARIANTS and answer.status == HTTPStatus.OK:
            return json_response(200, self._with_our_own(msgspec.json.decode(answer.body)))
        return _passed_on(answer)

    # --- whom to ask --------------------------------------------------------------------------

    async def _ask(self, page: Route, end_ms: int, *, record_id: str = "", to: str = "") -> QueryReply:
        """One selector's answer; PageError if it is silent."""
        left_ms = max(1, end_ms - now_ms())
        answer = await self._link.query(page.kind, page.params, record_id=record_id, to=to, timeout_ms=left_ms)
        if answer is None:
            text = f"{to} did not answer in time" if to else "no selector answered in time"
            raise RouteError(504, ErrorCode.SCHEDULER_DEPENDENCY_DOWN, text)
        return answer

    async def _selectors(self, end_ms: int) -> list[str]:
        answer = await self._ask(Route(QueryKind.SELECTORS, Whom.ANY, {}), end_ms)
        if answer.status != HTTPStatus.OK:
            raise RouteError(504, ErrorCode.SCHEDULER_DEPENDENCY_DOWN, "no selector can say who the selectors are")
        found = msgspec.json.decode(answer.body, type=dict[str, list[str]])
        return found.get("selectors", [])[: self._selectors_max]

    async def _first(self, page: Route, end_ms: int) -> QueryReply:
        """The first answer that is one; a selector that hangs keeps nobody waiting who has it from another."""
        asked = [
            asyncio.create_task(self._ask(page, end_ms, to=identity)) for identity in await self._selectors(end_ms)
        ]
        silent = 0
        try:
            for answered in asyncio.as_completed(asked):
                try:
                    answer = await answered
                except RouteError:
                    silent += 1
                    continue
                if answer.status == HTTPStatus.OK:
                    return answer
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        if silent == len(asked):
            raise RouteError(504, ErrorCode.SCHEDULER_DEPENDENCY_DOWN, f"none of {silent} selectors answered in time")
        told = f"none of {len(asked) - silent} selectors remembers a decision on {page.about[:200]}"
        missing = f", and {silent} did not answer" if silent else ""
        why = "each keeps its latest decisions (selector.decisions_kept) and forgets them when it ends"
        raise RouteError(404, ErrorCode.INVALID_MESSAGE, f"{told}{missing}; {why}")

    async def _sum(self, page: Route, end_ms: int) -> dict[str, Any]:
        """What all selectors count, added up, and how many of them that were."""
        identities = await self._selectors(end_ms)
        answers = await asyncio.gather(
            *(self._ask(page, end_ms, to=identity) for identity in identities), return_exceptions=True
        )
        bodies = []
        for answer in answers:
            if isinstance(answer, QueryReply) and answer.status == HTTPStatus.OK:
                bodies.append(msgspec.json.decode(answer.body, type=dict[str, Any]))
            elif not isinstance(answer, QueryReply | RouteError):
                raise answer
        if not bodies:
            raise RouteError(504, ErrorCode.SCHEDULER_DEPENDENCY_DOWN, "no selector answered in time")
        return {**added_up(bodies), "selectors": {"asked": len(identities), "answered": len(bodies)}}

    async def _named(self, page: Route, end_ms: int) -> QueryReply:
        """The answer of the selector that the reader named; without a name, of the only one there is."""
        known = await self._selectors(end_ms)
        name = page.about or (known[0] if len(known) == 1 else "")
        if name not in known:
            told = f"there is no selector {name[:200]!r}" if name else "name one: ?selector=IDENTITY"
            status = 404 if name else 400
            raise RouteError(status, ErrorCode.INVALID_MESSAGE, f"{told}; there are {', '.join(known) or 'none'}")
        return await self._ask(page, end_ms, to=name)

    def _with_our_own(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The mesh's invariants with what this edge can say for itself at this very moment."""
        counts = self._counts()
        balanced = counts[EdgeCount.ACCEPTED] == sum(counts.values()) - counts[EdgeCount.ACCEPTED]
        own = {"edge": self._link.identity, **counts, "balanced": balanced}
        return {**answer, "ok": bool(answer.get("ok")) and balanced, "edge": own}


def json_response(status: int, body: Any) -> Response:
    """A JSON answer that a person can read."""
    return _response(status, msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n", JSON)


def _passed_on(answer: QueryReply, kind: str = JSON) -> Response:
    """A selector's answer as it is; its errors are JSON whatever the page is."""
    if kind == JSON or answer.status != HTTPStatus.OK:
        return json_response(answer.status, msgspec.json.decode(answer.body))
    return _response(answer.status, answer.body, kind)


def _response(status: int, body: bytes, kind: str) -> Response:
    headers = Headers(
        [
            ("Date", formatdate(usegmt=True)),
            ("Connection", "close"),
            ("Content-Length", str(len(body))),
            ("Content-Type", kind),
            ("Cache-Control", "no-store"),
        ]
    )
    return Response(status, HTTPStatus(status).phrase, headers, body)
