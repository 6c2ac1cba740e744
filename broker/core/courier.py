"""Sends the envelopes of the switch, as one packet per receiver, and reports failed sends back to it.

Pure except for the function it is given, which passes a packet to a socket and returns the outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from broker.core.credit import Peer
from broker.core.queues import Envelope
from broker.core.switch import Switch
from mesh.frames.packets import encode_table


class Outcome(IntEnum):
    """Outcome of one send."""

    SENT = 0
    PIPE_FULL = 1  # the pipe is full
    UNREACHABLE = 2  # no such peer


_SENT: Final = Outcome.SENT
_PIPE_FULL: Final = Outcome.PIPE_FULL
_UNREACHABLE: Final = Outcome.UNREACHABLE

#: Passes a packet (table and blobs) to its receiver's socket, without blocking.
TrySend = Callable[[Peer, bytes, list[Any]], Outcome]


class Courier:
    """Sends envelopes, each receiver's in order. A failed send may yield more envelopes; they follow the others."""

    def __init__(self, switch: Switch, try_send: TrySend) -> None:
        self._switch = switch
        self._try_send = try_send
        self._frames_max = switch.limits.batch_frames_max
        self._bytes_max = switch.limits.batch_bytes_max

    def send_all(self, out: list[Envelope]) -> None:
        """Send all envelopes or redirect them. Terminates: a receiver that failed is blocked or removed."""
        todo = out
        while todo:
            by_receiver: dict[Peer, list[Envelope]] = {}
            for envelope in todo:
                peer = envelope.receiver
                assert peer is not None, "only envelopes with a receiver are sent"
                group = by_receiver.get(peer)
                if group is None:
                    by_receiver[peer] = [envelope]
                else:
                    group.append(envelope)
            again: list[Envelope] = []
            for peer, group in by_receiver.items():
                self._send_group(peer, group, again)
            todo = again

    def flush(self, wall_us: int) -> None:
        """Retry the queued frames of blocked peers."""
        for peer in list(self._switch.directory.blocked.values()):
            while peer.blocked and self._flush_batch(peer, wall_us):
                pass

    def _send_group(self, peer: Peer, group: list[Envelope], again: list[Envelope]) -> None:
        """Send what one peer gets: one packet, or several if one would exceed the bounds."""
        # Measuring an encoded packet is cheaper than measuring each of its frames.
        packet = _Packet(group) if len(group) <= self._frames_max else None
        if packet is not None and (packet.size <= self._bytes_max or len(group) == 1):
            self._send_batch(peer, group, packet, again)
            return
        for batch in self._batches(group):
            self._send_batch(peer, batch, _Packet(batch), again)

    def _batches(self, group: list[Envelope]) -> list[list[Envelope]]:
        """Cut what one peer gets into packets within the bounds."""
        batches: list[list[Envelope]] = []
        first = size = 0
        for place, envelope in enumerate(group):
            added = envelope.size()
            size += added
            if place > first and (size > self._bytes_max or place - first >= self._frames_max):
                batches.append(group[first:place])
                first, size = place, added
        batches.append(group[first:])
        return batches

    def _send_batch(self, peer: Peer, batch: list[Envelope], packet: _Packet, again: list[Envelope]) -> None:
        if not peer.is_known:
            outcome = _UNREACHABLE
        elif peer.blocked:
            outcome = _PIPE_FULL  # it must not overtake queued frames
        else:
            outcome = self._pass_on(peer, packet)
        if outcome is not _SENT:
            report = self._switch.on_pipe_full if outcome is _PIPE_FULL else self._switch.on_unreachable
            for envelope in batch:
                again.extend(report(envelope))

    def _flush_batch(self, peer: Peer, wall_us: int) -> bool:
        """Send one packet of a blocked peer's queue; True if another may follow."""
        switch = self._switch
        batch, expired = switch.flush(peer, wall_us)
        again: list[Envelope] = []
        outcome = self._pass_on(peer, _Packet(batch)) if batch else _SENT
        if outcome is _PIPE_FULL:
            switch.put_back(batch)
        elif outcome is _UNREACHABLE:
            for envelope in batch:
                again += switch.on_unreachable(envelope)
        self.send_all([*switch.expire(expired), *again])
        return outcome is _SENT

    def _pass_on(self, peer: Peer, packet: _Packet) -> Outcome:
        """Send one packet."""
        outcome = self._try_send(peer, packet.table, packet.blobs)
        if outcome is _SENT:
            counts = self._switch.counts
            counts.packets_out += 1
            counts.bytes_out += packet.size
        return outcome


class _Packet:
    """Encoded frames."""

    __slots__ = ("blobs", "size", "table")

    def __init__(self, batch: list[Envelope]) -> None:
        blobs: list[Any] = []
        entries = []
        for envelope in batch:
            entry = envelope.entry
            if envelope.blobs:
                entry.blob = len(blobs)
                blobs += envelope.blobs
            entries.append(entry)
        self.blobs = blobs
        self.table = encode_table(entries)
        self.size = len(self.table) + sum(map(len, blobs)) if blobs else len(self.table)
