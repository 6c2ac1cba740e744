"""Delivery: sends results to the client or to the listeners in its room, and acknowledges them upstream.

When is a result acknowledged upstream? The edge of its node retries it until then, and any later owner of the session
gets it. So the rule is, for every result that reaches the session:

    result for a client that is not resumable      at once: it cannot be resent
    result for a resumable client                  when the client acknowledges its index
    result for listeners in a room                 when each of them has it, or never will
    result of an index that has ended meanwhile    at once: it is not wanted any more
    duplicate of a result that is unacknowledged   not now: the first one is acknowledged as above
    any other result of no pending request         at once, with the tracker's verdict
    the session ends                               everything that is left
    the session moves to another edge              nothing: its next owner gets it
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import Raw

from edge.requests.core.request import AckResult, ResultRejected
from edge.rooms.core.events import RelayCompleted, numbered_key
from edge.rooms.core.relay_queue import RelayMessage
from edge.sessions.core.effects import SendRelay
from edge.sessions.core.membership import Membership
from edge.sessions.core.results.request_context import RequestContext
from edge.sessions.core.results.unacked import Unacked
from edge.sessions.core.session import Session
from edge.sessions.core.turn import Turn
from mesh.messages.audio import NOT_SENT, json_audio
from mesh.messages.base import Message, encode_utf8
from mesh.messages.client import MissingResult, TranslationResult, UtteranceEnded
from mesh.words import PostKind, ResultVerdict


class Relayed(NamedTuple):
    """A result that was sent to listeners of a room, and the listeners without an outcome yet."""

    context: RequestContext
    listeners: set[str]


class Delivery:
    """The results of one session until the client, or every listener, has them."""

    __slots__ = ("_membership", "_relayed", "_session", "_turn", "is_resumable", "open_languages", "unacked")

    def __init__(self, turn: Turn, session: Session, membership: Membership) -> None:
        self._turn = turn
        self._session = session
        self._membership = membership
        self.is_resumable = bool(session.init.resumable)
        self.unacked = Unacked()
        #: By index: the number of languages whose listeners do not have it yet.
        self.open_languages: dict[int, int] = {}
        self._relayed: dict[tuple[str, int], Relayed] = {}

    def on_rejected(self, event: ResultRejected) -> None:
        """A result of no pending request."""
        if not self.unacked.has(event.push):
            self._turn.do(AckResult(event.push, event.verdict))

    def send_unacked(self, index: int, message: Message) -> None:
        """Send a message that a resumable client acknowledges; until then it is stored for its next connection."""
        audio = raw_audio(message)
        if not self.is_resumable and audio is None:
            self._turn.send(message)
            return
        if audio is not None:
            message = msgspec.structs.replace(message, tts_audio=NOT_SENT)
        body = encode_utf8(message)
        if self.is_resumable:
            self.unacked.sent(index, body, audio)
        self._turn.send_encoded(str(message.__struct_config__.tag), body, audio)

    def resend(self, last_index: int) -> None:
        """Resend unacked messages after that index, on the client's new connection."""
        for body, audio in self.unacked.after(last_index):
            self._turn.send_encoded("translation_result", body, audio)

    def acknowledge(self, index: int) -> None:
        """The client has everything up to that index."""
        for push in self.unacked.ack(index):
            self._turn.do(AckResult(push, ResultVerdict.DELIVERED))

    def end(self) -> None:
        """The session is over: acknowledge all its results upstream."""
        for push in self.unacked.end():
            self._turn.do(AckResult(push, ResultVerdict.DELIVERED))

    def send(self, context: RequestContext, message: TranslationResult | MissingResult) -> None:
        """Send a released result to the client, or to the listeners of its language."""
        if context.language:
            if isinstance(message, TranslationResult):
                message = msgspec.structs.replace(message, tts_audio=json_audio(message.tts_audio))
            self._relay(context, encode_utf8(message))
            return
        if self.is_resumable and context.last_seq is not None:
            message = msgspec.structs.replace(message, last_seq=context.last_seq)
        self.send_unacked(context.index, message)

    def _relay(self, context: RequestContext, body: bytes) -> None:
        index, own, room = context.index, self._session.session_id, self._membership.code
        if self.is_resumable:
            self.unacked.add_listeners(index, len(context.listeners))
        self._relayed[context.language, index] = Relayed(context, set(context.listeners))
        for listener in context.listeners:
            key = numbered_key(own, index)
            relay_message = RelayMessage(
                listener, PostKind.RESULT, key, body, room, park=True, sender=own, language=context.language
            )
            self._turn.do(SendRelay(own, relay_message))

    def on_relayed(self, event: RelayCompleted, index: int) -> None:
        """A listener has the result of that index, or never will. After the last one the client is notified."""
        key = (event.message.language, index)
        relayed = self._relayed.get(key)
        if relayed is None or event.message.listener not in relayed.listeners:
            return  # sent before the session moved to another edge and back
        relayed.listeners.remove(event.message.listener)
        if self.is_resumable:
            for push in self.unacked.add_listeners(index, -1):
                self._turn.do(AckResult(push, ResultVerdict.DELIVERED))
        if relayed.listeners:
            return
        del self._relayed[key]
        self.open_languages[index] -= 1
        if self.open_languages[index]:
            return
        del self.open_languages[index]
        if self.is_resumable:
            own, last_seq = self._session.session_id, relayed.context.last_seq
            self.send_unacked(index, UtteranceEnded(session_id=own, utterance_index=index, last_seq=last_seq))

    def check(self) -> None:
        """All counts are exact, and every relayed result has listeners and an open language."""
        self.unacked.check()
        assert all(relayed.listeners for relayed in self._relayed.values())
        assert all(self.open_languages.values()) and {index for _, index in self._relayed} <= self.open_languages.keys()


def raw_audio(message: Message) -> bytes | None:
    """The raw audio of a result whose node sent it so; copied, because it is a view of a frame with other messages."""
    if not isinstance(message, TranslationResult) or isinstance(message.tts_audio, Raw | str):
        return None
    return bytes(message.tts_audio)
