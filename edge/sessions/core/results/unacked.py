"""Acks: what a client that acknowledges its results was told, until it does.

A result is in good hands when the client has it: until then the edge of its node keeps it too, and whoever owns the
session by then gets it again. What was told is kept here for the same client's next connection to this edge.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mesh.frames import Push


@dataclass(slots=True, eq=False)
class UnackedIndex:
    """What is kept of one index."""

    #: Results whose keepers wait for our word.
    pushes: list[Push] = field(default_factory=list)
    #: The messages that told it, as they went out.
    messages: list[bytes] = field(default_factory=list)
    #: Members of a room that do not have it yet.
    listeners: int = 0


class Unacked:
    """Of one session. `index` is the utterance's."""

    __slots__ = ("_held", "_keys", "_listening", "bytes")

    def __init__(self) -> None:
        #: Of the messages that are kept.
        self.bytes = 0
        #: Indices that members of a room do not have yet. They may be slow, which is not the client's fault.
        self._listening = 0
        self._held: dict[int, UnackedIndex] = {}
        self._keys: set[tuple[str, int]] = set()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def unacked(self) -> int:
        """How many indices the client itself is asked to acknowledge."""
        return len(self._held) - self._listening

    def keep(self, index: int, push: Push) -> None:
        """A result came; its keeper shall hear of it when the client, or everybody in the room, has it."""
        if not self.holds(push):
            self._of(index).pushes.append(push)
            self._keys.add((push.job_id, push.attempt))

    def holds(self, push: Push) -> bool:
        """True if the keeper of that result is to wait."""
        return (push.job_id, push.attempt) in self._keys

    def told(self, index: int, message: bytes) -> None:
        """The client was told."""
        self._of(index).messages.append(message)
        self.bytes += len(message)

    def listens(self, index: int, more: int) -> list[Push]:
        """So many more members are to get it, or (negative) have it now. The results that nobody waits for any more."""
        held = self._of(index)
        before = held.listeners
        held.listeners += more
        assert held.listeners >= 0
        self._listening += (held.listeners > 0) - (before > 0)
        return [] if held.listeners else self._release(index)

    def ack(self, index: int) -> list[Push]:
        """The client has everything up to that index: the results whose keepers may forget them."""
        released: list[Push] = []
        for done in [held for held in self._held if held <= index]:
            if not self._held[done].listeners:
                released += self._release(done)
        return released

    def end(self) -> list[Push]:
        """The session is over: all results that are kept."""
        return [push for index in list(self._held) for push in self._release(index)]

    def after(self, index: int) -> list[bytes]:
        """What the client was told of later indices, in order."""
        return [message for later in sorted(self._held) if later > index for message in self._held[later].messages]

    def _of(self, index: int) -> UnackedIndex:
        return self._held.setdefault(index, UnackedIndex())

    def _release(self, index: int) -> list[Push]:
        held = self._held.pop(index)
        self._listening -= held.listeners > 0
        pushes = held.pushes
        self.bytes -= sum(map(len, held.messages))
        self._keys.difference_update((push.job_id, push.attempt) for push in pushes)
        return pushes

    def check(self) -> None:
        """Every result that is kept is known by its key, and by no other."""
        keys = [(push.job_id, push.attempt) for held in self._held.values() for push in held.pushes]
        assert len(keys) == len(self._keys) and set(keys) == self._keys
        assert self.bytes == sum(len(message) for held in self._held.values() for message in held.messages)
        assert self._listening == sum(held.listeners > 0 for held in self._held.values())
