"""Tells Redis that this selector lives, for people who ask which processes there are."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from typing import Final

from lua.answers import Presence
from lua.store import Store
from mesh import clock
from mesh.config import SelectorConfig
from mesh.errors import StoreError
from mesh.log import get_logger

KIND: Final = "selector"
#: Each pause is up to this much shorter, so that processes which started together do not stay together.
JITTER: Final = 0.2

log = get_logger()


class Announcer:
    """Renews this process's record until it ends."""

    def __init__(self, store: Store, identity: str, version: str, config: SelectorConfig) -> None:
        self._store = store
        self._identity = identity
        self._facts = Presence(socket.gethostname(), os.getpid(), version, clock.wall_ms())
        self._pause_ms = config.presence_ms

    async def run(self) -> None:
        """Announce for ever."""
        while True:
            try:
                await self._store.announce(KIND, self._identity, self._facts)
            except StoreError as error:
                log.warning("presence_failed", error=str(error))
            await asyncio.sleep(self._pause_ms / 1_000 * (1 - JITTER * random.random()))

    async def end(self) -> None:
        """Withdraw the record; if Redis cannot be asked it lapses."""
        try:
            await self._store.withdraw(KIND, self._identity)
        except StoreError as error:
            log.warning("presence_failed", error=str(error))
