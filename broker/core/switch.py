"""The broker's decisions: messages in, `Send` effects out, time as an argument. Knows no sockets and no clock.

The rim hands over what one wake-up drained (`receive`), performs the effects in order, and reports each send that
failed (`stuck`, `gone`), which may yield more effects. Between wake-ups it calls `tick` and `flush`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from broker.core.counts import Counts
from broker.core.credit import KIND_OF_SIDE, Peer, Side
from broker.core.queues import Mail, Parts, Send
from broker.core.routing import Routes
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
    decode_head,
    encode,
)

#: identity, head and frame; everything behind them is payload.
PARTS_MIN: Final = 3
#: No frame has more than a handful of payload parts.
PARTS_MAX: Final = 16
IDENTITY_BYTES_MAX: Final = 128
_LANES: Final = frozenset(Lane)


class Rules(NamedTuple):
    """The limits a switch works by; all from the configuration."""

    cells: int
    beat_ms: int
    dead_ms: int
    queue_max: int
    peers_max: int
    busy_retry_ms: int


class Dropped(Exception):
    """A message that gets no answer, because its sender cannot be trusted or read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Switch:
    """One broker's state."""

    def __init__(self, *, broker_id: str, boot_id: str, rules: Rules, acquaintances: int, now_ms: int) -> None:
        """`acquaintances` is where the numbering of peers starts: a random number, so that two lives differ."""
        self.broker_id = broker_id
        self.boot_id = boot_id
        self.rules = rules
        self.counts = Counts()
        self.peers: dict[bytes, Peer] = {}
        self._by_name: dict[str, Peer] = {}
        self._routes = Routes(rules.cells)
        #: Peers with mail waiting, in the order in which they got stuck.
        self._blocked: dict[bytes, Peer] = {}
        self._acquaintances = acquaintances
        self._next_beat_ms = now_ms + rules.beat_ms
        self._wall_ms = 0
        self._by_address: dict[str, Callable[[Mail], list[Send]]] = {"": self._to_selector, BROKER: self._to_broker}

    # --- events ---------------------------------------------------------------------------------

    def receive(self, front: Iterable[Parts], back: Iterable[Parts], now_ms: int, wall_us: int) -> list[Send]:
        """Take what both sockets had, control first."""
        self._wall_ms = wall_us // 1_000
        effects: list[Send] = []
        work: list[Mail] = []
        for side, batch in ((Side.FRONT, front), (Side.BACK, back)):
            for parts in batch:
                try:
                    mail = self._admit(side, parts, now_ms, effects)
                except Dropped as dropped:
                    self.counts.dropped[dropped.reason] += 1
                    continue
                self.counts.hop.add(wall_us - mail.head.sent_us)
                if mail.head.lane == Lane.CONTROL:
                    effects += self._pass_on(mail)
                else:
                    work.append(mail)
        for mail in work:
            effects += self._pass_on(mail)
        return effects

    def stuck(self, send: Send) -> list[Send]:
        """The peer's pipe is full: try another selector if any will do, else queue, else bounce."""
        peer, mail = send
        if not peer.present:
            return self.gone(send)
        if not mail.keep:
            self.counts.dropped["beat"] += 1
            return []
        self._take_back(peer, mail)
        self._block(peer)
        if mail.head.to == "" and mail.sender is not None:
            return self._to_selector(mail)
        return self._enqueue(peer, mail)

    def gone(self, send: Send) -> list[Send]:
        """There is no such peer any more: forget it and find another way for its mail."""
        peer, mail = send
        self._take_back(peer, mail)
        effects = self._forget(peer)
        return effects + self._redirect(mail)

    def tick(self, now_ms: int) -> list[Send]:
        """Forget who was silent too long, and beat to the rest. Call it no later than `next_due_ms`."""
        if now_ms < self._next_beat_ms:
            return []
        late_ms = now_ms - self._next_beat_ms
        effects: list[Send] = []
        for peer in list(self.peers.values()):
            # If we ourselves were held up, their beats may still be waiting in the socket.
            peer.heard_ms += late_ms if late_ms >= self.rules.beat_ms else 0
            if now_ms - peer.heard_ms >= self.rules.dead_ms:
                self.counts.dropped["silent_peer"] += 1
                effects += self._forget(peer)
        effects += [self._beat(peer) for peer in self.peers.values()]
        self._next_beat_ms = now_ms + self.rules.beat_ms
        return effects

    # --- flushing: the rim asks for one message at a time, because each may fail --------------------

    def blocked(self) -> list[Peer]:
        """Peers with mail waiting."""
        return list(self._blocked.values())

    def flush_next(self, peer: Peer, wall_us: int) -> Iterator[Send]:
        """The peer's waiting mail, one by one, with bounces of what has expired; stop at the first failure."""
        self._wall_ms = wall_us // 1_000
        while peer.present and (mail := peer.lanes.pop()) is not None:
            if self._expired(mail.head):
                yield from self._bounce(mail, "expired")
                continue
            self._count_handed(peer, mail, 1)
            yield Send(peer, mail)
        if peer.present:
            self._unblock(peer)

    def put_back(self, send: Send) -> None:
        """A flushed message did not go out after all; it stays first in its queue."""
        peer, mail = send
        self._count_handed(peer, mail, -1)
        peer.lanes.put(mail, first=True)
        self._block(peer)

    # --- questions --------------------------------------------------------------------------------

    def next_due_ms(self) -> int:
        """When `tick` has something to do."""
        return self._next_beat_ms

    def selectors_live(self) -> int:
        """How many selectors are known and not silent."""
        return sum(peer.side == Side.BACK for peer in self.peers.values())

    def check(self) -> None:
        """Assert the invariants; tests call it after every step."""
        assert len(self.peers) <= self.rules.peers_max, "more peers than allowed"
        assert {peer.name for peer in self.peers.values()} == set(self._by_name), "the two indexes differ"
        for peer in self.peers.values():
            peer.check()
            assert peer.blocked == (peer.identity in self._blocked), f"{peer.name}: blocked flag and list differ"
        assert self._blocked.keys() <= self.peers.keys(), "a forgotten peer is still listed as blocked"
        self._routes.check(self._selectors())

    # --- admission ----------------------------------------------------------------------------------

    def _admit(self, side: Side, parts: Parts, now_ms: int, effects: list[Send]) -> Mail:
        """The message, with its sender known and checked."""
        if not PARTS_MIN <= len(parts) <= PARTS_MAX:
            raise Dropped("parts")
        try:
            head = decode_head(parts[1])
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Dropped("garbage") from None
        if head.version != FRAME_VERSION:
            raise Dropped("version")
        peer = self.peers.get(parts[0]) or self._meet(parts[0], head, side, now_ms, effects)
        if peer.name != head.source or peer.side is not side:
            raise Dropped("spoofed")
        if head.lane not in _LANES:
            raise Dropped("garbage")
        peer.heard_ms = now_ms
        self.counts.arrived[side][head.lane] += 1
        self.counts.bytes_arrived[side] += sum(map(len, parts))
        return Mail(parts, head, peer)

    def _meet(self, identity: bytes, head: Head, side: Side, now_ms: int, effects: list[Send]) -> Peer:
        if head.source.encode() != identity:
            raise Dropped("spoofed")
        if len(identity) > IDENTITY_BYTES_MAX or head.source in self._by_address:
            raise Dropped("garbage")
        if len(self.peers) >= self.rules.peers_max:
            raise Dropped("too_many_peers")
        self._acquaintances += 1
        peer = Peer(identity, side, queue_max=self.rules.queue_max, acquaintance=self._acquaintances, now_ms=now_ms)
        self.peers[identity] = self._by_name[peer.name] = peer
        if side is Side.BACK:
            self._routes.replace(self._selectors())
        effects.append(self._beat(peer))
        return peer

    # --- routing ------------------------------------------------------------------------------------

    def _pass_on(self, mail: Mail) -> list[Send]:
        if self._expired(mail.head):
            return self._bounce(mail, "expired")
        return self._by_address.get(mail.head.to, self._to_peer)(mail)

    def _to_selector(self, mail: Mail) -> list[Send]:
        """The best live selector with credit whose pipe is open; else one whose queue has room; else an answer."""
        order = self._routes.order(mail.head.cell)
        if not order:
            return self._bounce(mail, "no_selector")
        work = mail.head.lane == Lane.WORK
        able = [peer for peer in order if not work or (not peer.draining and peer.credit() > 0)]
        for peer in able:
            if not peer.blocked:
                self.counts.spilled += work and peer is not order[0]
                return [self._hand(peer, mail, credited=work)]
        for peer in able:
            if peer.lanes.has_room(mail.head.lane):
                mail.credited = work
                return self._enqueue(peer, mail)
        return self._bounce(mail, "queue_full") if able else self._busy(mail)

    def _to_peer(self, mail: Mail) -> list[Send]:
        peer = self._by_name.get(mail.head.to)
        if peer is None:
            return self._bounce(mail, "unroutable")
        if peer.blocked:
            return self._enqueue(peer, mail)
        return [self._hand(peer, mail, credited=False)]

    def _hand(self, peer: Peer, mail: Mail, *, credited: bool) -> Send:
        mail.parts[0] = peer.identity
        mail.credited = credited
        self._count_handed(peer, mail, 1)
        return Send(peer, mail)

    def _enqueue(self, peer: Peer, mail: Mail) -> list[Send]:
        if not peer.lanes.has_room(mail.head.lane):
            return self._bounce(mail, "queue_full")
        mail.parts[0] = peer.identity
        peer.lanes.put(mail)
        return []

    def _take_back(self, peer: Peer, mail: Mail) -> None:
        """Undo `_hand`: the socket did not take it."""
        self._count_handed(peer, mail, -1)
        mail.credited = False

    def _count_handed(self, peer: Peer, mail: Mail, change: int) -> None:
        if mail.credited:
            peer.window.sent += change
        if mail.sender is not None:
            self.counts.forwarded[mail.head.lane] += change

    def _redirect(self, mail: Mail) -> list[Send]:
        """Another way for mail whose receiver is gone."""
        mail.credited = False
        if mail.sender is None:
            self.counts.dropped["answer"] += mail.keep
            return []
        return self._to_selector(mail) if mail.head.to == "" else self._bounce(mail, "unroutable")

    # --- answers ------------------------------------------------------------------------------------

    def _bounce(self, mail: Mail, reason: str) -> list[Send]:
        self.counts.bounced[reason] += 1
        return self._answer(mail, Bounce(reason=reason))

    def _busy(self, mail: Mail) -> list[Send]:
        self.counts.busy += 1
        return self._answer(mail, Busy(retry_after_ms=self.rules.busy_retry_ms))

    def _answer(self, mail: Mail, frame: Frame) -> list[Send]:
        sender = mail.sender
        if sender is None or not sender.present:
            self.counts.dropped["answer"] += 1
            return []
        reply = self._own(sender, frame, mail.parts[1], mail.parts[2])
        if not sender.blocked:
            return [Send(sender, reply)]
        if sender.lanes.has_room(Lane.CONTROL):
            sender.lanes.put(reply)
        else:
            self.counts.dropped["answer"] += 1
        return []

    def _beat(self, peer: Peer) -> Send:
        frame = BrokerBeat(
            broker_id=self.broker_id,
            boot_id=self.boot_id,
            selectors_live=self.selectors_live(),
            sent=peer.window.sent,
        )
        mail = self._own(peer, frame)
        mail.keep = False
        return Send(peer, mail)

    def _own(self, peer: Peer, frame: Frame, *payload: bytes) -> Mail:
        head = Head(FRAME_VERSION, Lane.CONTROL, peer.name, 0, BROKER, self._wall_ms * 1_000)
        return Mail([peer.identity, encode(head), encode(frame), *payload], head, None)

    # --- link frames ----------------------------------------------------------------------------------

    def _to_broker(self, mail: Mail) -> list[Send]:
        assert mail.sender is not None, "only admitted mail is routed"
        try:
            frame = decode_frame(mail.parts[2])
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.counts.dropped["garbage"] += 1
            return []
        handler = _LINK_HANDLERS.get(type(frame))
        if handler is None:
            self.counts.dropped["not_for_broker"] += 1
            return []
        return handler(self, mail.sender, frame)

    def _on_beat(self, peer: Peer, frame: Beat) -> list[Send]:
        if frame.kind != KIND_OF_SIDE[peer.side]:
            self.counts.dropped["wrong_side"] += 1
            return self._forget(peer)
        peer.window.size = max(0, frame.window)
        peer.window.learn(frame.consumed)
        if peer.draining != frame.draining:
            peer.draining = frame.draining
            self._routes.replace(self._selectors())
        return []

    def _on_credit(self, peer: Peer, frame: Credit) -> list[Send]:
        peer.window.learn(frame.consumed)
        return []

    def _on_goodbye(self, peer: Peer, frame: Goodbye) -> list[Send]:
        return self._forget(peer)

    # --- peers ----------------------------------------------------------------------------------------

    def _forget(self, peer: Peer) -> list[Send]:
        """Remove a peer and find another way for what waits for it."""
        if not peer.present:
            return []
        peer.present = False
        self._unblock(peer)
        del self.peers[peer.identity]
        del self._by_name[peer.name]
        if peer.side is Side.BACK:
            self._routes.replace(self._selectors())
        effects: list[Send] = []
        while (mail := peer.lanes.pop()) is not None:
            effects += self._redirect(mail)
        return effects

    def _selectors(self) -> list[Peer]:
        return [peer for peer in self.peers.values() if peer.side is Side.BACK]

    def _block(self, peer: Peer) -> None:
        peer.blocked = True
        self._blocked[peer.identity] = peer

    def _unblock(self, peer: Peer) -> None:
        peer.blocked = False
        self._blocked.pop(peer.identity, None)

    def _expired(self, head: Head) -> bool:
        return 0 < head.deadline_ms < self._wall_ms


_LINK_HANDLERS: Final[dict[type, Callable[[Switch, Peer, object], list[Send]]]] = {
    Beat: Switch._on_beat,  # type: ignore[dict-item]
    Credit: Switch._on_credit,  # type: ignore[dict-item]
    Goodbye: Switch._on_goodbye,  # type: ignore[dict-item]
}
