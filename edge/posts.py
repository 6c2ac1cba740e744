"""Posts: messages for sessions that are anywhere, and those that come here for ours.

Between one speaker and one listener a post waits until the one before it is in good hands, so they arrive in order; a
listener that acknowledges its results has one when it says so. A repeat is told once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from edge.actor import Actor
from edge.core.asks import Answer
from edge.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.tools import Unposted
from mesh.config import Config
from mesh.frames import Post, Posted
from mesh.link import Received

#: Speakers whose last index a listener remembers.
SPEAKERS_MAX: Final = 1_024

#: Hears the verdict of a Posted, or "no_answer" or "dropped".
Done = Callable[[str], None]


class Letter(NamedTuple):
    """One message for one session. `key` is the same however often it is sent."""

    listener: str
    kind: str
    key: str
    body: bytes
    room_code: str
    #: Worth keeping while the listener is away.
    park: bool
    done: Done


class Posts:
    """All posts of this edge. `actor_of` finds a session that is here."""

    def __init__(
        self, config: Config, link: EdgeLink, metrics: EdgeMetrics, actor_of: Callable[[str], Actor | None]
    ) -> None:
        self._config = config
        self._link = link
        self._metrics = metrics
        self._actor_of = actor_of
        self._waiting: dict[tuple[str, str], deque[Letter]] = {}
        #: What is done with a post of that kind besides telling the client.
        self.on_kind: dict[str, Callable[[Actor, Post], None]] = {}
        link.handle({Post: self._on_post}, {})

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    # --- out --------------------------------------------------------------------------------------

    def send(self, speaker: str, letter: Letter) -> None:
        """Send a letter after those of the same speaker to the same listener."""
        waiting = self._waiting.setdefault((speaker, letter.listener), deque())
        if len(waiting) > self._config.session.pending_max:
            self._metrics.posts_total.labels("dropped").inc()
            letter.done("dropped")
            return
        waiting.append(letter)
        if len(waiting) == 1:
            self._next(speaker, letter.listener)

    def _next(self, speaker: str, listener: str) -> None:
        letter = self._waiting[speaker, listener][0]

        def on_verdict(verdict: str) -> None:
            self._metrics.posts_total.labels(verdict).inc()
            waiting = self._waiting[speaker, listener]
            waiting.popleft()
            if waiting:
                self._next(speaker, listener)
            else:
                del self._waiting[speaker, listener]
            letter.done(verdict)

        self._deliver(letter, on_verdict)

    def _deliver(self, letter: Letter, on_verdict: Callable[[str], None]) -> None:
        """To a session that is here at once, to others by the mesh."""
        identity, actor = self._link.identity, self._actor_of(letter.listener)
        if actor is not None and actor.socket is not None:
            self._link.soon(lambda: self._tell_or_ask(letter, on_verdict, identity))
            return
        self._ask(letter, on_verdict, identity)

    def _tell_or_ask(self, letter: Letter, on_verdict: Callable[[str], None], identity: str) -> None:
        actor = self._actor_of(letter.listener)
        post = self._frame(letter, "", identity)
        if actor is None or not self._receive(actor, post, letter.body, on_verdict):
            self._ask(letter, on_verdict, identity)

    def _ask(self, letter: Letter, on_verdict: Callable[[str], None], identity: str) -> None:
        def on_answer(answer: Answer | None) -> None:
            on_verdict(answer.verdict if isinstance(answer, Posted) else "no_answer")

        timeout_ms = self._config.session.resume_ms if letter.park else 0
        self._link.ask(
            lambda ref: self._frame(letter, ref, identity),
            letter.listener,
            on_answer,
            payload=(letter.body,),
            timeout_ms=timeout_ms,
        )

    def _frame(self, letter: Letter, ref: str, identity: str) -> Post:
        return Post(ref, identity, letter.listener, letter.kind, letter.key, letter.park, letter.room_code)

    # --- in ---------------------------------------------------------------------------------------

    def _on_post(self, message: Received) -> None:
        post = message.frame
        assert isinstance(post, Post)
        actor = self._actor_of(post.session_id)

        def answer(verdict: str) -> None:
            if post.edge:
                self._link.to_peer(post.edge, Posted(post.ref, post.session_id, verdict))

        if actor is not None:
            # Not here, or away: no answer. It comes again, and by then the mesh knows where the session is.
            self._receive(actor, post, message.payload[0], answer)

    def _receive(self, actor: Actor, post: Post, body: bytes, answer: Callable[[str], None]) -> bool:
        """Tell our client; False if it is not there."""
        if actor.socket is None:
            return False
        if post.kind == "result":
            self._on_result(actor, post.key, body, answer)
            return True
        actor.socket.tell_encoded(_TYPES.get(post.kind, post.kind), body)
        on_kind = self.on_kind.get(post.kind)
        if on_kind is not None:
            on_kind(actor, post)
        answer("told")
        return True

    def _on_result(self, actor: Actor, key: str, body: bytes, answer: Callable[[str], None]) -> None:
        speaker, index = read_key(key)
        if index <= actor.listening.get(speaker, -1):
            if (speaker, index) in actor.unposted:
                actor.unposted[speaker, index] = Unposted(body, answer)
            else:
                answer("told")
            return
        actor.listening.pop(speaker, None)
        actor.listening[speaker] = index
        if len(actor.listening) > SPEAKERS_MAX:
            del actor.listening[next(iter(actor.listening))]
        assert actor.socket is not None
        actor.socket.tell_encoded("translation_result", body)
        if actor.resumable:
            actor.unposted[speaker, index] = Unposted(body, answer)
        else:
            answer("told")

    def take_mail(self, actor: Actor, post: Post, body: bytes) -> None:
        """A post that waited in the mail of a session that is here now."""
        self._receive(actor, post, body, lambda verdict: None)

    def on_ack(self, actor: Actor, speaker: str, index: int) -> None:
        """The client has what that member said, up to that index."""
        for key in [key for key in actor.unposted if key[0] == speaker and key[1] <= index]:
            actor.unposted.pop(key).answer("told")

    def tell_again(self, actor: Actor) -> None:
        """The client has another connection: what it did not acknowledge may not have arrived."""
        for unposted in actor.unposted.values():
            if actor.socket is not None:
                actor.socket.tell_encoded("translation_result", unposted.body)


#: Kind of a post -> type of its message, where they differ.
_TYPES: Final = {"signal": "webrtc_offer"}


def result_key(speaker: str, index: int) -> str:
    """The key of a result for a listener: one per speaker and index."""
    return f"{speaker}/{index}"


def read_key(key: str) -> tuple[str, int]:
    """What `result_key` was made of."""
    speaker, _, index = key.rpartition("/")
    return speaker, int(index)
