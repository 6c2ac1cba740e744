"""The node SDK: a worker that takes jobs from the mesh.

    async def handler(job: Job) -> Result:
        return Result(text_asr="hello", text_translated="hola")

    asyncio.run(Node("ws://127.0.0.1:5010", handler, asr=["en"], semantic=["es"]).run())

A node dials out, registers, heartbeats and runs up to `max_jobs` handlers at once on the event loop. It reconnects by
itself; a handler does not notice, and its result is kept and sent again until the mesh has acknowledged it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from linguamesh.errors import JobFailed, NodeRefused, Unreachable
from linguamesh.node.control import Control, ControlState
from linguamesh.node.job import Gpu, Job, Result, Usage
from linguamesh.node.messages import Profile
from linguamesh.node.pairing import PairingRequests
from linguamesh.node.runner import Handler, JobRunner
from linguamesh.websocket import OPEN_TIMEOUT_S, dial, reconnect_delay_s, send, with_path
from mesh.errors import ErrorCode, PeerError
from mesh.messages import node as wire
from mesh.words import CloseCode

__all__ = ["Control", "Gpu", "Job", "JobFailed", "Node", "NodeRefused", "Result", "Unreachable", "Usage"]

HEARTBEAT_INTERVAL_S: Final = 15.0
REGISTER_TIMEOUT_S: Final = 10.0
#: How long running jobs may go on after `close`.
DRAIN_S: Final = 2.0

#: Refusals that may pass; all others are final.
_PASSING: Final = frozenset({
    ErrorCode.INTERNAL_ERROR.name,
    ErrorCode.SCHEDULER_DEPENDENCY_DOWN.name,
    ErrorCode.SLOW_DOWN.name,
    ErrorCode.NOT_REGISTERED.name,
})  # fmt: skip

_log = logging.getLogger("linguamesh.node")


class Node:
    """One worker node. Use `await node.run()`, or `async with node:` to have it run in the background.

    url         ws://host:port of any edge; /ws/node is added
    handler     async function from Job to Result; raise JobFailed to fail with a code of your choice
    node_id     keep it over restarts; without one the mesh assigns it
    asr         languages it recognises (mandatory), semantic: languages it translates to (mandatory),
    tts         languages it speaks; none = all of `semantic`
    services    installed and ready services
    models      ids of models that jobs may ask for
    pairs       (from, to) it translates; none = from each of `asr` to each of `semantic`
    max_jobs    jobs at once
    gpus        the mesh takes only nodes with a GPU; name yours
    region, gpu_tier    where it stands and how strong it is, for jobs that care
    tenant_id   it works for this tenant only
    usage       called before each heartbeat; without it the node reports no load of its machine
    on_control  called when an operator drains the node, or ends that; it finishes what it has in any case
    """

    def __init__(
        self,
        url: str,
        handler: Handler,
        *,
        asr: Sequence[str],
        semantic: Sequence[str],
        tts: Sequence[str] = (),
        node_id: str | None = None,
        services: Sequence[str] = ("asr", "nmt", "semantic", "tts"),
        models: Sequence[str] = (),
        pairs: Sequence[tuple[str, str]] = (),
        max_jobs: int = 4,
        gpus: Sequence[Gpu] = (Gpu("unspecified"),),
        region: str | None = None,
        gpu_tier: str | None = None,
        tenant_id: str | None = None,
        accept_public_jobs: bool = True,
        usage: Callable[[], Usage] = Usage,
        on_control: Callable[[Control], None] | None = None,
        heartbeat_interval_s: float = HEARTBEAT_INTERVAL_S,
        connect_timeout_s: float = OPEN_TIMEOUT_S,
    ) -> None:
        if max_jobs < 1:
            raise ValueError(f"max_jobs is {max_jobs}; a node takes at least one job")
        self.url = with_path(url, "/ws/node")
        self.node_id = node_id
        self.max_jobs = max_jobs
        self._profile = Profile(
            asr=list(asr),
            semantic=list(semantic),
            tts=list(tts),
            services=list(services),
            gpus=list(gpus),
            max_jobs=max_jobs,
            accept_public_jobs=accept_public_jobs,
            models=list(models),
            pairs=list(pairs),
            region=region,
            gpu_tier=gpu_tier,
            tenant_id=tenant_id,
        )
        self._usage = usage
        self._orders = ControlState(on_control)
        self._heartbeat_interval_s = heartbeat_interval_s
        self._connect_timeout_s = connect_timeout_s
        self._work = JobRunner(handler, max_jobs, self._send)
        self._pairing = PairingRequests(self._send)
        self._handlers: dict[type, Callable[[Any], None]] = {
            wire.JobAssign: self._work.on_assign,
            wire.JobCancel: self._work.on_cancel,
            wire.JobResultAck: self._work.on_result_ack,
            wire.NodeStatus: self._orders.on_status,
            wire.NodeControl: self._orders.on_control,
            wire.PairingCodeMessage: self._pairing.on_code,
            wire.ErrorMessage: self._on_error,
        }
        self._connection: ClientConnection | None = None  # set while registered
        self._registered = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None  # set by `async with`
        self._last_failure = "no answer"  # why the last dial came to nothing

    # --- life -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until cancelled; raises NodeRefused when the mesh will never take this node."""
        failures = 0
        try:
            while True:
                try:
                    await self._serve_connection()
                    failures = 0
                except Unreachable as error:
                    failures += 1
                    self._last_failure = str(error)
                    _log.warning("%s", error)
                await asyncio.sleep(reconnect_delay_s(failures))
        finally:
            await self._work.cancel()

    @property
    def is_registered(self) -> bool:
        """True while the node has a connection on which the mesh has accepted it."""
        return self._registered.is_set()

    @property
    def status(self) -> str:
        """How the mesh sees the node: "registering", "ready", "degraded", "draining", "offline"; "" at first."""
        return self._orders.status

    @property
    def draining(self) -> bool:
        """True while an operator takes the node out of service: no new jobs are to be expected."""
        return self._orders.draining

    async def registered(self) -> None:
        """Returns once the mesh has accepted the node and knows its first heartbeat."""
        await self._registered.wait()

    async def __aenter__(self) -> Node:
        self._runner = asyncio.create_task(self.run(), name=f"node {self.node_id}")
        waiter = asyncio.create_task(self.registered())
        try:
            await asyncio.wait(
                {self._runner, waiter}, timeout=self._connect_timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiter.cancel()
        if self._registered.is_set():
            return self
        failed = self._runner.done()
        runner = self._runner
        await self.close()
        if failed:
            runner.result()  # raises what ended it
        raise Unreachable(f"not registered within {self._connect_timeout_s:g} s: {self._last_failure}")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runner = self._runner
        await self.close()
        if runner and error is None and not runner.cancelled():
            runner.result()

    async def close(self) -> None:
        """End a node started by `async with`: running jobs get a moment to finish, then the connection closes."""
        runner, self._runner = self._runner, None
        if runner:
            await self.drain()
            runner.cancel()
            await asyncio.wait({runner})

    async def drain(self) -> None:
        """Give the jobs that run now a moment to finish; call it before you cancel `run`."""
        await self._work.drain(DRAIN_S)

    async def report_error(self, code: str, message: str, *, job_id: str | None = None) -> None:
        """Say that the node cannot finish that job, or (None) anything that it has: it goes to other nodes at once."""
        details = {"job_id": job_id} if job_id else None
        error = wire.NodeError(node_id=self._work.node_id, code=code, message=message, details=details)
        await self._send(wire.encode(error))

    async def pairing_code(self) -> tuple[str, float]:
        """A code by which one client can choose this node (Session(pairing_code=...)), and how many seconds it is good
        for. The code before it ends. NodeRefused or Unreachable if there is none."""
        return await self._pairing.code(self._work.node_id)

    # --- one connection ---------------------------------------------------------------------------

    async def _serve_connection(self) -> None:
        """Register and serve until the connection ends; Unreachable if it never came to a registration."""
        connection = await dial(self.url, open_timeout_s=self._connect_timeout_s)
        beats: asyncio.Task[None] | None = None
        try:
            await self._register(connection)
            beats = asyncio.create_task(self._heartbeat(), name="heartbeat")
            async for text in connection:
                self._on_message(text)
            self._check_close_code(connection)
        except ConnectionClosed:
            self._check_close_code(connection)
        finally:
            self._registered.clear()
            self._connection = None
            self._pairing.on_lost()
            if beats:
                beats.cancel()
                await asyncio.wait({beats})
            await connection.close()

    async def _register(self, connection: ClientConnection) -> None:
        try:
            async with asyncio.timeout(REGISTER_TIMEOUT_S):
                await connection.send(wire.encode(self._profile.register(self.node_id)))
                ack = await self._await_ack(connection)
        except TimeoutError:
            raise Unreachable(f"{self.url} did not answer node_register within {REGISTER_TIMEOUT_S:g} s") from None
        except ConnectionClosed as error:
            self._check_close_code(connection)
            raise Unreachable(f"{self.url} closed the connection on node_register: {error}") from None
        self.node_id = self._work.node_id = ack.node_id
        self._orders.on_registered(ack)
        self._connection = connection
        # Results first: a job of the last connection that is in neither a result nor the heartbeat counts as lost.
        for text in self._work.kept_results():
            await self._send(text)
        await self._beat()
        self._registered.set()
        _log.info("registered as %s at %s", self.node_id, self.url)

    async def _await_ack(self, connection: ClientConnection) -> wire.NodeRegisterAck:
        while True:
            message = _decoded(await connection.recv())
            if isinstance(message, wire.NodeRegisterAck):
                return message
            if isinstance(message, wire.ErrorMessage):
                self._on_error(message)
                raise Unreachable(f"{self.url} cannot register nodes now: {message.code}: {message.message}")

    def _check_close_code(self, connection: ClientConnection) -> None:
        if connection.close_code == CloseCode.SUPERSEDED:
            code = ErrorCode.NODE_SUPERSEDED
            raise NodeRefused(code.name, f"another connection uses the node id {self.node_id}")
        _log.info("connection to %s ended: %s %s", self.url, connection.close_code, connection.close_reason)

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_interval_s)
            await self._beat()

    async def _beat(self) -> None:
        beat = self._profile.heartbeat(self._work.node_id, self._measured(), self._work.running())
        await self._send(wire.encode(beat))

    def _measured(self) -> Usage:
        try:
            return self._usage()
        except Exception:  # noqa: BLE001 - the user's code; a node that cannot measure its load still works
            _log.exception("the usage callback failed; no load is reported")
            return Usage()

    async def _send(self, text: str) -> bool:
        """True if it went into a live connection. What did not is either kept (results) or not worth repeating."""
        connection = self._connection
        return connection is not None and await send(connection, text, self.url)

    # --- messages ---------------------------------------------------------------------------------

    def _on_message(self, text: str | bytes) -> None:
        message = _decoded(text)
        handler = self._handlers.get(type(message))
        if handler:
            handler(message)

    def _on_error(self, error: wire.ErrorMessage) -> None:
        _log.warning("the mesh says %s: %s", error.code, error.message)
        refused = not self._registered.is_set() and error.code not in _PASSING
        if refused or error.code == ErrorCode.NODE_SUPERSEDED.name:
            raise NodeRefused(error.code, error.message, _details(error))
        if error.code == ErrorCode.NOT_REGISTERED.name:
            raise Unreachable(f"{self.url} has forgotten this node: {error.message}")
        self._pairing.on_error(NodeRefused(error.code, error.message, _details(error)))


def _decoded(text: str | bytes) -> Any:
    """The message, or None for one that this version does not know."""
    try:
        return wire.decode_from_scheduler(text)
    except PeerError as error:
        _log.warning("ignored a message of the mesh: %s", error)
        return None


def _details(error: wire.ErrorMessage) -> dict[str, Any] | None:
    return error.details if isinstance(error.details, dict) else None
