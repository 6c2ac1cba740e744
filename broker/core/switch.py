"""The broker's decisions: messages in, mail to send out, time as an argument. Knows no sockets and no clock.

The rim hands over what one wake-up drained (`receive`), sends the returned mail in order, and reports each one that
failed (`stuck`, `gone`), which may yield more mail. Between wake-ups it calls `flush` and `tick`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from broker.core.admission import UNREADABLE, Dropped, check_stranger, read_head
from broker.core.counts import Counts
from broker.core.credit import KIND_OF_SIDE, Peer, Side
from broker.core.directory import Directory
from broker.core.queues import Envelope, Parts
from mesh.frames import (
    BROKER,
    FRAME_VERSION,
    Beat,
    Bounce,
    BrokerBeat,
    Busy,
    Credit,
    Frame,
    Goodbye,
    Head,
    Lane,
    decode_frame,
    encode,
)
from mesh.words import BounceReason, DropReason

# Plain integers: looking up a member of an enum costs more than the comparison.
_CONTROL: Final = int(Lane.CONTROL)
_WORK: Final = int(Lane.WORK)


class SwitchLimits(NamedTuple):
    """The limits a switch works by; all from the configuration."""

    cells: int
    beat_ms: int
    dead_ms: int
    queue_max: int
    peers_max: int
    busy_retry_ms: int


class Switch:
    """One broker's state."""

    def __init__(self, *, broker_id: str, boot_id: str, rules: SwitchLimits, acquaintances: int, now_ms: int) -> None:
        """`acquaintances` is where the numbering of peers starts: a random number, so that two lives differ."""
        self.broker_id = broker_id
        self.boot_id = boot_id
        self.rules = rules
        self.counts = Counts()
        self.directory = Directory(
            cells=rules.cells, peers_max=rules.peers_max, queue_max=rules.queue_max, acquaintances=acquaintances
        )
        self._next_beat_ms = now_ms + rules.beat_ms
        self._wall_ms = 0
        self._by_address: dict[str, Callable[[Envelope, list[Envelope]], None]] = {
            "": self._to_selector,
            BROKER: self._to_broker,
        }

    # --- events -----------------------------------------------------------------------------------

    def receive(self, front: Sequence[Parts], back: Sequence[Parts], now_ms: int, wall_us: int) -> list[Envelope]:
        """Take what both sockets had, control first."""
        self._wall_ms = wall_us // 1_000
        out: list[Envelope] = []
        work: list[Envelope] = []
        for side, batch in ((Side.FRONT, front), (Side.BACK, back)):
            for parts in batch:
                try:
                    mail = self._admit(side, parts, now_ms, out)
                except Dropped as dropped:
                    self.counts.dropped[dropped.reason] += 1
                    continue
                self.counts.hop.add(wall_us - mail.head.sent_us)
                if mail.head.lane == _CONTROL:
                    self._pass_on(mail, out)
                else:
                    work.append(mail)
        for mail in work:
            self._pass_on(mail, out)
        return out

    def stuck(self, mail: Envelope) -> list[Envelope]:
        """The receiver's pipe is full: try another selector if any will do, else queue, else bounce."""
        peer = _receiver(mail)
        if not peer.present:
            return self.gone(mail)
        self._count_handed(peer, mail, -1)
        if not mail.keep:
            return []
        mail.credited = False
        self.directory.block(peer)
        out: list[Envelope] = []
        if mail.sender is not None and mail.head.to == "":
            self._to_selector(mail, out)
        else:
            self._enqueue(peer, mail, out)
        return out

    def gone(self, mail: Envelope) -> list[Envelope]:
        """There is no such peer any more: forget it and find another way for its mail."""
        peer = _receiver(mail)
        self._count_handed(peer, mail, -1)
        out: list[Envelope] = []
        if peer.present:
            peer.lanes.put_back(mail)  # it is redirected with the rest, and before it
            self._forget(peer, "unreachable", out)
        else:
            self._redirect(mail, out)
        return out

    def tick(self, now_ms: int) -> list[Envelope]:
        """Forget who was silent too long, and beat to the rest. Call it no later than `next_due_ms`."""
        if now_ms < self._next_beat_ms:
            return []
        late_ms = now_ms - self._next_beat_ms
        out: list[Envelope] = []
        for peer in list(self.directory.peers.values()):
            # If we ourselves were held up, their beats may still be waiting in the socket.
            peer.heard_ms += late_ms if late_ms >= self.rules.beat_ms else 0
            if now_ms - peer.heard_ms >= self.rules.dead_ms:
                self._forget(peer, "silent", out)
        out += [self._beat(peer) for peer in self.directory.peers.values()]
        self._next_beat_ms = now_ms + self.rules.beat_ms
        return out

    def flush(self, peer: Peer, wall_us: int) -> Iterator[Envelope]:
        """The mail that waits for a peer, one by one; the caller stops at the first failure (`put_back` or `gone`).

        Bounces of what has expired meanwhile come in between; their receiver is another.
        """
        self._wall_ms = wall_us // 1_000
        while peer.present and (mail := peer.lanes.pop()) is not None:
            if self._expired(mail.head):
                out: list[Envelope] = []
                self._bounce(mail, BounceReason.EXPIRED, out)
                yield from out
                continue
            mail.receiver = peer
            self._count_handed(peer, mail, 1)
            yield mail
        if peer.present:
            self.directory.unblock(peer)

    def put_back(self, mail: Envelope) -> None:
        """A flushed message did not go out after all; it stays first in its queue."""
        peer = _receiver(mail)
        self._count_handed(peer, mail, -1)
        peer.lanes.put_back(mail)

    # --- questions --------------------------------------------------------------------------------

    def next_due_ms(self) -> int:
        """When `tick` has something to do."""
        return self._next_beat_ms

    def check(self) -> None:
        """Assert the invariants; tests call it after every step."""
        self.directory.check()
        waiting = sum(peer.lanes.foreign() for peer in self.directory.peers.values())
        lost = self.counts.unaccounted(waiting)
        assert lost == 0, f"{lost} messages neither left, nor wait, nor were answered"

    # --- admission --------------------------------------------------------------------------------

    def _admit(self, side: Side, parts: Parts, now_ms: int, out: list[Envelope]) -> Envelope:
        """The message, with its sender known and checked; Dropped if that cannot be."""
        head = read_head(parts)
        peer = self.directory.peers.get(parts[0])
        if peer is None:
            check_stranger(parts[0], head)
            if self.directory.is_full():
                raise Dropped(DropReason.TOO_MANY_PEERS)
            peer = self.directory.meet(parts[0], side, now_ms)
            out.append(self._beat(peer))
        if peer.name != head.source or peer.side is not side:
            raise Dropped(DropReason.SOURCE)
        peer.heard_ms = now_ms
        size = sum(map(len, parts))
        self.counts.messages_in[head.lane] += 1
        self.counts.bytes_in += size
        return Envelope(parts, head, size, peer)

    # --- routing ----------------------------------------------------------------------------------

    def _pass_on(self, mail: Envelope, out: list[Envelope]) -> None:
        if self._expired(mail.head):
            self._bounce(mail, BounceReason.EXPIRED, out)
        else:
            self._by_address.get(mail.head.to, self._to_peer)(mail, out)

    def _to_selector(self, mail: Envelope, out: list[Envelope]) -> None:
        """The best live selector with credit whose pipe is open; else one whose queue has room; else an answer."""
        order = self.directory.routes.order(mail.head.cell)
        work = mail.head.lane == _WORK
        for peer in order:
            if not peer.blocked and (not work or (peer.credit() > 0 and not peer.draining)):
                mail.credited = work
                if peer is not order[0]:
                    self.counts.spilled += 1
                self._hand(peer, mail, out)
                return
        self._to_queue_of_selector(order, mail, out)

    def _to_queue_of_selector(self, order: list[Peer], mail: Envelope, out: list[Envelope]) -> None:
        work = mail.head.lane == _WORK
        able = [peer for peer in order if not work or (peer.credit() > 0 and not peer.draining)]
        for peer in able:
            if peer.lanes.has_room(mail.head.lane):
                mail.credited = work
                self._enqueue(peer, mail, out)
                return
        if not order:
            self._bounce(mail, BounceReason.NO_SELECTOR, out)
        elif able:
            self._bounce(mail, BounceReason.QUEUE_FULL, out)
        else:
            self._busy(mail, out)

    def _to_peer(self, mail: Envelope, out: list[Envelope]) -> None:
        peer = self.directory.by_name.get(mail.head.to)
        if peer is None:
            self._bounce(mail, BounceReason.UNROUTABLE, out)
        elif peer.blocked:
            self._enqueue(peer, mail, out)
        else:
            self._hand(peer, mail, out)

    def _hand(self, peer: Peer, mail: Envelope, out: list[Envelope]) -> None:
        mail.parts[0] = peer.identity
        mail.receiver = peer
        self._count_handed(peer, mail, 1)
        out.append(mail)

    def _enqueue(self, peer: Peer, mail: Envelope, out: list[Envelope]) -> None:
        if peer.lanes.has_room(mail.head.lane):
            mail.parts[0] = peer.identity
            peer.lanes.put(mail)
        else:
            self._bounce(mail, BounceReason.QUEUE_FULL, out)

    def _count_handed(self, peer: Peer, mail: Envelope, change: int) -> None:
        """Count a message as handed to the peer's socket, or take that back."""
        if mail.credited:
            peer.window.sent += change
        if mail.sender is not None:
            self.counts.messages_out[mail.head.lane] += change
            self.counts.bytes_out += change * mail.size

    def _redirect(self, mail: Envelope, out: list[Envelope]) -> None:
        """Another way for mail whose receiver is gone."""
        mail.credited = False
        if mail.sender is None:
            self.counts.dropped[BounceReason.UNROUTABLE] += mail.keep
        elif mail.head.to == "":
            self._to_selector(mail, out)
        else:
            self._bounce(mail, BounceReason.UNROUTABLE, out)

    # --- answers ----------------------------------------------------------------------------------

    def _bounce(self, mail: Envelope, reason: BounceReason, out: list[Envelope]) -> None:
        if mail.sender is None:
            self.counts.dropped[reason] += 1
            return
        self.counts.bounced[reason] += 1
        self._answer(mail.sender, mail, Bounce(reason=reason), out)

    def _busy(self, mail: Envelope, out: list[Envelope]) -> None:
        assert mail.sender is not None, "our own messages have an address"
        self.counts.busy += 1
        self._answer(mail.sender, mail, Busy(retry_after_ms=self.rules.busy_retry_ms), out)

    def _answer(self, sender: Peer, mail: Envelope, frame: Frame, out: list[Envelope]) -> None:
        if not sender.present:
            self.counts.dropped[BounceReason.UNROUTABLE] += 1
            return
        reply = self._own(sender, frame, mail.parts[1], mail.parts[2])
        if sender.blocked:
            self._enqueue(sender, reply, out)
        else:
            out.append(reply)

    def _beat(self, peer: Peer) -> Envelope:
        live = len(self.directory.selectors())
        mail = self._own(peer, BrokerBeat(self.broker_id, self.boot_id, live, peer.window.sent))
        mail.keep = False
        return mail

    def _own(self, peer: Peer, frame: Frame, *payload: Any) -> Envelope:
        head = Head(FRAME_VERSION, _CONTROL, peer.name, 0, BROKER, self._wall_ms * 1_000)
        return Envelope([peer.identity, encode(head), encode(frame), *payload], head, 0, None, peer)

    # --- link frames ------------------------------------------------------------------------------

    def _to_broker(self, mail: Envelope, out: list[Envelope]) -> None:
        assert mail.sender is not None, "only admitted mail is routed"
        self.counts.for_broker += 1
        try:
            frame = decode_frame(mail.parts[2])
            handler = LINK_HANDLERS[type(frame)]
        except (*UNREADABLE, KeyError):
            self.counts.dropped[DropReason.MALFORMED] += 1
            return
        if mail.sender.present:
            handler(self, mail.sender, frame, out)

    def _on_beat(self, peer: Peer, frame: Beat, out: list[Envelope]) -> None:
        if frame.kind != KIND_OF_SIDE[peer.side]:
            self.counts.dropped[DropReason.SOURCE] += 1
            self._forget(peer, "wrong_side", out)
            return
        peer.window.size = max(0, frame.window)
        peer.window.learn(frame.consumed)
        if peer.draining != frame.draining:
            peer.draining = frame.draining
            self.directory.refresh_routes()

    def _on_credit(self, peer: Peer, frame: Credit, out: list[Envelope]) -> None:
        peer.window.learn(frame.consumed)

    def _on_goodbye(self, peer: Peer, frame: Goodbye, out: list[Envelope]) -> None:
        self._forget(peer, "goodbye", out)

    # --- peers ------------------------------------------------------------------------------------

    def _forget(self, peer: Peer, reason: str, out: list[Envelope]) -> None:
        """Remove a peer and find another way for what waits for it."""
        if not peer.present:
            return
        self.directory.forget(peer, reason)
        while (mail := peer.lanes.pop()) is not None:
            self._redirect(mail, out)

    def _expired(self, head: Head) -> bool:
        return 0 < head.deadline_ms < self._wall_ms


def _receiver(mail: Envelope) -> Peer:
    assert mail.receiver is not None, "only mail with a receiver is sent"
    return mail.receiver


#: What a peer may say to the broker itself.
LINK_HANDLERS: Final[dict[type[Frame], Callable[[Switch, Peer, Any, list[Envelope]], None]]] = {
    Beat: Switch._on_beat,
    Credit: Switch._on_credit,
    Goodbye: Switch._on_goodbye,
}
