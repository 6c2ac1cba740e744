"""The runner: the only gateway to Redis. Sends script calls in batches and maps every failure to StoreError.

Calls wait in one queue per server. While an exchange is under way new calls accumulate; the next exchange sends them
together, as one EVALSHA per script and hash slot. Under load batches grow by themselves; an idle runner sends in the
same turn of the event loop. Over an open connection an exchange is a write and a callback; only what may have to wait
(connecting, sources of scripts that the server lost) runs in a task.

Scripts are idempotent, so failed calls are retried: after a broken connection, MOVED, ASK, and errors that pass while
the cluster changes (CLUSTERDOWN, TRYAGAIN, LOADING, READONLY). At most `redis.retries_max` times, with linear backoff
of `redis.retry_ms`. A timeout is not retried.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from redis import exceptions as failures

from lua.engine.batch import Answer, Batch, Call, CallGroup, PendingCall, answer_all, batches_of, command_of
from lua.engine.connection import Command, RedisConnection, check_server, connection_to
from lua.engine.loader import load_scripts
from lua.engine.slots import Address, SlotMap, slot_of
from mesh.config.network import RedisConfig
from mesh.errors import ConfigError, StoreError

__all__ = ["Call", "Runner"]

#: Transient errors, worth a retry with backoff: the cluster is changing or the server is starting.
_TRANSIENT: Final = (
    failures.TryAgainError,
    failures.ClusterDownError,
    failures.BusyLoadingError,
    failures.ReadOnlyError,
)
ASKING: Final = ("ASKING",)
_CLOSED: Final = "the store is closed"


class _ConnectionQueue:
    """Calls for one server, its connection, and the task that sends them while the connection is not open."""

    __slots__ = ("calls", "connection", "is_active", "task")

    def __init__(self, connection: RedisConnection) -> None:
        self.connection = connection
        self.calls: deque[PendingCall] = deque()
        self.task: asyncio.Task[None] | None = None
        #: An exchange is under way, or about to begin.
        self.is_active = False


class Runner:
    """Sends script calls in batches, over one connection per server, and retries them: scripts are idempotent."""

    def __init__(self, config: RedisConfig) -> None:
        self.is_cluster = config.cluster
        self._config = config
        self._scripts = load_scripts()
        self._slots = SlotMap()
        #: The server of `redis.url`: every call without a cluster, and calls of unknown slots with one.
        self._default = _ConnectionQueue(connection_to(config))
        self._queues: dict[Address, _ConnectionQueue] = {}
        self._pending = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def connect(cls, config: RedisConfig) -> Runner:
        """A runner that has reached Redis; StoreError with a clear text otherwise."""
        runner = cls(config)
        try:
            [info] = await runner._default.connection.exchange([("INFO", "server")])
            check_server(info, config)
            if config.cluster:
                await runner._read_slots(runner._default.connection)
        except BaseException as error:  # the gateway: redis-py lets stray exceptions out while a cluster changes
            await runner.close()  # also if the caller is cancelled: the connection may be half made
            if isinstance(error, StoreError | ConfigError) or not isinstance(error, Exception):
                raise
            raise StoreError(f"cannot use Redis: {error}") from error
        return runner

    def same_slot(self, keys: Iterable[str]) -> bool:
        """True if one call may use all these keys."""
        return not self.is_cluster or len({slot_of(key) for key in keys}) <= 1

    def check_order(self, script: str, args: Sequence[str], groups: Mapping[str, Sequence[str]]) -> None:
        """Assert that these are the script's arguments in header order: for calls whose arguments are lists."""
        self._scripts[script].check_order(args, groups)

    async def call(self, script: str, keys: list[str], args: Mapping[str, Any] | list[Any]) -> list[Any]:
        """The answer of one call; StoreError if it failed."""
        [answer] = await self.call_many(script, [Call(keys, args)])
        if isinstance(answer, StoreError):
            raise answer
        return answer

    async def call_many(self, script: str, calls: list[Call]) -> list[Answer]:
        """The answers in order, an error in place of each call that failed."""
        if not calls:
            return []
        if self._closed or self._pending + len(calls) > self._config.queue_max:
            return [StoreError(_CLOSED if self._closed else "too many pending calls to Redis")] * len(calls)
        count = len(calls)
        not_answered: list[Answer] = [StoreError("not answered")] * count
        group = CallGroup(not_answered, count, asyncio.get_running_loop().create_future())
        known = self._scripts[script]
        pending = [
            PendingCall(known, keys, known.arguments(args), self._slot_of(keys) if self.is_cluster else 0, group, index)
            for index, (keys, args) in enumerate(calls)
        ]
        self._pending += count
        self._enqueue(pending)
        await group.done
        return group.answers

    async def close(self) -> None:
        """Close every connection, also one that is being made; calls under way fail. No socket is open afterwards."""
        self._closed = True
        queues = [self._default, *self._queues.values()]
        tasks = [task for task in (*self._tasks, *(queue.task for queue in queues), self._refreshing) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for queue in queues:
            self._fail(queue.calls, _CLOSED)
            queue.calls.clear()
            await queue.connection.close()

    # queues
    def _slot_of(self, keys: list[str]) -> int:
        slots = {slot_of(key) for key in keys}
        assert len(slots) == 1, f"keys of one call in different slots: {keys}"
        return slots.pop()

    def _queue_of(self, slot: int) -> _ConnectionQueue:
        address = self._slots.owner(slot)
        if address is None:
            return self._default
        queue = self._queues.get(address)
        if queue is None:
            queue = self._queues[address] = _ConnectionQueue(connection_to(self._config, address))
        return queue

    def _enqueue(self, calls: Iterable[PendingCall]) -> None:
        for call in calls:
            queue = self._queue_of(call.slot) if self.is_cluster else self._default
            queue.calls.append(call)
            if not queue.is_active:
                queue.is_active = True
                # Not at once: other calls of this turn of the loop join the exchange.
                asyncio.get_running_loop().call_soon(self._send_queued, queue)

    def _send_queued(self, queue: _ConnectionQueue) -> None:
        """Send everything that is queued; one exchange at a time (two, if the server lost scripts).

        Every call is answered or scheduled for a retry.
        """
        if not queue.calls or self._closed:
            queue.is_active = False
            return
        sent = list(queue.calls)
        queue.calls.clear()
        batches = batches_of(sent, self._config.batch_max)
        if queue.connection.is_open:
            commands, confirmed = self._commands(batches)
            queue.connection.send(commands, partial(self._on_replies, queue, batches, confirmed))
        else:
            queue.task = asyncio.create_task(self._send_in_task(queue, batches))

    def _on_replies(
        self, queue: _ConnectionQueue, batches: list[Batch], confirmed: list[bool], replies: list[Any] | Exception
    ) -> None:
        """The end of an exchange over an open connection; begins the next one."""
        unknown = self._resolve_all(batches, self._read_replies(batches, confirmed, replies))
        if unknown:
            queue.task = asyncio.create_task(self._send_in_task(queue, unknown, load=True))
        else:
            self._send_queued(queue)

    async def _send_in_task(self, queue: _ConnectionQueue, batches: list[Batch], *, load: bool = False) -> None:
        """Send batches over a connection that may have to be opened; `load`: with sources, which the server lost."""
        try:
            unknown = self._resolve_all(batches, await self._exchange(queue.connection, batches, load=load))
            if unknown:
                self._resolve_all(unknown, await self._exchange(queue.connection, unknown, load=True))
        except BaseException as error:
            calls = [call for batch in batches for call in batch]
            self._fail(calls, _CLOSED if isinstance(error, asyncio.CancelledError) else repr(error))
            raise
        finally:
            queue.task = None
            self._send_queued(queue)

    def _resolve_all(self, batches: list[Batch], replies: list[Any]) -> list[Batch]:
        """Resolve the batches; returns those whose script the server does not know."""
        unknown = []
        for batch, reply in zip(batches, replies, strict=True):
            if self._closed:
                self._fail(batch, _CLOSED)
            elif isinstance(reply, failures.NoScriptError):
                unknown.append(batch)
            else:
                self._resolve(batch, reply)
        return unknown

    async def _exchange(
        self, connection: RedisConnection, batches: list[Batch], *, load: bool = False, asking: bool = False
    ) -> list[Any]:
        """A reply for each batch, or an error in its place. `load`: with the scripts; `asking`: as ASK demands."""
        commands, confirmed = self._commands(batches, load=load)
        replies: list[Any] | Exception
        try:
            replies = await connection.exchange([ASKING, *commands] if asking else commands)
            if asking:
                del replies[0]
        except Exception as error:  # noqa: BLE001 - the gateway: not all that redis-py raises is a RedisError
            replies = error
        return self._read_replies(batches, confirmed, replies)

    def _commands(self, batches: list[Batch], *, load: bool = False) -> tuple[list[Command], list[bool]]:
        """The commands of an exchange, and which batches replicas must confirm: then it ends with a WAIT."""
        wanted = self._config.wait_replicas
        commands: list[Command] = [command_of(batch, load=load) for batch in batches]
        if not wanted:
            return commands, []
        confirmed = [batch[0].script.confirmed for batch in batches]
        if any(confirmed):
            commands.append(("WAIT", wanted, self._config.wait_ms))
        return commands, confirmed

    def _read_replies(self, batches: list[Batch], confirmed: list[bool], replies: list[Any] | Exception) -> list[Any]:
        """A reply for each batch, or an error in its place.

        A write that too few replicas acknowledged is an error: a failover may lose it.
        """
        if isinstance(replies, Exception):
            return [replies] * len(batches)
        if any(confirmed):
            wanted = self._config.wait_replicas
            replicas = replies.pop()
            if not isinstance(replicas, int) or replicas < wanted:
                text = f"replicas that confirmed: {replicas} of {wanted}; a failover may lose the write"
                unconfirmed = StoreError(text)
                replies = [
                    unconfirmed if needs_replicas and isinstance(reply, list) else reply
                    for needs_replicas, reply in zip(confirmed, replies, strict=True)
                ]
        return replies

    def _resolve(self, batch: Batch, reply: Any) -> None:
        """Answer the calls of a batch by its reply, or retry them."""
        script = batch[0].script
        if isinstance(reply, list):
            if len(reply) != len(batch):
                self._fail(batch, f"{script.name}: {len(reply)} replies to {len(batch)} calls")
                return
            self._pending -= answer_all(batch, script.read(reply))
        elif isinstance(reply, failures.MovedError):
            self._slots.on_moved(batch[0].slot, (reply.host, reply.port))
            # Two servers that each redirect to the other have not learned of a change yet: retry with backoff.
            self._retry(batch, reply, delayed=batch[0].retries > 0)
        elif isinstance(reply, failures.AskError):
            self._spawn(self._send_asking(batch, (reply.host, reply.port)), batch)
        elif isinstance(reply, _TRANSIENT):
            self._retry(batch, reply, delayed=True)
        elif isinstance(reply, failures.ResponseError | StoreError):
            self._fail(batch, f"{script.name}: {reply}")
        elif isinstance(reply, failures.TimeoutError | TimeoutError):
            # No retry: it would only double the wait. The caller's own deadline decides.
            self._fail(batch, f"{script.name}: Redis did not reply in {self._config.timeout_ms} ms")
            if self.is_cluster:
                self._spawn(self._refresh(), [])
        else:
            # The first retry is immediate: a restart may have broken an idle connection. Later ones back off.
            self._retry(batch, reply, delayed=self.is_cluster or batch[0].retries > 0)

    # retries
    def _retry(self, batch: Batch, error: Exception, *, delayed: bool) -> None:
        """Send again, perhaps to another server; a call that has used up its retries fails."""
        retries_max = self._config.retries_max
        text = f"Redis cannot be used: {type(error).__name__}: {error}"
        self._fail([call for call in batch if call.retries >= retries_max], text)
        retried = [call for call in batch if call.retries < retries_max]
        for call in retried:
            call.retries += 1
        if retried and delayed:
            self._spawn(self._retry_later(retried), retried)
        else:
            self._enqueue(retried)

    async def _retry_later(self, batch: Batch) -> None:
        """Backoff, linear in the number of retries."""
        await asyncio.sleep(self._config.retry_ms * batch[0].retries / 1000)
        if self.is_cluster:
            await self._refresh()
        self._enqueue(batch)

    async def _send_asking(self, batch: Batch, address: Address) -> None:
        """The slot migrates to `address` (ASK): send there, this once."""
        connection = connection_to(self._config, address)
        try:
            [reply] = await self._exchange(connection, [batch], load=True, asking=True)
        finally:
            await connection.close()
        if isinstance(reply, failures.AskError):
            self._retry(batch, reply, delayed=True)
        else:
            self._resolve(batch, reply)

    async def _refresh(self) -> None:
        """Reload the slot map; concurrent callers share one reload."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._reload_slots())
        await asyncio.shield(self._refreshing)

    async def _reload_slots(self) -> None:
        try:
            for address in [*self._slots.owners(), None]:
                if await self._try_slots(address):
                    return
        finally:
            self._refreshing = None

    async def _try_slots(self, address: Address | None) -> bool:
        connection = connection_to(self._config, address)
        try:
            await self._read_slots(connection)
        except Exception:  # noqa: BLE001 - the gateway: any server will do, and if none replies the map stays
            return False
        finally:
            await connection.close()
        return True

    async def _read_slots(self, connection: RedisConnection) -> None:
        [reply] = await connection.exchange([("CLUSTER", "SLOTS")])
        if not isinstance(reply, list):
            raise StoreError(f"cannot read the slots of the cluster: {reply}")
        self._slots.replace(reply, default_host=connection.host)
        owners = self._slots.owners()
        idle = [address for address, queue in self._queues.items() if address not in owners and not queue.task]
        for queue in [self._queues.pop(address) for address in idle]:  # all at once: a close takes a turn of the loop
            await queue.connection.close()

    def _spawn(self, coroutine: Coroutine[Any, Any, None], batch: Batch) -> None:
        """Run beside the queues. If the runner is closed before it ends, or even before it begins, `batch` fails."""

        def end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                self._fail(batch, _CLOSED)

        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(end)

    def _fail(self, calls: Collection[PendingCall], text: str) -> None:
        self._pending -= answer_all(calls, [StoreError(text) for _ in calls])
