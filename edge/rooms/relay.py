"""Posts: messages for sessions that are anywhere, and those that come here for ours.

Between one speaker and one listener a post waits until the one before it is in good hands, so they arrive in order; a
listener that acknowledges its results has one when it says so. A repeat is told once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from edge.core.timers import Timers
from edge.link.core.rpc import Reply
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.rooms.core import relay_queue
from edge.rooms.core.relay_queue import RelayMessage, RelayQueue
from edge.sessions.actor import Actor
from edge.sessions.context import Unposted
from mesh.clock import now_ms
from mesh.config import Config
from mesh.frames import Post, Posted
from mesh.link.link import Received
from mesh.log import get_logger
from mesh.words import PostFailure, PostKind, PostVerdict

log = get_logger()

#: Speakers whose last index a listener remembers.
SPEAKERS_MAX: Final = 1_024
#: No verdict of the mesh: the listener went to another edge before it acknowledged what it was told here.
MOVED: Final = "moved"

#: Speaker and listener.
Pair = tuple[str, str]


class _Going(NamedTuple):
    """A letter that is on its way, and whom to tell what became of it."""

    letter: RelayMessage
    on_verdict: Callable[[str], None]


class Relay:
    """All posts of this edge. `actor_of` finds a session that is here."""

    def __init__(
        self, config: Config, link: EdgeLink, metrics: EdgeMetrics, actor_of: Callable[[str], Actor | None]
    ) -> None:
        self._config = config
        self._link = link
        self._metrics = metrics
        self._actor_of = actor_of
        self._letters = RelayQueue(relay_queue.RelayLimits(config.session.mail_max, config.session.mail_bytes_max))
        self._going: dict[Pair, _Going] = {}
        #: When the listeners of this edge have had enough time to acknowledge.
        self._waits: Timers[Pair] = Timers()
        #: What is done with a post of that kind before the client is told; False: it shall not be.
        self.on_kind: dict[str, Callable[[Actor, Post], bool]] = {}
        link.handle({Post: self._on_post}, {})

    def __len__(self) -> int:
        return len(self._letters)

    # --- out --------------------------------------------------------------------------------------

    def expect(self, speaker: str, listener: str, key: str) -> None:
        """A letter with that key will be sent, and later ones must not overtake it."""
        self._letters.reserve(speaker, listener, key)

    def send(self, speaker: str, letter: RelayMessage) -> None:
        """Send a letter after those of the same speaker to the same listener."""
        if self._letters.put(speaker, letter):
            self._next((speaker, letter.listener))
            return
        self._metrics.posts_total.labels(PostFailure.DROPPED).inc()
        self._next((speaker, letter.listener))
        letter.done(PostFailure.DROPPED)

    def forget(self, speaker: str) -> None:
        """The speaker is not here any more: what was expected of it and not sent does not come."""
        for listener in self._letters.forget(speaker):
            self._next((speaker, listener))

    def next_due_ms(self) -> int | None:
        """When `tick` has something to do; None while nobody here is waited for."""
        return self._waits.next_due_ms()

    def tick(self, now: int) -> None:
        """Wait no longer for listeners of this edge that do not acknowledge."""
        for pair in self._waits.pop_due(now):
            try:
                self._going[pair].on_verdict(PostFailure.NO_ANSWER)
            except Exception:
                # Whatever went wrong with one speaker, the others go on.
                log.exception("post_failed", speaker=pair[0], listener=pair[1])

    def _next(self, pair: Pair) -> None:
        letter = self._letters.first(*pair)
        if letter is None or pair in self._going:
            return

        def on_verdict(verdict: str) -> None:
            going = self._going.get(pair)
            if going is None or going.letter is not letter:
                return  # it came too late
            del self._going[pair]
            self._waits.drop(pair)
            self._letters.pop(*pair)
            self._metrics.posts_total.labels(verdict).inc()
            self._next(pair)
            letter.done(verdict)

        self._going[pair] = _Going(letter, on_verdict)
        self._deliver(pair, letter, on_verdict)

    def _deliver(self, pair: Pair, letter: RelayMessage, on_verdict: Callable[[str], None]) -> None:
        """To a session that is here at once, to others by the mesh."""
        actor = self._actor_of(letter.listener)
        if actor is not None and actor.socket is not None:
            self._link.soon(lambda: self._tell_or_ask(pair, letter, on_verdict))
            return
        self._ask(letter, on_verdict)

    def _tell_or_ask(self, pair: Pair, letter: RelayMessage, on_verdict: Callable[[str], None]) -> None:
        def answer(verdict: str) -> None:
            going = self._going.get(pair)
            if verdict != MOVED:
                on_verdict(verdict)
            elif going is not None and going.letter is letter:
                self._waits.drop(pair)
                self._ask(letter, on_verdict)

        actor = self._actor_of(letter.listener)
        self._waits.set(pair, now_ms() + self._config.session.resume_ms)
        if actor is None or not self._receive(actor, self._frame(letter, ""), letter.body, answer):
            self._waits.drop(pair)
            self._ask(letter, on_verdict)
        self._link.changed()

    def _ask(self, letter: RelayMessage, on_verdict: Callable[[str], None]) -> None:
        def on_answer(answer: Reply | None) -> None:
            on_verdict(answer.verdict if isinstance(answer, Posted) else PostFailure.NO_ANSWER)

        timeout_ms = self._config.session.resume_ms if letter.park else 0
        self._link.ask(
            lambda ref: self._frame(letter, ref),
            letter.listener,
            on_answer,
            payload=(letter.body,),
            timeout_ms=timeout_ms,
        )

    def _frame(self, letter: RelayMessage, ref: str) -> Post:
        edge = self._link.identity
        return Post(ref, edge, letter.listener, letter.kind, letter.key, letter.park, letter.room_code)

    # --- in ---------------------------------------------------------------------------------------

    def _on_post(self, message: Received) -> None:
        post = message.frame
        assert isinstance(post, Post)
        actor = self._actor_of(post.session_id)

        def answer(verdict: str) -> None:
            if post.edge and verdict != MOVED:
                self._link.to_peer(post.edge, Posted(post.ref, post.session_id, verdict))

        if actor is not None:
            # Not here, or away: no answer. It comes again, and by then the mesh knows where the session is.
            self._receive(actor, post, message.payload[0], answer)

    def _receive(self, actor: Actor, post: Post, body: bytes, answer: Callable[[str], None]) -> bool:
        """Tell our client; False if it is not there."""
        if actor.socket is None:
            return False
        if post.kind == PostKind.RESULT:
            self._on_result(actor, post, body, answer)
            return True
        on_kind = self.on_kind.get(post.kind)
        if on_kind is None or on_kind(actor, post):
            actor.socket.tell_encoded(_TYPES.get(post.kind, post.kind), body)
        answer(PostVerdict.TOLD)
        return True

    def _on_result(self, actor: Actor, post: Post, body: bytes, answer: Callable[[str], None]) -> None:
        speaker, index = read_key(post.key)
        if index <= actor.listening.get(speaker, -1):
            unposted = actor.unposted.get((speaker, index))
            if unposted is not None:
                unposted.answers[post.edge] = answer
            else:
                answer(PostVerdict.TOLD)
            return
        actor.listening.pop(speaker, None)
        actor.listening[speaker] = index
        if len(actor.listening) > SPEAKERS_MAX:
            del actor.listening[next(iter(actor.listening))]
        assert actor.socket is not None
        actor.socket.tell_encoded("translation_result", body)
        if not actor.resumable:
            answer(PostVerdict.TOLD)
            return
        actor.unposted[speaker, index] = Unposted(body, {post.edge: answer})
        if len(actor.unposted) > self._config.session.unacked_max:
            del actor.unposted[next(iter(actor.unposted))]  # whoever sent it has waited long enough

    def take_mail(self, actor: Actor, post: Post, body: bytes) -> None:
        """A post that waited in the mail of a session that is here now. Its sender knows that it did."""
        self._receive(actor, msgspec.structs.replace(post, edge=""), body, lambda verdict: None)

    def on_ack(self, actor: Actor, speaker: str, index: int) -> None:
        """The client has what that member said, up to that index."""
        for key in [key for key in actor.unposted if key[0] == speaker and key[1] <= index]:
            _answer(actor.unposted.pop(key), PostVerdict.TOLD)

    def gone(self, actor: Actor, verdict: str) -> None:
        """The session is over (NO_SESSION), or another edge's (MOVED): what it was told may not have arrived."""
        unposted, actor.unposted = actor.unposted, {}
        for one in unposted.values():
            _answer(one, verdict)
        self.forget(actor.session_id)

    def tell_again(self, actor: Actor) -> None:
        """The client has another connection: what it did not acknowledge may not have arrived."""
        for unposted in actor.unposted.values():
            if actor.socket is not None:
                actor.socket.tell_encoded("translation_result", unposted.body)


def _answer(unposted: Unposted, verdict: str) -> None:
    for answer in unposted.answers.values():
        answer(verdict)


#: Kind of a post -> type of its message, where they differ.
_TYPES: Final[dict[str, str]] = {PostKind.SIGNAL: "webrtc_offer"}


def numbered_key(of: str, number: int) -> str:
    """The key of a post that is one of many: a speaker's results by index, a room's lists of members by version."""
    return f"{of}/{number}"


def read_key(key: str) -> tuple[str, int]:
    """What `numbered_key` was made of."""
    of, _, number = key.rpartition("/")
    return of, int(number)
