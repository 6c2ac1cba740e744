"""The snapshot: polls every cell for changed nodes and writes them into the node table.

All cells are polled at once, in one round trip. Cost follows changes, not the size of the fleet, and without work the
polling slows down. On a store error the old snapshot stays: it only selects candidates, and every commit checks Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from lua.store import Store
from lua.store.node_view import ChangedNode, Changes
from lua.store.types.nodes import NodeFacts
from mesh import clock
from mesh.config import Config
from mesh.errors import StoreError
from mesh.log import get_logger
from mesh.words import RowWord
from selector.core.node_table import NodeTable
from selector.metrics import SelectorMetrics

#: Pages of `changes_max` rows that one refresh reads from a cell; the rest is left to the next.
PAGES_MAX: Final = 16
#: After a cell with this many changed rows, other tasks get a turn.
ROWS_AT_ONCE: Final = 32
#: The polling stays fast for this long after work.
BUSY_MS: Final = 2_000
#: Lost nodes of one cell whose edges are notified at once; the others find out by their next heartbeat.
LOST_NOTIFIED_MAX: Final = 4_096

#: Gets the id of a lost node and its last facts.
OnLost = Callable[[str, NodeFacts], None]
OnChanged = Callable[[], None]

log = get_logger()


@dataclass(slots=True)
class _Cell:
    """How far one cell has been read."""

    number: int
    #: When the next full reload is due.
    reload_due_ms: int
    since: int = 0
    #: Nodes found by the current reload; None: no reload is in progress.
    found: set[str] | None = field(default_factory=set)
    #: The reload began because the cell's version went back: nodes that it does not find were lost, they did not leave.
    went_back: bool = False
    answered_ms: int = 0
    #: Our clock minus its server's; None until it answered.
    clock_offset_ms: int | None = None


def facts_of(view: NodeFacts, clock_offset_ms: int) -> NodeFacts:
    """A view with its times on our clock."""
    return view._replace(
        detached_ms=view.detached_ms + clock_offset_ms if view.detached_ms else 0,
        drain_until_ms=view.drain_until_ms + clock_offset_ms if view.drain_until_ms else 0,
    )


class Snapshot:
    """Keeps a NodeTable up to date. `on_lost` gets nodes that Redis lost; `on_changed` is called after any change."""

    def __init__(
        self,
        store: Store,
        table: NodeTable,
        config: Config,
        metrics: SelectorMetrics,
        on_lost: OnLost,
        on_changed: OnChanged = lambda: None,
    ) -> None:
        self._on_lost = on_lost
        self.on_changed = on_changed
        self._store = store
        self._table = table
        self._config = config.selector
        self._metrics = metrics
        now_ms = clock.now_ms()
        cells = config.mesh.cells
        # Reloads are spread over the period to spread their load.
        self._cells = [
            _Cell(number, now_ms + self._config.full_reload_ms * (number + 1) // cells) for number in range(cells)
        ]
        self._wake = asyncio.Event()
        self._busy_until_ms = 0
        self._pace_ms = self._config.snapshot_ms
        self._refreshing: asyncio.Task[int] | None = None
        #: Interner -> refused strings that the metric has counted.
        self._counted_refused = dict.fromkeys(RowWord, 0)
        #: Refused nodes that the metric has counted.
        self._counted_nodes = 0

    # --- for others -------------------------------------------------------------------------------------

    def work_came(self, now_ms: int) -> None:
        """Jobs are being placed: poll fast."""
        self._busy_until_ms = now_ms + BUSY_MS
        if self._pace_ms > self._config.snapshot_ms:
            self._pace_ms = self._config.snapshot_ms
            self._wake.set()

    def look_soon(self) -> None:
        """A change is known to be in Redis: poll soon, also when idle."""
        self._pace_ms = self._config.snapshot_ms
        self._wake.set()

    def clock_offset_ms(self, cell: int) -> int:
        """Our clock minus that of the cell's server."""
        offset_ms = self._cells[cell].clock_offset_ms
        return clock.now_ms() - clock.wall_ms() if offset_ms is None else offset_ms

    def age_ms(self) -> int:
        """Age of the oldest cell's last answer."""
        return clock.now_ms() - min(cell.answered_ms for cell in self._cells)

    def answered_ms(self, cell: int) -> int:
        """Time of a cell's last answer."""
        return self._cells[cell].answered_ms

    async def refresh(self) -> int:
        """Poll all cells now, or join a refresh in progress; returns how many rows changed. Never raises StoreError."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="snapshot refresh")
        # A cancelled caller must not cancel the others' refresh.
        return await asyncio.shield(self._refreshing)

    async def refresh_anew(self) -> None:
        """The same, but never joins: a refresh in progress may have begun before the change that the caller needs."""
        if self._refreshing is not None and not self._refreshing.done():
            await self.refresh()
        await self.refresh()

    async def run(self) -> None:
        """Refresh for ever."""
        while True:
            changed = await self.refresh()
            self._metrics.snapshot_rows.set(len(self._table))
            self._metrics.snapshot_age_seconds.set(self.age_ms() / 1_000)
            self._metrics.ledger_drift.set(self._table.drift())
            self._count_refused()
            await self._pause(active=changed > 0 or clock.now_ms() < self._busy_until_ms)

    def _count_refused(self) -> None:
        table = self._table
        nodes = table.refused - self._counted_nodes
        if nodes:
            self._counted_nodes += nodes
            self._metrics.nodes_refused_total.inc(nodes)
            log.warning("nodes_refused", count=nodes, bound=table.nodes_max)
        interners = {
            RowWord.LANGUAGE: table.interners.languages,
            RowWord.SERVICE: table.interners.services,
            RowWord.TENANT: table.interners.tenants,
        }
        for kind, interner in interners.items():
            refused = interner.refused - self._counted_refused[kind]
            if refused:
                self._counted_refused[kind] += refused
                self._metrics.words_refused_total.labels(kind).inc(refused)
                log.warning("words_refused", kind=kind, count=refused, bound=interner.bound)

    async def _pause(self, *, active: bool) -> None:
        fast_ms = self._config.snapshot_ms
        self._pace_ms = fast_ms if active else min(2 * self._pace_ms, max(fast_ms, self._config.snapshot_idle_ms))
        self._wake.clear()
        if self._pace_ms == fast_ms:
            await asyncio.sleep(fast_ms / 1_000)
            return
        try:
            await asyncio.wait_for(self._wake.wait(), self._pace_ms / 1_000)
        except TimeoutError:
            pass

    # --- inside -----------------------------------------------------------------------------------------

    async def _refresh(self) -> int:
        started_us = clock.wall_us()
        changed = 0
        now_ms = clock.now_ms()
        behind = self._cells
        for _ in range(PAGES_MAX):
            self._begin_reloads(behind, now_ms)
            positions = [(cell.number, cell.since) for cell in behind]
            answers = await self._store.nodes.changes(positions, self._config.changes_max)
            now_ms = clock.now_ms()
            behind_next = []
            for cell, answer in zip(behind, answers, strict=True):
                if isinstance(answer, StoreError):
                    self._failed(cell, "snapshot_failed", error=str(answer))
                    continue
                cell.answered_ms, cell.clock_offset_ms = now_ms, now_ms - answer.now_ms
                if answer.rows or answer.reset or answer.unreadable or cell.found is not None:
                    changed += self._take(cell, answer, cell.clock_offset_ms)
                cell.since = answer.version
                if answer.more:
                    behind_next.append(cell)
                if len(answer.rows) >= ROWS_AT_ONCE:
                    await asyncio.sleep(0)  # writing many rows must not delay frames
            behind = behind_next
            if not behind:
                break
        self._metrics.snapshot_seconds.observe((clock.wall_us() - started_us) / 1e6)
        self._metrics.snapshot_changes_total.inc(changed)
        if (self._table.marked and self._table.expire_marks(now_ms)) or changed:
            self.on_changed()
        return changed

    def _begin_reloads(self, cells: list[_Cell], now_ms: int) -> None:
        for cell in cells:
            if now_ms >= cell.reload_due_ms and cell.found is None:
                cell.found, cell.since = set(), 0
                cell.reload_due_ms = now_ms + self._config.full_reload_ms

    def _failed(self, cell: _Cell, event: str, count: int = 1, **facts: object) -> None:
        self._metrics.store_errors_total.labels("node_changes").inc(count)
        log.warning(event, cell=cell.number, **facts)

    def _take(self, cell: _Cell, answer: Changes, clock_offset_ms: int) -> int:
        """Write one page of one cell; returns how many rows were written."""
        if answer.unreadable:
            self._failed(cell, "rows_unreadable", answer.unreadable, rows=answer.unreadable)
        if answer.reset:
            log.warning("cell_went_back", cell=cell.number, known=cell.since, found=answer.version)
            self._table.forget_versions(cell.number)
            cell.found, cell.went_back = set(), True
        written = 0
        for row in answer.rows:
            written += self._write(cell.number, row, clock_offset_ms)
            if cell.found is not None and row.used >= 0:
                cell.found.add(row.node_id)
        if cell.found is not None and not answer.more:
            # The reload is complete: a node that it did not find is gone, and its delta was missed.
            written += self._drop([known for known in self._table.ids_in(cell.number) if known not in cell.found], cell)
            cell.found, cell.went_back = None, False
        return written

    def _drop(self, node_ids: list[str], cell: _Cell) -> int:
        lost = [(node_id, self._table.facts_of(node_id)) for node_id in node_ids[:LOST_NOTIFIED_MAX] if cell.went_back]
        dropped = sum(self._table.remove(node_id) for node_id in node_ids)
        for node_id, facts in lost:
            if facts is not None:
                self._on_lost(node_id, facts)
        return dropped

    def _write(self, cell: int, row: ChangedNode, clock_offset_ms: int) -> bool:
        table, node_id = self._table, row.node_id
        facts = None if row.view is None else facts_of(row.view, clock_offset_ms)
        written = table.apply(cell, row.version, node_id, row.used, row.last_seen_ms + clock_offset_ms, facts)
        if row.used >= 0 and node_id in table.rows:
            if row.drift or node_id in table.drifts:
                table.set_drift(node_id, row.drift)
            # Also beside facts that are older than ours: these are not sent again.
            if row.speeds is not None:
                table.set_speeds(node_id, row.speeds, clock_offset_ms)
            if row.marks is not None:
                table.set_marks(node_id, {service: until + clock_offset_ms for service, until in row.marks.items()})
            return written or row.speeds is not None or row.marks is not None
        return written
