"""Relay: runs the effects of RelaySender: messages of this edge to other sessions, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, get_args

from edge.core.timers import Schedule
from edge.link.core.rpc import Reply
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.rooms.core import relay_sender
from edge.rooms.core.events import MOVED, RelayCompleted, RelayReceived
from edge.rooms.core.relay_queue import RelayMessage
from edge.rooms.core.relay_sender import RelaySender
from mesh.clock import now_ms
from mesh.config import Config
from mesh.frames import Post, Posted
from mesh.log import get_logger
from mesh.words import PostFailure

log = get_logger()


class Member(Protocol):
    """A session at this edge."""

    @property
    def is_attached(self) -> bool:
        """True while its client is connected."""

    def handle(self, event: RelayReceived | RelayCompleted) -> None:
        """Handle an event."""


class Relay:
    """All messages between sessions that leave or reach this edge. `session_of` finds a session of this edge."""

    def __init__(
        self,
        config: Config,
        link: EdgeLink,
        metrics: EdgeMetrics,
        schedule: Schedule,
        session_of: Callable[[str], Member | None],
    ) -> None:
        self.sender = RelaySender(config.session, self._is_attached, schedule.waker(self.tick))
        self._park_ms = config.session.resume_ms
        self._link = link
        self._metrics = metrics
        self._session_of = session_of
        self._runners: dict[type, Callable[[Any], None]] = {
            relay_sender.DeliverHere: self._deliver_here,
            relay_sender.CallListener: self._call_listener,
            relay_sender.Complete: self._complete,
        }
        assert set(self._runners) == set(get_args(relay_sender.Effect)), "every effect has a runner"

    def __len__(self) -> int:
        return len(self.sender)

    def run(self, effects: Iterable[relay_sender.Effect]) -> None:
        """Run effects of the core."""
        for effect in effects:
            try:
                self._runners[type(effect)](effect)
            except Exception:
                # A failure costs one sender its message, and no other sender anything.
                log.exception("relay_failed", effect=type(effect).__name__)

    def tick(self, now: int) -> None:
        """Do what is due."""
        self.run(self.sender.tick(now))

    def on_post(self, post: Post, payload: list[bytes], now: int) -> None:
        """A message for a session of this edge. Without one, no reply: the sender retries and finds the owner."""
        session = self._session_of(post.session_id)
        if session is not None:
            session.handle(RelayReceived(post, payload[0]))

    def reply(self, post: Post, queue: str, verdict: str) -> None:
        """The outcome of a message that a session of this edge received."""
        if queue:
            self.run(self.sender.on_reply(queue, post.session_id, post.key, verdict))
        elif post.edge:
            self._link.to_peer(post.edge, Posted(post.ref, post.session_id, verdict))

    # --- runners ----------------------------------------------------------------------------------

    def _is_attached(self, session_id: str) -> bool:
        session = self._session_of(session_id)
        return session is not None and session.is_attached

    def _deliver_here(self, effect: relay_sender.DeliverHere) -> None:
        # In a later step, as through the mesh: the sender completes its own event first.
        self._link.soon(partial(self._deliver, effect.queue, effect.message))

    def _deliver(self, queue: str, message: RelayMessage) -> None:
        session, post = self._session_of(message.listener), self._post("", message)
        if session is None:
            self.reply(post, queue, MOVED)
        else:
            self.sender.delivering(queue, message, now_ms())
            session.handle(RelayReceived(post, message.body, queue))

    def _call_listener(self, effect: relay_sender.CallListener) -> None:
        message = effect.message
        self._link.ask(
            partial(self._post, message=message),
            message.listener,
            partial(self._on_reply, effect.queue, message),
            payload=(message.body,),
            timeout_ms=self._park_ms if message.park else 0,
        )

    def _post(self, ref: str, message: RelayMessage) -> Post:
        edge = self._link.identity
        return Post(ref, edge, message.listener, message.kind, message.key, message.park, message.room_code)

    def _on_reply(self, queue: str, message: RelayMessage, reply: Reply | None) -> None:
        verdict = reply.verdict if isinstance(reply, Posted) else PostFailure.NO_ANSWER
        self.run(self.sender.on_reply(queue, message.listener, message.key, verdict))

    def _complete(self, effect: relay_sender.Complete) -> None:
        self._metrics.posts_total.labels(effect.verdict).inc()
        sender = self._session_of(effect.message.sender) if effect.message.sender else None
        if sender is not None:
            sender.handle(RelayCompleted(effect.message, effect.verdict))
