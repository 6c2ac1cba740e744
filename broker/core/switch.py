"""Routing decisions of a broker: packets in, envelopes to send out, time as an argument. Knows no sockets, no clock.

The rim passes in the packets of one wake-up (`receive`). The courier sends the returned envelopes, those of one
receiver in order and as one packet, and reports each one that failed (`on_pipe_full`, `on_unreachable`), which may
yield more envelopes. Between wake-ups it calls `flush` and `tick`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.core.admission import Admission, Dropped
from broker.core.counts import Counts
from broker.core.credit import Peer, Side
from broker.core.directory import Directory, RemovalReason
from broker.core.link_frames import LinkFrames
from broker.core.queues import Envelope, Parts
from mesh.frames import (
    BROKER,
    Bounce,
    BrokerBeat,
    Busy,
    Frame,
    Head,
    Lane,
    encode,
)
from mesh.frames.packets import NO_PAYLOAD, seal, seal_payload
from mesh.words import BounceReason

_CONTROL: Final = int(Lane.CONTROL)
# Looking up a member of an enum costs as much as a call.
_FRONT: Final = Side.FRONT
_BACK: Final = Side.BACK


class SwitchLimits(NamedTuple):
    """Limits of a switch, from the configuration."""

    cells: int
    beat_ms: int
    dead_ms: int
    queue_max: int
    queue_bytes_max: int
    peers_max: int
    busy_retry_ms: int
    batch_frames_max: int
    batch_bytes_max: int
    inline_bytes_max: int


class Switch:
    """One broker's state."""

    def __init__(
        self, *, broker_id: str, boot_id: str, limits: SwitchLimits, connection_start: int, now_ms: int
    ) -> None:
        """`connection_start`: first connection number, random, so that two runs of a broker differ."""
        self.broker_id = broker_id
        self.boot_id = boot_id
        self.limits = limits
        self.counts = Counts()
        self.directory = Directory(
            cells=limits.cells,
            peers_max=limits.peers_max,
            queue_max=limits.queue_max,
            queue_bytes_max=limits.queue_bytes_max,
            connection_start=connection_start,
        )
        #: Time of the next `tick`.
        self.next_due_ms = now_ms + limits.beat_ms
        self._admission = Admission(self.directory, self.counts, self._greet)
        self._wall_ms = 0
        self._link_frames = LinkFrames(self.directory, self.counts, self._remove)

    # --- events -----------------------------------------------------------------------------------

    def receive(self, front: Sequence[Parts], back: Sequence[Parts], now_ms: int, wall_us: int) -> list[Envelope]:
        """Route the frames of both sockets' packets, control first."""
        self._wall_ms = wall_us // 1_000
        admit, route = self._admission.admit, self._route
        out: list[Envelope] = []
        work: list[Envelope] = []
        for side, batch in ((_FRONT, front), (_BACK, back)):
            for parts in batch:
                try:
                    admitted = admit(side, parts, now_ms, wall_us, out)
                except Dropped as dropped:
                    self.counts.dropped[dropped.reason] += dropped.frames
                    continue
                for envelope in admitted:
                    if envelope.entry.lane:
                        work.append(envelope)
                    else:
                        route(envelope, out)
        for envelope in work:
            route(envelope, out)
        return out

    def on_pipe_full(self, envelope: Envelope) -> list[Envelope]:
        """The receiver's pipe is full: reroute if any selector may take it, else queue, else bounce."""
        peer = _receiver(envelope)
        if not peer.is_known:
            return self.on_unreachable(envelope)
        self._undo_send(peer, envelope)
        if not envelope.is_queueable:
            return []
        envelope.credited = False
        self.directory.block(peer)
        out: list[Envelope] = []
        if envelope.sender is not None and envelope.entry.to == "":
            self._to_selector(envelope, out)
        else:
            self._enqueue(peer, envelope, out)
        return out

    def on_unreachable(self, envelope: Envelope) -> list[Envelope]:
        """The receiver is unreachable: remove it and redirect its frames."""
        peer = _receiver(envelope)
        self._undo_send(peer, envelope)
        out: list[Envelope] = []
        if peer.is_known:
            peer.queues.put_back(envelope)  # redirected with the rest, and first
            self._remove(peer, RemovalReason.UNREACHABLE, out)
        else:
            self._redirect(envelope, out)
        return out

    def tick(self, now_ms: int) -> list[Envelope]:
        """Remove peers that were silent for dead_ms, and beat to the rest. Call it no later than `next_due_ms`."""
        if now_ms < self.next_due_ms:
            return []
        late_ms = now_ms - self.next_due_ms
        out: list[Envelope] = []
        for peer in list(self.directory.peers.values()):
            # If this process was stalled, their beats may still be in the socket.
            peer.last_seen_ms += late_ms if late_ms >= self.limits.beat_ms else 0
            if now_ms - peer.last_seen_ms >= self.limits.dead_ms:
                self._remove(peer, RemovalReason.SILENT, out)
        out += [self._beat(peer) for peer in self.directory.peers.values()]
        self.next_due_ms = now_ms + self.limits.beat_ms
        return out

    def flush(self, peer: Peer, wall_us: int) -> tuple[list[Envelope], list[Envelope]]:
        """Pop a packet of a peer's queued frames, and the expired ones before it; unblocks the peer if none is left.

        The caller reports a failed send (`put_back`, `on_unreachable`) and then passes the expired ones to `expire`.
        """
        self._wall_ms = wall_us // 1_000
        batch: list[Envelope] = []
        expired: list[Envelope] = []
        size = 0
        while len(batch) < self.limits.batch_frames_max and (envelope := peer.queues.next()) is not None:
            if 0 < envelope.entry.deadline_ms < self._wall_ms:
                expired.append(envelope)
            else:
                size += envelope.size()
                if batch and size > self.limits.batch_bytes_max:
                    break
                self._send(peer, envelope, batch)
            peer.queues.pop()
        if not batch and peer.is_known:
            self.directory.unblock(peer)
        return batch, expired

    def put_back(self, batch: list[Envelope]) -> None:
        """Flushed frames could not be sent; they return to the heads of their queues."""
        for envelope in reversed(batch):
            peer = _receiver(envelope)
            self._undo_send(peer, envelope)
            peer.queues.put_back(envelope)

    def expire(self, expired: list[Envelope]) -> list[Envelope]:
        """Bounce the frames that expired in a queue."""
        out: list[Envelope] = []
        for envelope in expired:
            self._bounce(envelope, BounceReason.EXPIRED, out)
        return out

    # --- state ------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants; tests call it after every step."""
        self.directory.check()
        queued = sum(peer.queues.forwarded() for peer in self.directory.peers.values())
        lost = self.counts.unaccounted(queued)
        assert lost == 0, f"{lost} frames neither sent, nor queued, nor replied to"

    # --- routing ----------------------------------------------------------------------------------

    def _route(self, envelope: Envelope, out: list[Envelope]) -> None:
        entry = envelope.entry
        to = entry.to
        # Neither "" nor BROKER is the name of a peer.
        peer = self.directory.by_name.get(to)
        if 0 < entry.deadline_ms < self._wall_ms:
            self._bounce(envelope, BounceReason.EXPIRED, out)
        elif peer is not None:
            if peer.blocked:
                self._enqueue(peer, envelope, out)
            else:
                self._send(peer, envelope, out)
        elif not to:
            self._to_selector(envelope, out)
        elif to == BROKER:
            self._link_frames.handle(envelope, out)
        else:
            self._bounce(envelope, BounceReason.UNROUTABLE, out)

    def _to_selector(self, envelope: Envelope, out: list[Envelope]) -> None:
        """Send to the first live selector with credit and an open pipe; else queue for one; else Bounce or Busy."""
        routes, cell = self.directory.routes, envelope.entry.cell
        order = routes.orders.get(cell) or routes.order(cell)
        work = bool(envelope.entry.lane)
        for peer in order:
            if not peer.blocked and (not work or (peer.credit() > 0 and not peer.draining)):
                envelope.credited = work
                if peer is not order[0]:
                    self.counts.spilled += 1
                self._send(peer, envelope, out)
                return
        self._enqueue_for_selector(order, envelope, out)

    def _enqueue_for_selector(self, order: list[Peer], envelope: Envelope, out: list[Envelope]) -> None:
        work = bool(envelope.entry.lane)
        candidates = [peer for peer in order if not work or (peer.credit() > 0 and not peer.draining)]
        for peer in candidates:
            if peer.queues.has_capacity(envelope):
                envelope.credited = work
                self._enqueue(peer, envelope, out)
                return
        if not order:
            self._bounce(envelope, BounceReason.NO_SELECTOR, out)
        elif candidates:
            self._bounce(envelope, BounceReason.QUEUE_FULL, out)
        else:
            self._busy(envelope, out)

    def _send(self, peer: Peer, envelope: Envelope, out: list[Envelope]) -> None:
        envelope.receiver = peer
        if envelope.credited:
            peer.window.sent += 1
        if envelope.sender is not None:
            self.counts.frames_out[envelope.entry.lane] += 1
        out.append(envelope)

    def _undo_send(self, peer: Peer, envelope: Envelope) -> None:
        """The frame was not sent after all: undo the counts of `_send`."""
        if envelope.credited:
            peer.window.sent -= 1
        if envelope.sender is not None:
            self.counts.frames_out[envelope.entry.lane] -= 1

    def _enqueue(self, peer: Peer, envelope: Envelope, out: list[Envelope]) -> None:
        if peer.queues.has_capacity(envelope):
            peer.queues.put(envelope)
        else:
            self._bounce(envelope, BounceReason.QUEUE_FULL, out)

    def _redirect(self, envelope: Envelope, out: list[Envelope]) -> None:
        """Reroute a frame whose receiver was removed, or bounce it."""
        envelope.credited = False
        if envelope.sender is None:
            self.counts.dropped[BounceReason.UNROUTABLE] += envelope.is_queueable
        elif envelope.entry.to == "":
            self._to_selector(envelope, out)
        else:
            self._bounce(envelope, BounceReason.UNROUTABLE, out)

    # --- replies ----------------------------------------------------------------------------------

    def _bounce(self, envelope: Envelope, reason: BounceReason, out: list[Envelope]) -> None:
        if envelope.sender is None:
            self.counts.dropped[reason] += 1
            return
        self.counts.bounced[reason] += 1
        self._reply(envelope.sender, envelope, Bounce(reason=reason), out)

    def _busy(self, envelope: Envelope, out: list[Envelope]) -> None:
        assert envelope.sender is not None, "the broker's own frames have an address"
        self.counts.busy += 1
        self._reply(envelope.sender, envelope, Busy(retry_after_ms=self.limits.busy_retry_ms), out)

    def _reply(self, sender: Peer, envelope: Envelope, frame: Frame, out: list[Envelope]) -> None:
        if not sender.is_known:
            self.counts.dropped[BounceReason.UNROUTABLE] += 1
            return
        entry = envelope.entry
        head = Head(entry.lane, entry.to, entry.cell, entry.source, entry.sent_us, entry.deadline_ms)
        reply = self._own_message(sender, frame, encode(head), bytes(entry.frame))
        if sender.blocked:
            self._enqueue(sender, reply, out)
        else:
            out.append(reply)

    def _beat(self, peer: Peer) -> Envelope:
        live = len(self.directory.selectors())
        envelope = self._own_message(peer, BrokerBeat(self.broker_id, self.boot_id, live, peer.window.sent))
        envelope.is_queueable = False
        return envelope

    def _own_message(self, peer: Peer, frame: Frame, *payload: bytes) -> Envelope:
        head = Head(_CONTROL, peer.name, 0, BROKER, self._wall_ms * 1_000)
        sealed, blobs = seal_payload(payload, self.limits.inline_bytes_max) if payload else (NO_PAYLOAD, [])
        return Envelope(seal(head, frame, sealed, len(blobs)), None, blobs, peer)

    # --- peers ------------------------------------------------------------------------------------

    def _greet(self, peer: Peer, out: list[Envelope]) -> None:
        out.append(self._beat(peer))

    def _remove(self, peer: Peer, reason: RemovalReason, out: list[Envelope]) -> None:
        """Remove a peer and redirect its queued frames."""
        if not peer.is_known:
            return
        self.directory.remove(peer, reason)
        while (envelope := peer.queues.pop()) is not None:
            self._redirect(envelope, out)


def _receiver(envelope: Envelope) -> Peer:
    assert envelope.receiver is not None, "only envelopes with a receiver are sent"
    return envelope.receiver
