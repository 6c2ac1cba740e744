"""Frames that are addressed to the broker itself: beats (liveness, window), credit and goodbyes of peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.core.counts import Counts
from broker.core.credit import KIND_OF_SIDE, Peer
from broker.core.directory import Directory, RemovalReason
from broker.core.queues import Envelope
from mesh.frames import Beat, Credit, Frame, Goodbye, decode_frame
from mesh.frames.packets import UNREADABLE
from mesh.words import DropReason

#: Removes a peer for a reason; frames that its removal causes are appended to the list.
RemovePeer = Callable[[Peer, RemovalReason, list[Envelope]], None]


class LinkFrames:
    """Applies link frames to the peers of a directory."""

    def __init__(self, directory: Directory, counts: Counts, remove_peer: RemovePeer) -> None:
        self._directory = directory
        self._counts = counts
        self._remove_peer = remove_peer

    def handle(self, envelope: Envelope, out: list[Envelope]) -> None:
        """Apply the frame of an admitted message; anything but a link frame is dropped."""
        peer = envelope.sender
        assert peer is not None, "only admitted messages are routed"
        self._counts.for_broker += 1
        try:
            frame = decode_frame(envelope.entry.frame)
            handler = HANDLERS[type(frame)]
        except (*UNREADABLE, KeyError):
            self._counts.dropped[DropReason.MALFORMED] += 1
            return
        if peer.is_known:
            handler(self, peer, frame, out)

    def _on_beat(self, peer: Peer, frame: Beat, out: list[Envelope]) -> None:
        if frame.kind != KIND_OF_SIDE[peer.side]:
            self._counts.dropped[DropReason.SOURCE] += 1
            self._remove_peer(peer, RemovalReason.WRONG_SIDE, out)
            return
        peer.window.size = max(0, frame.window)
        peer.window.on_consumed(frame.consumed)
        if peer.draining != frame.draining:
            peer.draining = frame.draining
            self._directory.refresh_routes()

    def _on_credit(self, peer: Peer, frame: Credit, out: list[Envelope]) -> None:
        peer.window.on_consumed(frame.consumed)

    def _on_goodbye(self, peer: Peer, frame: Goodbye, out: list[Envelope]) -> None:
        self._remove_peer(peer, RemovalReason.GOODBYE, out)


HANDLERS: Final[dict[type[Frame], Callable[[LinkFrames, Peer, Any, list[Envelope]], None]]] = {
    Beat: LinkFrames._on_beat,
    Credit: LinkFrames._on_credit,
    Goodbye: LinkFrames._on_goodbye,
}
