"""The poll of presence, with a store and a clock that follow a script. The rules: test_liveness.py."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from mesh import clock
from mesh.config.network import SelectorConfig
from mesh.errors import StoreError
from selector.fleet.edge_liveness import EdgeLiveness

A, B = "edge:a:1", "edge:b:1"
CONFIG = SelectorConfig(presence_ms=1, presence_ttl_ms=6_000)


class ScriptedStore:
    """Presence at each time of a script; None is an error of the store. `ended` is set when all were read."""

    def __init__(self, script: dict[int, list[str] | None]) -> None:
        self.now_ms = 0
        self.ended = asyncio.Event()
        self._script = list(script.items())
        self.deployment = SimpleNamespace(live_identities=self._read)

    async def _read(self, kind: str) -> list[str]:
        assert kind == "edge"
        if not self._script:
            self.ended.set()
            await asyncio.Event().wait()
        self.now_ms, present = self._script.pop(0)
        if present is None:
            raise StoreError("down")
        return present


async def polled(monkeypatch: pytest.MonkeyPatch, script: dict[int, list[str] | None]) -> EdgeLiveness:
    """Liveness after all of the script was read."""
    store = ScriptedStore(script)
    monkeypatch.setattr("mesh.clock.now_ms", lambda: store.now_ms)
    liveness = EdgeLiveness(cast(Any, store), CONFIG)
    poll = asyncio.create_task(liveness.run())
    await store.ended.wait()
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll
    return liveness


async def test_edge_absent_for_a_ttl_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    liveness = await polled(monkeypatch, {0: [A, B], 3_000: [A], 6_000: [A]})
    assert liveness.is_live(A) and not liveness.is_live(B)


async def test_sender_of_a_frame_is_live_without_presence(monkeypatch: pytest.MonkeyPatch) -> None:
    liveness = await polled(monkeypatch, {0: [], 6_000: []})
    assert not liveness.is_live(A)
    liveness.detector.on_frame(A, clock.now_ms())
    assert liveness.is_live(A) and not liveness.is_live(B)


async def test_failed_read_is_logged_and_polled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with capture_logs() as lines:
        liveness = await polled(monkeypatch, {0: [], 6_000: None, 7_000: [A]})
    assert [(line["event"], line["error"]) for line in lines] == [("presence_unknown", "down")]
    assert liveness.is_live(B), "edges could not renew their presence either"
