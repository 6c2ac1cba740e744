"""The runner: sends batches of script calls to Redis. The only gateway to Redis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mesh.config import RedisConfig
from mesh.errors import StoreError


class Call(NamedTuple):
    """One call of a script: its keys in header order, its arguments by header name."""

    keys: list[str]
    args: Mapping[str, Any]


class Runner:
    """Script calls in batches, over one connection per server."""

    is_cluster: bool

    @classmethod
    async def connect(cls, config: RedisConfig) -> Runner:
        """A runner that has reached Redis; StoreError with a clear text otherwise."""
        raise NotImplementedError

    async def call(self, script: str, keys: list[str], args: Mapping[str, Any]) -> list[Any]:
        """The answer of one call; StoreError if it failed."""
        raise NotImplementedError

    async def call_many(self, script: str, calls: list[Call]) -> list[list[Any] | StoreError]:
        """The answers in order, an error in place of each call that failed."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close every connection."""
        raise NotImplementedError
