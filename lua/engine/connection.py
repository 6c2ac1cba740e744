"""One connection to one Redis server: a list of commands out, their replies back, in one round trip.

redis-py connects (TLS, login, database, keepalive). After that this module owns the transport: an exchange is one write
and one callback, a fraction of the cost of redis-py's streams, locks and timeouts. Knows nothing of scripts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

import hiredis
from redis.asyncio.connection import AbstractConnection, Connection, DefaultParser, parse_url
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import InvalidResponse

from mesh.config.network import RedisConfig
from mesh.errors import ConfigError, StoreError

VERSION_MIN: Final = (7, 0)
#: hiredis declares its argument as a tuple of one.
_pack: Callable[[Any], bytes] = hiredis.pack_command
#: redis-py's own mapping of error texts to exceptions.
_read_error: Callable[[str], Exception] = DefaultParser.parse_error
_INCOMPLETE: Final = object()
Command = Sequence[str | int | bytes]
Replies = list[Any]
OnReplies = Callable[["Replies | Exception"], None]


class _RedisProtocol(asyncio.Protocol):
    """An open connection: replies arrive in the order of the commands."""

    def __init__(self, transport: asyncio.Transport, timeout_s: float) -> None:
        self.is_open = True
        self._transport = transport
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(protocolError=InvalidResponse, replyError=_read_error, notEnoughData=_INCOMPLETE)
        #: Exchanges under way: number of expected replies, the replies so far, whom to call, start time.
        self._pending: deque[tuple[int, Replies, OnReplies, float]] = deque()
        #: One timer for all exchanges: it looks at the oldest. A timer for each would cost more than its exchange.
        self._timer: asyncio.TimerHandle | None = None

    def send(self, commands: Sequence[Command], on_replies: OnReplies) -> None:
        """Send the commands; `on_replies` gets their replies, or the error that closed the connection."""
        self._pending.append((len(commands), [], on_replies, self._loop.time()))
        if len(commands) == 1:
            self._transport.write(_pack(tuple(commands[0])))
        else:
            self._transport.write(b"".join([_pack(tuple(command)) for command in commands]))
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._check_timeout)

    def abort(self, error: Exception) -> None:
        """Close; every exchange under way fails with `error`. Replies still in transit are lost."""
        self.is_open = False
        self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            self._pending.popleft()[2](error)

    def _check_timeout(self) -> None:
        self._timer = None
        if self._pending:
            left_s = self._pending[0][3] + self._timeout_s - self._loop.time()
            if left_s <= 0:
                self.abort(TimeoutError())
            else:
                self._timer = self._loop.call_later(left_s, self._check_timeout)

    # called by the transport
    def data_received(self, data: bytes) -> None:
        """Parse replies; the last one may be incomplete."""
        complete: list[tuple[OnReplies, Replies]] = []
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _INCOMPLETE:
                expected, replies, on_replies, _ = self._pending[0]  # IndexError: a reply without a command
                replies.append(reply)
                if len(replies) == expected:
                    self._pending.popleft()
                    complete.append((on_replies, replies))
        except (InvalidResponse, IndexError) as error:
            self.abort(Disconnected(f"not the Redis protocol: {error}"))
        for on_replies, replies in complete:
            on_replies(replies)

    def connection_lost(self, error: Exception | None) -> None:
        """The server or the network closed it."""
        self.abort(Disconnected(str(error or "connection closed by server")))


class RedisConnection:
    """A connection to one server, opened on demand and reopened after a failure."""

    def __init__(self, connection: AbstractConnection, host: str, timeout_s: float) -> None:
        self._connection = connection
        self._connect: Callable[[], Awaitable[None]] = connection.connect  # redis-py leaves it untyped
        self._timeout_s = timeout_s
        self._protocol: _RedisProtocol | None = None
        self.host = host

    @property
    def is_open(self) -> bool:
        """True if the next exchange needs no new connection."""
        return self._protocol is not None and self._protocol.is_open

    def send(self, commands: Sequence[Command], on_replies: OnReplies) -> None:
        """Send over the open connection. `on_replies` gets the replies in order, or the error that closed it."""
        assert self._protocol is not None, "the connection is open"
        self._protocol.send(commands, on_replies)

    async def exchange(self, commands: Sequence[Command]) -> Replies:
        """The replies in order; an error reply is a value. Raises redis-py's errors if the connection fails."""
        protocol = self._protocol
        if protocol is None or not protocol.is_open:
            protocol = self._protocol = await self._open()
        done: asyncio.Future[Replies] = asyncio.get_running_loop().create_future()

        def on_replies(replies: Replies | Exception) -> None:
            if done.done():
                return
            if isinstance(replies, Exception):
                done.set_exception(replies)
            else:
                done.set_result(replies)

        protocol.send(commands, on_replies)
        try:
            return await done
        except asyncio.CancelledError:
            protocol.abort(Disconnected("the exchange was cancelled"))
            raise

    async def close(self) -> None:
        """Close the connection, also one cancelled while connecting; its socket is closed afterwards."""
        if self._protocol is not None:
            self._protocol.abort(Disconnected("closed"))
        if self._connection._writer is not None:
            # No TLS shutdown handshake: an unresponsive server would delay it.
            self._connection._writer.transport.abort()
        await self._connection.disconnect(nowait=True)
        await asyncio.sleep(0)  # the transport closes its socket in the next turn of the loop

    async def _open(self) -> _RedisProtocol:
        connection = self._connection
        await connection.disconnect(nowait=True)
        await self._connect()
        writer = connection._writer
        assert writer is not None, "redis-py has connected"
        protocol = _RedisProtocol(cast(asyncio.Transport, writer.transport), self._timeout_s)
        writer.transport.set_protocol(protocol)
        return protocol


def connection_to(config: RedisConfig, address: tuple[str, int] | None = None) -> RedisConnection:
    """A connection to the configured server, or to the one at `address` with the same login."""
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
    connection = make(**options, **timeouts, protocol=2, driver_info=None)
    return RedisConnection(connection, options.get("host", "localhost"), seconds)


def check_server(info: Any, config: RedisConfig) -> None:
    """StoreError or ConfigError unless `info`, the reply to INFO, describes a supported server."""
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
