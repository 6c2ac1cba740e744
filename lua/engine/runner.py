"""The runner: the only gateway to Redis. Sends script calls in batches and maps every failure to StoreError.

Calls wait in one lane per server. While a lane's exchange is under way new calls gather; they go out together in the
next one, as one EVALSHA per script and slot. So under load batches grow by themselves, and at rest a call goes at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final

from redis import exceptions as failures

from lua.engine.batch import Answer, Batch, Call, CallGroup, PendingCall, batches_of, evalsha, evaluate, read_answer
from lua.engine.connection import Command, RedisConnection, check_server, server_at
from lua.engine.loader import load_scripts
from lua.engine.slots import Address, SlotMap, slot_of
from mesh.config.network import RedisConfig
from mesh.errors import ConfigError, StoreError

__all__ = ["Call", "Runner"]

#: Replies that mean "not now": the cluster is changing or the server is starting.
_PASSING: Final = (
    failures.TryAgainError,
    failures.ClusterDownError,
    failures.BusyLoadingError,
    failures.ReadOnlyError,
)
ASKING: Final = ("ASKING",)
_CLOSED: Final = "the store is closed"


class _Lane:
    """Calls for one server."""

    __slots__ = ("queue", "server", "task")

    def __init__(self, server: RedisConnection) -> None:
        self.server = server
        self.queue: deque[PendingCall] = deque()
        self.task: asyncio.Task[None] | None = None


class Runner:
    """Script calls in batches, over one connection per server. Every script may safely be repeated, and is."""

    def __init__(self, config: RedisConfig) -> None:
        self.is_cluster = config.cluster
        self._config = config
        self._scripts = load_scripts()
        self._slots = SlotMap()
        self._home = _Lane(server_at(config))
        self._lanes: dict[Address, _Lane] = {}
        self._open = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def connect(cls, config: RedisConfig) -> Runner:
        """A runner that has reached Redis; StoreError with a clear text otherwise."""
        runner = cls(config)
        try:
            [info] = await runner._home.server.exchange([("INFO", "server")])
            check_server(info, config)
            if config.cluster:
                await runner._read_slots(runner._home.server)
        except BaseException as error:  # the gateway: redis-py lets stray exceptions out while a cluster changes
            await runner.close()  # also if the caller gives up: the connection may be half made
            if isinstance(error, StoreError | ConfigError) or not isinstance(error, Exception):
                raise
            raise StoreError(f"cannot use Redis: {error}") from error
        return runner

    def same_slot(self, keys: Iterable[str]) -> bool:
        """True if one call may use all these keys."""
        return not self.is_cluster or len({slot_of(key) for key in keys}) <= 1

    async def call(self, script: str, keys: list[str], args: Mapping[str, Any]) -> list[Any]:
        """The answer of one call; StoreError if it failed."""
        [answer] = await self.call_many(script, [Call(keys, args)])
        if isinstance(answer, StoreError):
            raise answer
        return answer

    async def call_many(self, script: str, calls: list[Call]) -> list[Answer]:
        """The answers in order, an error in place of each call that failed."""
        if not calls:
            return []
        if self._closed or self._open + len(calls) > self._config.queue_max:
            return [StoreError(_CLOSED if self._closed else "too many calls wait for Redis")] * len(calls)
        ticket = CallGroup(len(calls), asyncio.get_running_loop().create_future())
        known = self._scripts[script]
        waiting = [PendingCall(known, call, self._slot(call), ticket, place) for place, call in enumerate(calls)]
        self._open += len(waiting)
        self._enqueue(waiting)
        await ticket.done
        return ticket.answers

    async def close(self) -> None:
        """Close every connection, also one that is being made; calls under way fail. No socket is open afterwards."""
        self._closed = True
        lanes = [self._home, *self._lanes.values()]
        tasks = [task for task in (*self._tasks, *(lane.task for lane in lanes), self._refreshing) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in lanes:
            self._fail(lane.queue, _CLOSED)
            lane.queue.clear()
            await lane.server.close()

    # lanes
    def _slot(self, call: Call) -> int:
        if not self.is_cluster:
            return 0
        slots = {slot_of(key) for key in call.keys}
        assert len(slots) == 1, f"keys of one call in different slots: {call.keys}"
        return slots.pop()

    def _lane(self, slot: int) -> _Lane:
        address = self._slots.owner(slot) if self.is_cluster else None
        if address is None:
            return self._home
        lane = self._lanes.get(address)
        if lane is None:
            lane = self._lanes[address] = _Lane(server_at(self._config, address))
        return lane

    def _enqueue(self, waiting: Iterable[PendingCall]) -> None:
        for one in waiting:
            lane = self._lane(one.slot)
            lane.queue.append(one)
            if lane.task is None:
                lane.task = asyncio.create_task(self._drain(lane))

    async def _drain(self, lane: _Lane) -> None:
        taken: list[PendingCall] = []
        try:
            while lane.queue:
                taken = list(lane.queue)
                lane.queue.clear()
                await self._flush(lane.server, batches_of(taken, self._config.batch_max))
        except BaseException as error:
            self._fail(taken, _CLOSED if isinstance(error, asyncio.CancelledError) else repr(error))
            raise
        finally:
            lane.task = None

    async def _flush(self, server: RedisConnection, batches: list[Batch]) -> None:
        """One exchange (two, if the server lost scripts); every call is answered, or set to be repeated."""
        commands = [evalsha(batch) for batch in batches]
        unknown: list[Batch] = []
        for batch, reply in zip(batches, await self._exchange(server, batches, commands), strict=True):
            if isinstance(reply, failures.NoScriptError):
                unknown.append(batch)
            else:
                self._settle(batch, reply)
        if unknown:
            commands = [evaluate(batch) for batch in unknown]
            for batch, reply in zip(unknown, await self._exchange(server, unknown, commands), strict=True):
                self._settle(batch, reply)

    async def _exchange(self, server: RedisConnection, batches: list[Batch], commands: list[Command]) -> list[Any]:
        """A reply for each batch, or an error in its place. An unconfirmed write is one: nobody knows if it stays."""
        wanted = self._config.wait_replicas
        confirmed = [bool(wanted) and batch[0].script.confirmed for batch in batches]
        if any(confirmed):
            commands = [*commands, ("WAIT", wanted, self._config.wait_ms)]
        try:
            replies = await server.exchange(commands)
        except Exception as error:  # noqa: BLE001 - the gateway: not all that redis-py raises is a RedisError
            return [error] * len(batches)
        if commands[0] == ASKING:
            del replies[0]
        if any(confirmed):
            replicas = replies.pop()
            if not isinstance(replicas, int) or replicas < wanted:
                doubt = StoreError(f"replicas that confirmed: {replicas} of {wanted}; whether it stays is unknown")
                replies = [
                    doubt if unsure and isinstance(reply, list) else reply
                    for unsure, reply in zip(confirmed, replies, strict=True)
                ]
        return replies

    def _settle(self, batch: Batch, reply: Any) -> None:
        script = batch[0].script
        if isinstance(reply, list):
            for one, part in zip(batch, reply, strict=True):
                self._answer(one, read_answer(script, part))
        elif isinstance(reply, failures.MovedError):
            self._slots.note_move(batch[0].slot, (reply.host, reply.port))
            # Two servers that each call the other the owner have not heard of a change yet.
            self._repeat(batch, reply, delayed=batch[0].tries > 0)
        elif isinstance(reply, failures.AskError):
            self._spawn(self._ask(batch, (reply.host, reply.port)), batch)
        elif isinstance(reply, _PASSING):
            self._repeat(batch, reply, delayed=True)
        elif isinstance(reply, failures.ResponseError | StoreError):
            self._fail(batch, f"{script.name}: {reply}")
        elif isinstance(reply, failures.TimeoutError | TimeoutError):
            # Repeating would only double the wait: the caller's own deadline decides.
            self._fail(batch, f"{script.name}: Redis did not answer in {self._config.timeout_ms} ms")
            if self.is_cluster:
                self._spawn(self._refresh(), [])
        else:
            # An idle connection that a restart broke is worth one repeat at once; after that, patience.
            self._repeat(batch, reply, delayed=self.is_cluster or batch[0].tries > 0)

    # repeats
    def _repeat(self, batch: Batch, error: Exception, *, delayed: bool) -> None:
        """Send again, perhaps elsewhere; a call that was repeated too often fails."""
        again = [one for one in batch if one.tries < self._config.retries_max]
        self._fail(
            [one for one in batch if one.tries >= self._config.retries_max],
            f"Redis cannot be used: {type(error).__name__}: {error}",
        )
        for one in again:
            one.tries += 1
        if again and delayed:
            self._spawn(self._repeat_later(again), again)
        else:
            self._enqueue(again)

    async def _repeat_later(self, batch: Batch) -> None:
        await asyncio.sleep(self._config.retry_ms * batch[0].tries / 1000)
        if self.is_cluster:
            await self._refresh()
        self._enqueue(batch)

    async def _ask(self, batch: Batch, address: Address) -> None:
        """The slot is on its way to `address`: ask there, this once."""
        server = server_at(self._config, address)
        try:
            [reply] = await self._exchange(server, [batch], [ASKING, evaluate(batch)])
        finally:
            await server.close()
        if isinstance(reply, failures.AskError):
            self._repeat(batch, reply, delayed=True)
        else:
            self._settle(batch, reply)

    async def _refresh(self) -> None:
        """Learn the slots again; callers at the same time share one look."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._look_for_slots())
        await asyncio.shield(self._refreshing)

    async def _look_for_slots(self) -> None:
        try:
            for address in [*self._slots.owners(), None]:
                if await self._try_slots(address):
                    return
        finally:
            self._refreshing = None

    async def _try_slots(self, address: Address | None) -> bool:
        server = server_at(self._config, address)
        try:
            await self._read_slots(server)
        except Exception:  # noqa: BLE001 - the gateway: any server will do, and if none answers we keep what we know
            return False
        finally:
            await server.close()
        return True

    async def _read_slots(self, server: RedisConnection) -> None:
        [reply] = await server.exchange([("CLUSTER", "SLOTS")])
        if not isinstance(reply, list):
            raise StoreError(f"cannot read the slots of the cluster: {reply}")
        self._slots.replace(reply, asked=server.host)
        owners = self._slots.owners()
        idle = [address for address, lane in self._lanes.items() if address not in owners and not lane.task]
        for lane in [self._lanes.pop(address) for address in idle]:  # all at once: a close takes a turn of the loop
            await lane.server.close()

    def _spawn(self, coroutine: Coroutine[Any, Any, None], batch: Batch) -> None:
        """Run beside the lanes. If the runner is closed before it ends, or even before it begins, `batch` fails."""

        def end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                self._fail(batch, _CLOSED)

        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(end)

    # answers
    def _answer(self, one: PendingCall, answer: Answer) -> None:
        if one.answer(answer):
            self._open -= 1

    def _fail(self, waiting: Iterable[PendingCall], text: str) -> None:
        for one in waiting:
            self._answer(one, StoreError(text))
