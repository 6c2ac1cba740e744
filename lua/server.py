"""One connection to one Redis server: a list of commands out, their replies back, in one round trip.

redis-py gives the connection (TLS, login, parser). Commands are packed by hiredis: a batch has hundreds of words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import hiredis
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.exceptions import ResponseError

from mesh.config import RedisConfig
from mesh.errors import ConfigError, StoreError

VERSION_MIN: Final = (7, 0)
#: hiredis declares its argument as a tuple of one.
_pack: Callable[[Any], bytes] = hiredis.pack_command
Command = Sequence[str | int | bytes]


class Server:
    """A server and our connection to it, which is made when it is needed. One exchange at a time."""

    def __init__(self, connection: AbstractConnection, host: str) -> None:
        self._connection = connection
        self._connect: Callable[[], Awaitable[None]] = connection.connect  # redis-py leaves it untyped
        self.host = host

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """The replies in order; an error reply is a value. Raises what redis-py raises if the connection fails."""
        connection = self._connection
        try:
            if not connection.is_connected:
                await self._connect()
            packed = [_pack(tuple(command)) for command in commands]
            await connection.send_packed_command(packed, check_health=False)
            return [await self._reply() for _ in commands]
        except BaseException:
            # Replies may still be on their way: this connection would hand them to the next exchange.
            await connection.disconnect(nowait=True)
            raise

    async def _reply(self) -> Any:
        try:
            return await self._connection.read_response()
        except ResponseError as error:
            return error

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.disconnect()


def server_at(config: RedisConfig, address: tuple[str, int] | None = None) -> Server:
    """The server that the configuration names, or the one at `address` with the same login."""
    try:
        options: dict[str, Any] = dict(parse_url(config.url))
    except ValueError as error:
        raise ConfigError(f"redis.url: {error}") from None
    make = options.pop("connection_class", Connection)
    if address:
        options |= {"host": address[0], "port": address[1]}
    if config.cluster:
        options.pop("db", None)
    seconds = config.timeout_ms / 1000
    timeouts = {"socket_timeout": seconds, "socket_connect_timeout": seconds}
    return Server(make(**options, **timeouts, protocol=2, driver_info=None), options.get("host", "localhost"))


def check_server(info: Any, config: RedisConfig) -> None:
    """StoreError or ConfigError unless `info`, the reply to INFO, is that of a server we can work with."""
    if not isinstance(info, bytes):
        raise StoreError(f"cannot use Redis: {info}")
    facts = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    version = facts.get("redis_version", "0")
    if tuple(int(part) for part in version.split(".")[:2]) < VERSION_MIN:
        raise StoreError(f"Redis is version {version}; 7.0 or newer is needed")
    is_cluster = "cluster" in (facts.get("redis_mode"), facts.get("server_mode"))  # Valkey renamed it
    if is_cluster != config.cluster:
        found = "is part of a cluster" if is_cluster else "is not part of a cluster"
        raise ConfigError(f"redis.cluster is {str(config.cluster).lower()}, but the server at redis.url {found}")
