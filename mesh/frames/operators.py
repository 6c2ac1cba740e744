"""Frames for operators: queries and commands to selectors, and the counts that edges report."""

from __future__ import annotations

from mesh.frames.base import Frame, Lane, Role


class Query(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.WORK):
    """Edge -> selector: a query or command of an operator. Reply: QueryAnswer. docs/protocol.md lists the kinds."""

    ref: str
    edge: str
    kind: str  # mesh.words.QueryKind
    params: dict[str, list[str]]


class QueryAnswer(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge: reply. Payload: JSON, or bytes if the kind defines so. `status` as in HTTP."""

    ref: str
    status: int


class EdgeReport(Frame, frozen=True, to=Role.SELECTOR, lane=Lane.CONTROL):
    """Edge -> selector, every selector.presence_ms: liveness of the edge and its counts."""

    edge: str
    host: str
    pid: int
    version: str
    started_at_ms: int
    #: mesh.words.EdgeCount -> number.
    counts: dict[str, int]
