"""A frame of an edge reaches the failure detector of a selector, whatever the frame is."""

from __future__ import annotations

from linguamesh.local.redis_server import RedisServer
from lua.engine.runner import Runner
from lua.store import Store
from mesh import clock
from mesh.config import Config
from mesh.config.network import RedisConfig
from mesh.frames import Head, SessionClaim
from mesh.keys import Keys
from mesh.link.link import Received
from selector.app import Selector
from selector.metrics import SelectorMetrics
from tests.support.processes.broker import claim

SENDER, SILENT = "edge:sender:1", "edge:silent:1"


async def test_edge_without_presence_is_live_while_its_frames_arrive(redis_server: RedisServer) -> None:
    config = Config(redis=RedisConfig(url=redis_server.url))
    runner = await Runner.connect(config.redis)
    try:
        selector = Selector("selector:s:1", Store(runner, Keys(), config), config, SelectorMetrics(), "test")
        for read_ms in (clock.now_ms() - 2 * config.selector.presence_ttl_ms, clock.now_ms()):
            selector._edges.detector.on_presence([], read_ms)
        assert not selector._edges.is_live(SENDER)
        head = Head(SessionClaim.lane, "", 1, SENDER, clock.wall_us(), 0)
        selector._on_messages([Received(head, claim("s-1"), [], "broker-0")])
        assert selector._edges.is_live(SENDER) and not selector._edges.is_live(SILENT)
    finally:
        await runner.close()
