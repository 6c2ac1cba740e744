"""A session against a mesh that loses connections: whatever is said ends, once where the protocol can hold that.

The client's side is the real core. The mesh is a model of what docs/protocol.md allows it: it puts chunks in order by
seq, cuts where it likes, ends utterances in order, refuses what it has no room for, resumes with more or less of what
it had, or not at all.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from linguamesh.session.messages import utterance
from linguamesh.session.result_order import ResultOrder
from linguamesh.session.send_buffer import Chunk, Piece, SendBuffer, Whole

Said = list[str]  # names of what was said, in order


@dataclass
class Ended:
    """What the mesh tells of an utterance."""

    index: int
    last_seq: int | None
    content: Said


@dataclass
class Refused:
    """The mesh had no room for it."""

    seq: int | None = None
    index: int | None = None


@dataclass
class Failed:
    """A whole utterance failed. `taken`: the mesh ends its index later."""

    index: int
    name: str
    taken: bool


@dataclass
class Mesh:
    """One session, as the edges see it together."""

    chunks: dict[int, Chunk] = field(default_factory=dict)
    next_seq: int = 0
    open: list[Chunk] = field(default_factory=list)  # of the utterance that is being spoken
    complete: dict[int, Ended] = field(default_factory=dict)
    next_index: int = 0
    next_end: int = 0
    told: list[Ended] = field(default_factory=list)

    def on_chunk(self, chunk: Chunk) -> None:
        if chunk.seq < self.next_seq:
            return
        self.chunks[chunk.seq] = chunk
        while self.next_seq in self.chunks:
            ready = self.chunks.pop(self.next_seq)
            self.open.append(ready)
            self.next_seq += 1
            if ready.piece.is_final:
                self.cut()

    def cut(self) -> None:
        content = [chunk.piece.audio.decode() for chunk in self.open if chunk.piece.audio]
        if not content:
            return  # no sound, no utterance: the next one's last_seq covers it
        self.complete[self.next_index] = Ended(self.next_index, self.open[-1].seq, content)
        self.next_index += 1
        self.open = []

    def on_whole(self, index: int, name: str) -> None:
        if index < self.next_end or index in self.complete:
            return
        assert not any(chunk.piece.audio for chunk in self.open), "its index is that of what is being spoken"
        self.complete[index] = Ended(index, None, [name])
        self.next_index = max(self.next_index, index + 1)

    def has_gap(self) -> bool:
        return self.next_end not in self.complete and any(index > self.next_end for index in self.complete)

    def end_next(self) -> Ended:
        ended = self.complete.pop(self.next_end)
        self.next_end += 1
        self.told.append(ended)
        return ended

    def move(self, last_seq: int) -> None:
        """Another edge goes on: it knows what ended, and nothing of what did not."""
        ends = [ended.last_seq for ended in self.told if ended.last_seq is not None]
        self.next_seq = max([last_seq, *ends]) + 1
        self.next_index = self.next_end
        self.chunks, self.open, self.complete = {}, [], {}


class Losses(RuleBasedStateMachine):
    """One session. Messages on their way are lost with the connection that they are on."""

    @initialize()
    def open_session(self) -> None:
        self.core = SendBuffer(10_000)
        self.core.keeps = True
        self.core.connected(resumed=False)
        self.mesh = Mesh()
        self.connected = True
        self.to_mesh: deque[Chunk | tuple[int, Whole]] = deque()
        self.to_client: deque[Ended | Refused | Failed] = deque()
        self.sent_now: set[tuple[str, int]] = set()  # on this connection, and not refused
        self.order: ResultOrder[Ended] = ResultOrder()
        self.yielded: list[Ended] = []
        self.said: Said = []
        self.names = 0
        self.given_up: set[str] = set()
        self.anew = False

    def name(self) -> str:
        self.names += 1
        self.said.append(str(self.names))
        return str(self.names)

    # --- the user ---------------------------------------------------------------------------------

    @rule()
    def speak(self) -> None:
        self.core.add(Piece(f"{self.name()}.".encode(), 100, False, self.names))

    @rule()
    def end_utterance(self) -> None:
        self.core.add(Piece(b"", 0, True, self.names))

    @rule()
    def ask(self) -> None:
        whole = Whole(utterance(b"", "pcm16", 16_000, "en", "es", {"trace_id": self.name()}))
        self.core.add(whole)

    @precondition(lambda self: self.core._wholes)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """Nobody waits for a whole utterance any more."""
        wire_index = data.draw(st.sampled_from(sorted(self.core._wholes)))
        whole = self.core._wholes[wire_index]
        self.core.withdraw(whole)
        self.given_up.add(whole.message.trace_id or "")
        self.yielded += self.order.put(whole.index, Ended(wire_index, None, [whole.message.trace_id or ""]))

    # --- the way ----------------------------------------------------------------------------------

    @precondition(lambda self: self.connected)
    @rule(join_ms=st.sampled_from([0, 0, 300]))
    def send(self, join_ms: int) -> None:
        item = self.core.take(0, join_ms)
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
    def refuse(self) -> None:
        item = self.to_mesh.popleft()
        if isinstance(item, Chunk):
            if item.seq >= self.mesh.next_seq and item.seq not in self.mesh.chunks:
                self.to_client.append(Refused(seq=item.seq))
        elif item[0] >= self.mesh.next_end and item[0] not in self.mesh.complete:
            self.to_client.append(Refused(index=item[0]))

    @precondition(lambda self: self.to_mesh and not isinstance(self.to_mesh[0], Chunk))
    @rule()
    def reject(self) -> None:
        """The mesh does not want a whole utterance, now or ever."""
        index, whole = self.to_mesh.popleft()  # type: ignore[misc]
        if index >= self.mesh.next_end and index not in self.mesh.complete:
            self.to_client.append(Failed(index, whole.message.trace_id or "", taken=False))

    @precondition(lambda self: self.to_client)
    @rule()
    def hear(self) -> None:
        message = self.to_client.popleft()
        if isinstance(message, Refused):
            if message.seq is not None and self.core.refused_chunk(message.seq):
                self.sent_now.discard(("seq", message.seq))
            if message.index is not None and self.core.refused_whole(message.index):
                self.sent_now.discard(("index", message.index))
            return
        if isinstance(message, Failed):
            index = self.core.failed(message.index, taken=message.taken)
            if index is not None:
                self.sent_now.discard(("index", message.index))
                self.yielded += self.order.put(index, Ended(message.index, None, [message.name]))
            return
        index = self.core.ended(message.index, message.last_seq)
        if index is not None:
            self.yielded += self.order.put(index, message)

    # --- the mesh ---------------------------------------------------------------------------------

    @precondition(lambda self: self.mesh.open)
    @rule()
    def pause(self) -> None:
        self.mesh.cut()

    @precondition(lambda self: self.mesh.next_end in self.mesh.complete)
    @rule()
    def end(self) -> None:
        ended = self.mesh.end_next()
        if self.connected:
            self.to_client.append(ended)

    @precondition(lambda self: self.connected and any(one.last_seq is None for one in self.mesh.complete.values()))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        """A job fails: the client hears at once, and at its turn that the result is missing."""
        wholes = {index: one for index, one in self.mesh.complete.items() if one.last_seq is None and one.content}
        if wholes:
            index = data.draw(st.sampled_from(sorted(wholes)))
            self.to_client.append(Failed(index, wholes[index].content[0], taken=True))

    @precondition(lambda self: self.mesh.has_gap())
    @rule()
    def time_out(self) -> None:
        """Nothing came for an index that others wait for, because the mesh did not want it."""
        if not any(whole.wire_index == self.mesh.next_end for whole in self.core._wholes.values()):
            self.mesh.complete[self.mesh.next_end] = Ended(self.mesh.next_end, None, [])

    @precondition(lambda self: self.connected)
    @rule(arrived=st.integers(0, 3))
    def lose(self, arrived: int) -> None:
        for _ in range(min(arrived, len(self.to_mesh))):
            self.arrive()
        self.connected = False
        self.core.disconnected()
        self.to_mesh.clear()
        self.to_client.clear()
        self.sent_now.clear()

    @precondition(lambda self: not self.connected)
    @rule(how=st.sampled_from(["same", "same", "other", "other", "new"]))
    def come_back(self, how: str) -> None:
        self.connected = True
        last_index, last_seq = self.core.last_index, self.core.last_seq
        if how == "new":
            self.mesh, self.anew = Mesh(), True
            self.core.connected(resumed=False, resend_from_seq=0, next_wire_index=0)
            return
        if how == "other":
            self.mesh.move(last_seq)
        self.core.connected(resumed=True, resend_from_seq=self.mesh.next_seq, next_wire_index=self.mesh.next_index)
        self.to_client.extend(ended for ended in self.mesh.told if ended.index > last_index)

    # --- what holds -------------------------------------------------------------------------------

    @invariant()
    def everything_is_ended_or_kept(self) -> None:
        self.core.check()
        kept = {
            *(chunk.piece.audio for chunk in self.core._chunks.values()),
            *(item.audio for item in self.core._queue if isinstance(item, Piece)),
        }
        names = {one for audio in kept for one in _names(audio)}
        wholes = [*self.core._wholes.values(), *(item for item in self.core._queue if isinstance(item, Whole))]
        names |= {whole.message.trace_id or "" for whole in wholes}
        names |= {name for ended in self.yielded for name in _all_names(ended)}
        names |= {name for ended in self.order._ahead.values() if ended for name in _all_names(ended)}
        assert set(self.said) <= names

    @invariant()
    def ends_come_in_order_and_once(self) -> None:
        heard = [name for ended in self.yielded for name in _all_names(ended)]
        assert self.order.next_index == len(self.yielded), "each index is yielded, and contiguously"
        if not self.anew:
            assert heard == self.said[: len(heard)], "without a new session everything is translated once, in order"

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        if not self.connected:
            self.come_back("other")
        rounds = 0
        while self.core._wholes or self.core._open_bytes or self.core._queue:
            rounds += 1
            assert rounds <= 2 * len(self.said) + 4, "something never ends"
            for _ in range(len(self.core._queue) + len(self.core._again) + 1):
                self.send(0)
            while self.to_mesh:
                self.arrive()
            self.mesh.cut()  # the speaker pauses
            if self.mesh.has_gap():
                self.time_out()
            while self.mesh.next_end in self.mesh.complete:
                self.end()
            while self.to_client:
                self.hear()
        heard = [name for ended in self.yielded for name in _all_names(ended)]
        assert set(heard) == set(self.said)
        assert self.anew or heard == self.said
        self.core.check()


def _names(audio: bytes) -> Said:
    return audio.decode().split(".")[:-1] if audio else []


def _all_names(ended: Ended) -> Said:
    return [name for part in ended.content for name in (_names(part.encode()) if "." in part else [part])]


Losses.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
test_whatever_is_said_ends_however_often_the_connection_is_lost = Losses.TestCase
