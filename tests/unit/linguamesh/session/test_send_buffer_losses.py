"""The send buffer against a model of a mesh that loses connections: every utterance ends, once where the protocol
guarantees that.

The client's side is the real send buffer. The mesh is a model of docs/protocol.md: it orders chunks by seq, finalizes
anywhere, ends utterances in order, rejects items, resumes with more or less of its state, or not at all.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from linguamesh.session.messages import utterance
from linguamesh.session.results import ResultOrder
from linguamesh.session.send_buffer import Chunk, Piece, SendBuffer, WholeUtterance

Names = list[str]  # of pieces and whole utterances, in the order in which they were added


@dataclass
class Ended:
    """The mesh reports the end of an utterance."""

    index: int
    last_seq: int | None
    content: Names


@dataclass
class Rejected:
    """The mesh was too busy for it."""

    seq: int | None = None
    index: int | None = None


@dataclass
class Failed:
    """A whole utterance failed. `accepted`: the mesh ends its index later."""

    index: int
    name: str
    accepted: bool


@dataclass
class Mesh:
    """One session, as all edges together see it."""

    chunks: dict[int, Chunk] = field(default_factory=dict)
    next_seq: int = 0
    open: list[Chunk] = field(default_factory=list)  # of the utterance that is not finalized
    complete: dict[int, Ended] = field(default_factory=dict)
    next_index: int = 0
    next_end: int = 0
    ended: list[Ended] = field(default_factory=list)

    def on_chunk(self, chunk: Chunk) -> None:
        if chunk.seq < self.next_seq:
            return
        self.chunks[chunk.seq] = chunk
        while self.next_seq in self.chunks:
            ready = self.chunks.pop(self.next_seq)
            self.open.append(ready)
            self.next_seq += 1
            if ready.piece.is_final:
                self.finalize()

    def finalize(self) -> None:
        content = [chunk.piece.audio.decode() for chunk in self.open if chunk.piece.audio]
        if not content:
            return  # no audio, no utterance: the next one's last_seq covers it
        self.complete[self.next_index] = Ended(self.next_index, self.open[-1].seq, content)
        self.next_index += 1
        self.open = []

    def on_whole(self, index: int, name: str) -> None:
        if index < self.next_end or index in self.complete:
            return
        assert not any(chunk.piece.audio for chunk in self.open), "its index is that of the open utterance"
        self.complete[index] = Ended(index, None, [name])
        self.next_index = max(self.next_index, index + 1)

    def has_gap(self) -> bool:
        return self.next_end not in self.complete and any(index > self.next_end for index in self.complete)

    def end_next(self) -> Ended:
        ended = self.complete.pop(self.next_end)
        self.next_end += 1
        self.ended.append(ended)
        return ended

    def move(self, last_seq: int) -> None:
        """Another edge takes over: it knows ended utterances only."""
        ends = [ended.last_seq for ended in self.ended if ended.last_seq is not None]
        self.next_seq = max([last_seq, *ends]) + 1
        self.next_index = self.next_end
        self.chunks, self.open, self.complete = {}, [], {}


class Losses(RuleBasedStateMachine):
    """One session. Messages in flight are lost with their connection."""

    @initialize()
    def open_session(self) -> None:
        self.buffer = SendBuffer(10_000)
        self.buffer.is_resumable = True
        self.buffer.on_restarted()
        self.mesh = Mesh()
        self.connected = True
        self.to_mesh: deque[Chunk | tuple[int, WholeUtterance]] = deque()
        self.to_client: deque[Ended | Rejected | Failed] = deque()
        self.sent_now: set[tuple[str, int]] = set()  # on this connection, and not rejected
        self.order: ResultOrder[Ended] = ResultOrder()
        self.released: list[Ended] = []
        self.added: Names = []
        self.names = 0
        self.cancelled: set[str] = set()
        self.restarted = False

    def name(self) -> str:
        self.names += 1
        self.added.append(str(self.names))
        return str(self.names)

    # --- the user ---------------------------------------------------------------------------------

    @rule()
    def speak(self) -> None:
        self.buffer.add(Piece(f"{self.name()}.".encode(), 100, False, self.names))

    @rule()
    def end_utterance(self) -> None:
        self.buffer.add(Piece(b"", 0, True, self.names))

    @rule()
    def send_whole(self) -> None:
        whole = WholeUtterance(utterance("pcm16", 16_000, "en", "es", {"trace_id": self.name()}), b"")
        self.buffer.add(whole)

    @precondition(lambda self: self.buffer._utterances)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """The caller of a whole utterance no longer waits."""
        wire_index = data.draw(st.sampled_from(sorted(self.buffer._utterances)))
        whole = self.buffer._utterances[wire_index]
        self.buffer.cancel(whole)
        self.cancelled.add(whole.message.trace_id or "")
        self.released += self.order.put(whole.index, Ended(wire_index, None, [whole.message.trace_id or ""]))

    # --- the connection ---------------------------------------------------------------------------

    @precondition(lambda self: self.connected)
    @rule(join_ms=st.sampled_from([0, 0, 300]))
    def send(self, join_ms: int) -> None:
        item = self.buffer.take_due(0, join_ms)
        if item is None:
            return
        key = ("seq", item.seq) if isinstance(item, Chunk) else ("index", item.wire_index)
        assert key not in self.sent_now, "sent twice on one connection"
        self.sent_now.add(key)
        self.to_mesh.append(item if isinstance(item, Chunk) else (item.wire_index, item))

    @precondition(lambda self: self.to_mesh)
    @rule()
    def arrive(self) -> None:
        item = self.to_mesh.popleft()
        if isinstance(item, Chunk):
            self.mesh.on_chunk(item)
        else:
            self.mesh.on_whole(item[0], item[1].message.trace_id or "")

    @precondition(lambda self: self.to_mesh)
    @rule()
    def reject_temporarily(self) -> None:
        item = self.to_mesh.popleft()
        if isinstance(item, Chunk):
            if item.seq >= self.mesh.next_seq and item.seq not in self.mesh.chunks:
                self.to_client.append(Rejected(seq=item.seq))
        elif item[0] >= self.mesh.next_end and item[0] not in self.mesh.complete:
            self.to_client.append(Rejected(index=item[0]))

    @precondition(lambda self: self.to_mesh and not isinstance(self.to_mesh[0], Chunk))
    @rule()
    def reject(self) -> None:
        """The mesh refuses a whole utterance for good."""
        index, whole = self.to_mesh.popleft()  # type: ignore[misc]
        if index >= self.mesh.next_end and index not in self.mesh.complete:
            self.to_client.append(Failed(index, whole.message.trace_id or "", accepted=False))

    @precondition(lambda self: self.to_client)
    @rule()
    def receive(self) -> None:
        message = self.to_client.popleft()
        if isinstance(message, Rejected):
            if message.seq is not None and self.buffer.on_rejected(seq=message.seq):
                self.sent_now.discard(("seq", message.seq))
            if message.index is not None and self.buffer.on_rejected(wire_index=message.index):
                self.sent_now.discard(("index", message.index))
            return
        if isinstance(message, Failed):
            index = self.buffer.on_failed(message.index, accepted=message.accepted)
            if index is not None:
                self.sent_now.discard(("index", message.index))
                self.released += self.order.put(index, Ended(message.index, None, [message.name]))
            return
        index = self.buffer.acknowledge(message.index, message.last_seq)
        if index is not None:
            self.released += self.order.put(index, message)

    # --- the mesh ---------------------------------------------------------------------------------

    @precondition(lambda self: self.mesh.open)
    @rule()
    def pause(self) -> None:
        self.mesh.finalize()

    @precondition(lambda self: self.mesh.next_end in self.mesh.complete)
    @rule()
    def end(self) -> None:
        ended = self.mesh.end_next()
        if self.connected:
            self.to_client.append(ended)

    @precondition(lambda self: self.connected and any(one.last_seq is None for one in self.mesh.complete.values()))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        """A job fails: the client gets the error at once, and missing_result in order."""
        wholes = {index: one for index, one in self.mesh.complete.items() if one.last_seq is None and one.content}
        if wholes:
            index = data.draw(st.sampled_from(sorted(wholes)))
            self.to_client.append(Failed(index, wholes[index].content[0], accepted=True))

    @precondition(lambda self: self.mesh.has_gap())
    @rule()
    def time_out(self) -> None:
        """The head-of-line timeout ends an index that the mesh did not accept."""
        if not any(whole.wire_index == self.mesh.next_end for whole in self.buffer._utterances.values()):
            self.mesh.complete[self.mesh.next_end] = Ended(self.mesh.next_end, None, [])

    @precondition(lambda self: self.connected)
    @rule(arrived=st.integers(0, 3))
    def lose(self, arrived: int) -> None:
        for _ in range(min(arrived, len(self.to_mesh))):
            self.arrive()
        self.connected = False
        self.buffer.suspend()
        self.to_mesh.clear()
        self.to_client.clear()
        self.sent_now.clear()

    @precondition(lambda self: not self.connected)
    @rule(how=st.sampled_from(["same", "same", "other", "other", "new"]))
    def reconnect(self, how: str) -> None:
        self.connected = True
        last_index, last_seq = self.buffer.last_index, self.buffer.last_seq
        if how == "new":
            self.mesh, self.restarted = Mesh(), True
            self.buffer.on_restarted()
            return
        if how == "other":
            self.mesh.move(last_seq)
        self.buffer.on_resumed(resend_from_seq=self.mesh.next_seq, next_wire_index=self.mesh.next_index)
        self.to_client.extend(ended for ended in self.mesh.ended if ended.index > last_index)

    # --- invariants -------------------------------------------------------------------------------

    @invariant()
    def everything_is_ended_or_buffered(self) -> None:
        self.buffer.check()
        buffered = {
            *(chunk.piece.audio for chunk in self.buffer._chunks.values()),
            *(item.audio for item in self.buffer._queue if isinstance(item, Piece)),
        }
        names = {one for audio in buffered for one in _names(audio)}
        wholes = [
            *self.buffer._utterances.values(),
            *(item for item in self.buffer._queue if isinstance(item, WholeUtterance)),
        ]
        names |= {whole.message.trace_id or "" for whole in wholes}
        names |= {name for ended in self.released for name in _all_names(ended)}
        names |= {name for ended in self.order._early.values() if ended for name in _all_names(ended)}
        assert set(self.added) <= names

    @invariant()
    def ends_come_in_order_and_once(self) -> None:
        received = [name for ended in self.released for name in _all_names(ended)]
        assert self.order.next_index == len(self.released), "each index is yielded, and contiguously"
        if not self.restarted:
            assert received == self.added[: len(received)], "without a restart everything is translated once, in order"

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        if not self.connected:
            self.reconnect("other")
        rounds = 0
        while self.buffer._utterances or self.buffer._pending_bytes or self.buffer._queue:
            rounds += 1
            assert rounds <= 2 * len(self.added) + 4, "something never ends"
            for _ in range(len(self.buffer._queue) + len(self.buffer._retries) + 1):
                self.send(0)
            while self.to_mesh:
                self.arrive()
            self.mesh.finalize()  # the speaker pauses
            if self.mesh.has_gap():
                self.time_out()
            while self.mesh.next_end in self.mesh.complete:
                self.end()
            while self.to_client:
                self.receive()
        received = [name for ended in self.released for name in _all_names(ended)]
        assert set(received) == set(self.added)
        assert self.restarted or received == self.added
        self.buffer.check()


def _names(audio: bytes) -> Names:
    return audio.decode().split(".")[:-1] if audio else []


def _all_names(ended: Ended) -> Names:
    return [name for part in ended.content for name in (_names(part.encode()) if "." in part else [part])]


Losses.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
test_every_utterance_ends_however_often_the_connection_is_lost = Losses.TestCase
