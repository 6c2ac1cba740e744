"""HTTP API: the rim of the pages under /api/v1. Queries selectors and responds in JSON.

Read-only; commands go by /ws/control. A response is sent within edge.page_timeout_ms, with status 504 if no selector
replied, and at most edge.pages_max requests are pending at a time.
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
from edge.operators.core.routes import API, QueryTarget, Route, RouteError, route_of, sum_counts
from mesh.clock import now_ms
from mesh.config.network import EdgeConfig
from mesh.errors import ErrorCode
from mesh.log import get_logger
from mesh.words import EdgeCount, QueryKind

JSON: Final = "application/json"
MSGPACK: Final = "application/vnd.msgpack"

log = get_logger()


class HttpApi:
    """All pages of one edge. `counts`: the utterances that this edge accepted, by outcome."""

    prefix = API

    def __init__(
        self, config: EdgeConfig, link: EdgeLink, metrics: EdgeMetrics, counts: Callable[[], dict[str, int]]
    ) -> None:
        self._link = link
        self._metrics = metrics
        self._counts = counts
        self._pages_max = config.pages_max
        self._selectors_max = config.selectors_asked_max
        # The listener closes a connection without a response after open_timeout_ms; the 504 must be sent before.
        self._timeout_ms = min(config.page_timeout_ms, config.open_timeout_ms * 4 // 5)
        self._pending = 0

    async def respond(self, target: str) -> Response:
        """The response to a GET of `target`; errors are responses too."""
        kind = NO_PAGE
        self._pending += 1
        try:
            if self._pending > self._pages_max:
                raise RouteError(503, ErrorCode.SLOW_DOWN, f"{self._pages_max} requests are pending")
            route = route_of(target)
            kind = route.kind
            response = await self._query_page(route)
        except RouteError as error:
            response = json_response(error.status, error.body())
        except Exception:
            # The gateway from HTTP: our own bug must fail this one response only.
            log.exception("page_failed", path=target[:200])
            response = json_response(500, {"code": ErrorCode.INTERNAL_ERROR.name, "message": "the page failed"})
        finally:
            self._pending -= 1
        self._metrics.pages_total.labels(kind, str(response.status_code)).inc()
        return response

    async def _query_page(self, route: Route) -> Response:
        end_ms = now_ms() + self._timeout_ms
        if route.target is QueryTarget.FIRST:
            return _forwarded(await self._first(route, end_ms))
        if route.target is QueryTarget.SUM:
            return json_response(200, await self._sum(route, end_ms))
        if route.target is QueryTarget.NAMED:
            return _forwarded(await self._named(route, end_ms), MSGPACK)
        reply = await self._query(route, end_ms, record_id=route.subject)
        if route.kind == QueryKind.INVARIANTS and reply.status == HTTPStatus.OK:
            return json_response(200, self._with_own_counts(msgspec.json.decode(reply.body)))
        return _forwarded(reply)

    # --- queries ------------------------------------------------------------------------------

    async def _query(self, route: Route, end_ms: int, *, record_id: str = "", to: str = "") -> QueryReply:
        """One selector's reply; RouteError if there is none in time."""
        left_ms = max(1, end_ms - now_ms())
        reply = await self._link.query(route.kind, route.params, record_id=record_id, to=to, timeout_ms=left_ms)
        if reply is None:
            text = f"{to} did not answer in time" if to else "no selector answered in time"
            raise RouteError(504, ErrorCode.SCHEDULER_DEPENDENCY_DOWN, text)
        return reply

    async def _selectors(self, end_ms: int) -> list[str]:
        reply = await self._query(Route(QueryKind.SELECTORS, QueryTarget.ANY, {}), end_ms)
        if reply.status != HTTPStatus.OK:
            raise RouteError(504, ErrorCode.SCHEDULER_DEPENDENCY_DOWN, "no selector can list the selectors")
        found = msgspec.json.decode(reply.body, type=dict[str, list[str]])
        return found.get("selectors", [])[: self._selectors_max]

    async def _first(self, route: Route, end_ms: int) -> QueryReply:
        """The first reply with status 200. A selector that hangs does not delay the reply of another."""
        queries = [
            asyncio.create_task(self._query(route, end_ms, to=identity)) for identity in await self._selectors(end_ms)
        ]
        silent = 0
        try:
            for done in asyncio.as_completed(queries):
                try:
                    reply = await done
                except RouteError:
                    silent += 1
                    continue
                if reply.status == HTTPStatus.OK:
                    return reply
        finally:
            for task in queries:
                task.cancel()
            await asyncio.gather(*queries, return_exceptions=True)
        if silent == len(queries):
            raise RouteError(504, ErrorCode.SCHEDULER_DEPENDENCY_DOWN, f"none of {silent} selectors answered in time")
        text = f"none of {len(queries) - silent} selectors has a decision on {route.subject[:200]}"
        missing = f", and {silent} did not answer" if silent else ""
        why = "each stores its latest decisions (selector.decisions_kept) in memory"
        raise RouteError(404, ErrorCode.INVALID_MESSAGE, f"{text}{missing}; {why}")

    async def _sum(self, route: Route, end_ms: int) -> dict[str, Any]:
        """The counts of all selectors, added up, and the number of selectors."""
        identities = await self._selectors(end_ms)
        replies = await asyncio.gather(
            *(self._query(route, end_ms, to=identity) for identity in identities), return_exceptions=True
        )
        bodies = []
        for reply in replies:
            if isinstance(reply, QueryReply) and reply.status == HTTPStatus.OK:
                bodies.append(msgspec.json.decode(reply.body, type=dict[str, Any]))
            elif not isinstance(reply, QueryReply | RouteError):
                raise reply
        if not bodies:
            raise RouteError(504, ErrorCode.SCHEDULER_DEPENDENCY_DOWN, "no selector answered in time")
        return {**sum_counts(bodies), "selectors": {"asked": len(identities), "answered": len(bodies)}}

    async def _named(self, route: Route, end_ms: int) -> QueryReply:
        """The reply of the selector that the request names; without a name, of the only one there is."""
        known = await self._selectors(end_ms)
        name = route.subject or (known[0] if len(known) == 1 else "")
        if name not in known:
            text = f"there is no selector {name[:200]!r}" if name else "name one: ?selector=IDENTITY"
            status = 404 if name else 400
            raise RouteError(status, ErrorCode.INVALID_MESSAGE, f"{text}; there are {', '.join(known) or 'none'}")
        return await self._query(route, end_ms, to=name)

    def _with_own_counts(self, body: dict[str, Any]) -> dict[str, Any]:
        """The mesh's invariants with the present counts of this edge."""
        counts = self._counts()
        balanced = counts[EdgeCount.ACCEPTED] == sum(counts.values()) - counts[EdgeCount.ACCEPTED]
        own = {"edge": self._link.identity, **counts, "balanced": balanced}
        return {**body, "ok": bool(body.get("ok")) and balanced, "edge": own}


def json_response(status: int, body: Any) -> Response:
    """An indented JSON response."""
    return _response(status, msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n", JSON)


def _forwarded(reply: QueryReply, kind: str = JSON) -> Response:
    """A selector's reply, unchanged; errors are JSON on every page."""
    if kind == JSON or reply.status != HTTPStatus.OK:
        return json_response(reply.status, msgspec.json.decode(reply.body))
    return _response(reply.status, reply.body, kind)


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
