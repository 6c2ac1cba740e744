"""The node SDK: a worker that runs jobs of the mesh.

    async def handler(job: Job) -> Result:
        return Result(text_asr="hello", text_translated="hola")

    asyncio.run(Node("ws://127.0.0.1:5010", handler, asr=["en"], semantic=["es"]).run())

A node dials out, registers, sends heartbeats and runs up to `max_jobs` handlers at once on the event loop. It
reconnects with backoff; handlers keep running meanwhile, and a result is retried until the mesh has acknowledged it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

from websockets.exceptions import ConnectionClosed

from linguamesh.errors import RETRYABLE_CODES, NodeRefused, Unreachable
from linguamesh.node.control import Control, ControlState, PairingRequests
from linguamesh.node.job import Gpu, Usage
from linguamesh.node.messages import Profile, job_assign_from
from linguamesh.node.runner import Handler, JobRunner
from linguamesh.websocket import (
    OPEN_TIMEOUT_S,
    MeshConnection,
    Outbound,
    decode_known,
    dial,
    ignore,
    reconnect_delay_s,
    with_path,
)
from mesh.errors import ErrorCode, PeerError
from mesh.messages import node as wire
from mesh.messages.base import encode_utf8
from mesh.websocket import Payload
from mesh.words import CloseCode

HEARTBEAT_INTERVAL_S: Final = 15.0
REGISTER_TIMEOUT_S: Final = 10.0
#: Time for running jobs to finish after `close`.
DRAIN_S: Final = 2.0

#: Refusals of a registration that are retried; all others are final.
_RETRYABLE_CODES: Final = RETRYABLE_CODES | {ErrorCode.NOT_REGISTERED.name}

_log = logging.getLogger("linguamesh.node")


class Node:
    """One worker node. Use `await node.run()`, or `async with node:` to run it in the background.

    url         ws://host:port of any edge; /ws/node is added
    handler     async function from Job to Result; raise JobFailed to fail with a code of your choice
    node_id     keep it across restarts; without one the mesh assigns it
    asr         languages it recognises (mandatory), semantic: languages it translates to (mandatory),
    tts         languages it speaks; none = all of `semantic`
    services    installed and ready services
    models      ids of models that jobs may require
    pairs       (from, to) it translates; none = from each of `asr` to each of `semantic`
    max_jobs    jobs at once
    gpus        the mesh accepts only nodes with a GPU; name yours
    region, gpu_tier    its location and class, for jobs that select by them
    tenant_id   it runs jobs of this tenant only
    usage       called before each heartbeat; without it the node reports no load of its machine
    binary_messages     receive audio and send speech without base64, if the mesh accepts that; otherwise in JSON
    on_control  called when an operator drains the node, or resumes it; running jobs finish in any case
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
        binary_messages: bool = True,
        heartbeat_interval_s: float = HEARTBEAT_INTERVAL_S,
        connect_timeout_s: float = OPEN_TIMEOUT_S,
    ) -> None:
        if max_jobs < 1:
            raise ValueError(f"max_jobs is {max_jobs}; a node runs at least one job")
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
            binary_messages=binary_messages,
        )
        self._usage = usage
        self._control = ControlState(on_control)
        self._heartbeat_interval_s = heartbeat_interval_s
        self._connect_timeout_s = connect_timeout_s
        self._outbound = Outbound(self.url)  # has a connection while registered
        #: True if it went into a live connection. Otherwise results are retried, and other messages are dropped.
        self._send = self._outbound.send
        self._jobs = JobRunner(handler, max_jobs, self._outbound)
        self._pairing = PairingRequests(self._send)
        self._handlers: dict[type, Callable[[Any], None]] = {
            wire.JobAssign: self._jobs.on_assign,
            wire.JobCancel: self._jobs.on_cancel,
            wire.JobResultAck: self._jobs.on_result_ack,
            wire.NodeStatus: self._control.on_status,
            wire.NodeControl: self._control.on_control,
            wire.PairingCodeMessage: self._pairing.on_code,
            wire.ErrorMessage: self._on_error,
        }
        self._registered = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None  # set by `async with`
        self._last_failure = "no answer"  # the error of the last connection attempt

    # --- lifecycle --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until cancelled, reconnecting with backoff; NodeRefused if the mesh refuses this node for good."""
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
            await self._jobs.cancel()

    @property
    def is_registered(self) -> bool:
        """True while the node has a connection on which the mesh has accepted it."""
        return self._registered.is_set()

    @property
    def status(self) -> str:
        """The mesh's status of the node: "registering", "ready", "degraded", "draining", "offline"; "" at first."""
        return self._control.status

    @property
    def draining(self) -> bool:
        """True while an operator drains the node: the mesh assigns no new jobs."""
        return self._control.draining

    async def registered(self) -> None:
        """Returns once the mesh has accepted the node and its first heartbeat is sent."""
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
            runner.result()  # raises the error that ended it
        raise Unreachable(f"not registered within {self._connect_timeout_s:g} s: {self._last_failure}")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runner = self._runner
        await self.close()
        if runner and error is None and not runner.cancelled():
            runner.result()

    async def close(self) -> None:
        """End a node started by `async with`: running jobs get DRAIN_S to finish, then the connection closes."""
        runner, self._runner = self._runner, None
        if runner:
            await self.drain()
            runner.cancel()
            await asyncio.wait({runner})

    async def drain(self) -> None:
        """Wait up to DRAIN_S for the running jobs; call it before you cancel `run`."""
        await self._jobs.drain(DRAIN_S)

    async def report_error(self, code: str, message: str, *, job_id: str | None = None) -> None:
        """Report that the node cannot finish that job, or (None) any of its jobs: other nodes get them at once."""
        details = {"job_id": job_id} if job_id else None
        error = wire.NodeError(node_id=self._jobs.node_id, code=code, message=message, details=details)
        await self._send(encode_utf8(error))

    async def pairing_code(self) -> tuple[str, float]:
        """A code by which one client can select this node (Session(pairing_code=...)), and its validity in seconds. It
        replaces the code before it. NodeRefused or Unreachable if there is none."""
        return await self._pairing.code(self._jobs.node_id)

    # --- one connection ---------------------------------------------------------------------------

    async def _serve_connection(self) -> None:
        """Register and serve until the connection ends; Unreachable if the registration fails."""
        connection = await dial(self.url, open_timeout_s=self._connect_timeout_s)
        heartbeats: asyncio.Task[None] | None = None
        try:
            await self._register(connection)
            heartbeats = asyncio.create_task(self._send_heartbeats(), name="heartbeat")
            await connection.receive(self._on_message)
            self._check_close_code(connection)
        finally:
            self._registered.clear()
            self._outbound.connection = None
            self._pairing.on_disconnected()
            if heartbeats:
                heartbeats.cancel()
                await asyncio.wait({heartbeats})
            await connection.close()

    async def _register(self, connection: MeshConnection) -> None:
        try:
            async with asyncio.timeout(REGISTER_TIMEOUT_S):
                connection.put(encode_utf8(self._profile.register(self.node_id)))
                ack = await self._await_ack(connection)
        except TimeoutError:
            raise Unreachable(f"{self.url} did not answer node_register within {REGISTER_TIMEOUT_S:g} s") from None
        except ConnectionClosed as error:
            self._check_close_code(connection)
            raise Unreachable(f"{self.url} closed the connection on node_register: {error}") from None
        self.node_id = self._jobs.node_id = ack.node_id
        self._control.on_registered(ack)
        self._outbound.connection = connection
        self._outbound.use_binary_messages = bool(ack.binary_messages)
        # Results first: the mesh counts a job as lost that is in neither a result nor the heartbeat.
        for result in self._jobs.unacked_results():
            self._jobs.send_result(result)
            await self._outbound.drained()
        await self._send_heartbeat()
        self._registered.set()
        _log.info("registered as %s at %s", self.node_id, self.url)

    async def _await_ack(self, connection: MeshConnection) -> wire.NodeRegisterAck:
        while True:
            data, is_text = await connection.take()
            message = decode_known(wire.decode_from_scheduler, bytes(data)) if is_text else None
            if isinstance(message, wire.NodeRegisterAck):
                return message
            if isinstance(message, wire.ErrorMessage):
                self._on_error(message)
                raise Unreachable(f"{self.url} cannot register nodes now: {message.code}: {message.message}")

    def _check_close_code(self, connection: MeshConnection) -> None:
        if connection.close_code == CloseCode.SUPERSEDED:
            code = ErrorCode.NODE_SUPERSEDED
            raise NodeRefused(code.name, f"another connection uses the node id {self.node_id}")
        _log.info("connection to %s ended: %s %s", self.url, connection.close_code, connection.close_reason)

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_interval_s)
            await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        message = self._profile.heartbeat(self._jobs.node_id, self._measure_usage(), self._jobs.running())
        await self._send(encode_utf8(message))

    def _measure_usage(self) -> Usage:
        try:
            return self._usage()
        except Exception:  # noqa: BLE001 - the user's code; a node that cannot measure its load still serves
            _log.exception("the usage callback failed; no load is reported")
            return Usage()

    # --- messages ---------------------------------------------------------------------------------

    def _on_message(self, data: Payload, is_text: bool) -> None:
        try:
            message = wire.decode_from_scheduler(bytes(data)) if is_text else job_assign_from(data)
        except PeerError as error:
            ignore(error)
            return
        handler = self._handlers.get(type(message))
        if handler:
            handler(message)

    def _on_error(self, error: wire.ErrorMessage) -> None:
        _log.warning("error %s: %s", error.code, error.message)
        refused = not self._registered.is_set() and error.code not in _RETRYABLE_CODES
        if refused or error.code == ErrorCode.NODE_SUPERSEDED.name:
            raise NodeRefused(error.code, error.message, _details(error))
        if error.code == ErrorCode.NOT_REGISTERED.name:
            raise Unreachable(f"{self.url} does not know this node: {error.message}")
        self._pairing.on_error(NodeRefused(error.code, error.message, _details(error)))


def _details(error: wire.ErrorMessage) -> dict[str, Any] | None:
    return error.details if isinstance(error.details, dict) else None
