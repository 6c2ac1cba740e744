"""RelayInbox: messages of other sessions for this one's client. Results are deduplicated by speaker and index.

Each speaker's results come in order, so the last index sent identifies every duplicate. A result counts as delivered
when it is written to the socket, or, for a resumable client, when the client acknowledges it: its senders wait for
that, and after a reconnect it is resent.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.rooms.core.events import MOVED, RelayReceived, read_key
from edge.sessions.core.effects import ReplyRelay
from edge.sessions.core.membership import Membership
from edge.sessions.core.turn import Turn
from mesh.frames import Post
from mesh.words import PostKind, PostVerdict

#: Speakers whose last index is remembered.
SPEAKERS_MAX: Final = 1_024
#: Kind of a message -> its type at the client, where they differ.
_TYPES: Final[dict[str, str]] = {PostKind.SIGNAL: "webrtc_offer"}


class _Unacked(NamedTuple):
    """A result that the client has not acknowledged. More than one edge may wait for that, if its speaker moved."""

    body: bytes
    #: By the sender's edge: the message, and the local queue that it came from.
    senders: dict[str, tuple[Post, str]]


class RelayInbox:
    """Of one session."""

    __slots__ = ("_is_resumable", "_last", "_membership", "_turn", "_unacked", "_unacked_max")

    def __init__(self, turn: Turn, membership: Membership, is_resumable: bool, unacked_max: int) -> None:
        self._turn = turn
        self._membership = membership
        self._is_resumable = is_resumable
        self._unacked_max = unacked_max
        #: By speaker: the last index that the client was sent.
        self._last: dict[str, int] = {}
        self._unacked: dict[tuple[str, int], _Unacked] = {}

    def __len__(self) -> int:
        return len(self._unacked)

    @property
    def unacked(self) -> list[tuple[str, int]]:
        """Speaker and index of each result that the client has not acknowledged, oldest first."""
        return list(self._unacked)

    def receive(self, event: RelayReceived) -> None:
        """A message for the client. While the client is detached, the sender has to find its owner."""
        post, queue = event.post, event.queue
        if not self._turn.is_attached:
            self._reply(post, queue, MOVED)
        elif post.kind == PostKind.RESULT:
            self._receive_result(event)
        else:
            if self._membership.accepts(post):
                self._turn.send_encoded(_TYPES.get(post.kind, post.kind), event.body)
            self._reply(post, queue, PostVerdict.DELIVERED)

    def _receive_result(self, event: RelayReceived) -> None:
        post, sender = event.post, (event.post, event.queue)
        speaker, index = read_key(post.key)
        if index <= self._last.get(speaker, -1):
            unacked = self._unacked.get((speaker, index))
            if unacked is not None:
                unacked.senders[post.edge] = sender
            else:
                self._reply(*sender, PostVerdict.DELIVERED)
            return
        self._last.pop(speaker, None)
        self._last[speaker] = index
        if len(self._last) > SPEAKERS_MAX:
            del self._last[next(iter(self._last))]
        self._turn.send_encoded("translation_result", event.body)
        if not self._is_resumable:
            self._reply(*sender, PostVerdict.DELIVERED)
            return
        self._unacked[speaker, index] = _Unacked(event.body, {post.edge: sender})
        if len(self._unacked) > self._unacked_max:
            del self._unacked[next(iter(self._unacked))]  # its senders time out

    def acknowledge(self, speaker: str, index: int) -> None:
        """The client has every result of that speaker up to that index."""
        for key in [key for key in self._unacked if key[0] == speaker and key[1] <= index]:
            self._reply_all(self._unacked.pop(key), PostVerdict.DELIVERED)

    def resend(self) -> None:
        """The client has a new connection: resend its unacked results, which may not have arrived."""
        for unacked in self._unacked.values():
            self._turn.send_encoded("translation_result", unacked.body)

    def close(self, verdict: str) -> None:
        """The session is over ("no_session") or another edge's (MOVED): nothing more is acknowledged here."""
        waiting, self._unacked = self._unacked, {}
        for unacked in waiting.values():
            self._reply_all(unacked, verdict)

    def _reply(self, post: Post, queue: str, verdict: str) -> None:
        """Give a sender the outcome. MOVED is for local queues: any other sender retries and finds the owner."""
        if queue or (post.edge and verdict != MOVED):
            self._turn.do(ReplyRelay(post, queue, verdict))

    def _reply_all(self, unacked: _Unacked, verdict: str) -> None:
        for post, queue in unacked.senders.values():
            self._reply(post, queue, verdict)

    def check(self) -> None:
        """The bounds hold, and nothing is unacknowledged that was not sent."""
        assert len(self._last) <= SPEAKERS_MAX and len(self._unacked) <= self._unacked_max
        assert self._is_resumable or not self._unacked
