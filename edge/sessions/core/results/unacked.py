"""Unacked: results that a resumable client has not acknowledged, and the messages that carried them.

A result is acknowledged upstream when the client, or every listener, has it. Until then the edge of its node retries
it, so that any later owner of the session gets it. The messages are stored for the client's next connection to this
edge.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from mesh.frames import Push


@dataclass(slots=True, eq=False)
class UnackedIndex:
    """One index."""

    #: Results that are not acknowledged upstream.
    pushes: list[Push] = field(default_factory=list)
    #: The messages that carried it: JSON, and raw audio that the JSON lacks. A next connection gets them in its own
    #: form, binary or not.
    messages: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    #: Members of a room that do not have it yet.
    listeners: int = 0


class Unacked:
    """Of one session. `index` is the utterance's."""

    __slots__ = ("_keys", "bytes", "indices", "with_listeners")

    def __init__(self) -> None:
        #: Of all stored messages.
        self.bytes = 0
        #: Indices that members of a room do not have yet. Slow members are not the client's fault.
        self.with_listeners = 0
        self.indices: defaultdict[int, UnackedIndex] = defaultdict(UnackedIndex)
        self._keys: set[tuple[str, int]] = set()

    def __len__(self) -> int:
        return len(self.indices)

    def add(self, index: int, push: Push) -> None:
        """A result arrived: it is acknowledged upstream when the client, or every listener, has it."""
        key = (push.job_id, push.attempt)
        if key not in self._keys:
            self.indices[index].pushes.append(push)
            self._keys.add(key)

    def has(self, push: Push) -> bool:
        """True if that result is unacked."""
        return (push.job_id, push.attempt) in self._keys

    def sent(self, index: int, body: bytes, audio: bytes | None = None) -> None:
        """A message was sent to the client."""
        self.indices[index].messages.append((body, audio))
        self.bytes += len(body) + len(audio or b"")

    def add_listeners(self, index: int, count: int) -> list[Push]:
        """More members are to get it, or (negative) have it now. Returns the results to acknowledge upstream."""
        one = self.indices[index]
        before = one.listeners
        one.listeners += count
        assert one.listeners >= 0
        self.with_listeners += (one.listeners > 0) - (before > 0)
        return [] if one.listeners else self._release(index)

    def ack(self, index: int) -> list[Push]:
        """The client has everything up to that index. Returns the results to acknowledge upstream."""
        released: list[Push] = []
        for done in [one for one in self.indices if one <= index]:
            if not self.indices[done].listeners:
                released += self._release(done)
        return released

    def end(self) -> list[Push]:
        """The session is over. Returns all results, to acknowledge upstream."""
        return [push for index in list(self.indices) for push in self._release(index)]

    def after(self, index: int) -> list[tuple[bytes, bytes | None]]:
        """The messages of later indices, in order."""
        return [message for later in sorted(self.indices) if later > index for message in self.indices[later].messages]

    def _release(self, index: int) -> list[Push]:
        one = self.indices.pop(index)
        self.with_listeners -= one.listeners > 0
        pushes = one.pushes
        self.bytes -= sum(len(body) + len(audio or b"") for body, audio in one.messages)
        self._keys.difference_update((push.job_id, push.attempt) for push in pushes)
        return pushes

    def check(self) -> None:
        """Every unacked result has its key, and no other key is there; the counts are exact."""
        keys = [(push.job_id, push.attempt) for one in self.indices.values() for push in one.pushes]
        assert len(keys) == len(self._keys) and set(keys) == self._keys
        stored = [message for one in self.indices.values() for message in one.messages]
        assert self.bytes == sum(len(body) + len(audio or b"") for body, audio in stored)
        assert self.with_listeners == sum(one.listeners > 0 for one in self.indices.values())
