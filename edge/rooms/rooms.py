"""Rooms: the rim of room_* and webrtc_*. The mesh knows who is in a room; this edge asks, and tells the members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from edge.link.core.rpc import Reply
from edge.link.link import EdgeLink
from edge.requests.core.context import RequestContext
from edge.rooms.core.fanout import Fan, plan
from edge.rooms.core.member_list import members_of
from edge.rooms.core.relay_queue import RelayMessage
from edge.rooms.relay import Relay, numbered_key, read_key
from edge.sessions.actor import Actor
from edge.sessions.core.session import FinalizedUtterance, language_of
from mesh.config.sessions import RoomsConfig
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Failed, Post, Posted, RoomMember, RoomRequest, RoomSignal, RoomState
from mesh.log import get_logger
from mesh.messages.base import Message, encode_utf8
from mesh.messages.client import (
    MissingResult,
    RoomCreate,
    RoomCreateAck,
    RoomErrorMessage,
    RoomJoin,
    RoomLeave,
    RoomRawVoicePreference,
    TranslationResult,
    UtteranceEnded,
    WebrtcAnswer,
    WebrtcIce,
    WebrtcOffer,
)
from mesh.words import PostKind, PostVerdict, RoomAction

#: What the mesh answers when a room or a membership is gone.
_GONE: Final = frozenset({ErrorCode.ROOM_NOT_FOUND.name, ErrorCode.NOT_IN_ROOM.name})
#: And when it may know more in a moment.
_PASSING: Final = ErrorCode.SCHEDULER_DEPENDENCY_DOWN.name
#: What puts a session into a room.
_ENTERS: Final = frozenset({RoomAction.CREATE, RoomAction.JOIN})

Then = Callable[[RoomState], None]

log = get_logger()


class Rooms:
    """What sessions of this edge do in rooms."""

    def __init__(self, config: RoomsConfig, link: EdgeLink, posts: Relay) -> None:
        self._config = config
        self._link = link
        self._posts = posts
        posts.on_kind[PostKind.ROOM_EXPIRED] = self._on_expired
        posts.on_kind[PostKind.ROOM_MEMBERS] = self._on_members
        self.handlers: dict[type[Message], Callable[[Actor, Any], None]] = {
            RoomCreate: self._on_create,
            RoomJoin: self._on_join,
            RoomLeave: self._on_leave,
            RoomRawVoicePreference: self._on_preference,
            WebrtcOffer: self._on_signal,
            WebrtcAnswer: self._on_signal,
            WebrtcIce: self._on_signal,
        }

    # --- coming and going -----------------------------------------------------------------------------

    def _on_create(self, actor: Actor, message: RoomCreate) -> None:
        if self._is_elsewhere(actor, ""):
            return

        def created(state: RoomState) -> None:
            actor.room = state.room_code
            actor.tell(RoomCreateAck(room_code=state.room_code, room_id=state.room_id))
            self._entered(actor, state)

        self._ask(actor, created, RoomAction.CREATE, "", **_who(message))

    def _on_join(self, actor: Actor, message: RoomJoin) -> None:
        code = message.room_code.strip()
        if self._is_elsewhere(actor, code):
            return

        def joined(state: RoomState) -> None:
            actor.room = state.room_code
            self._entered(actor, state)

        self._ask(actor, joined, RoomAction.JOIN, code, **_who(message))

    def _entered(self, actor: Actor, state: RoomState) -> None:
        actor.note(away=actor.socket is None)
        self._tell_all(actor, state)
        log.info("room_entered", session_id=actor.session_id, room_code=state.room_code, members=len(state.members))

    def _is_elsewhere(self, actor: Actor, code: str) -> bool:
        if not actor.room or actor.room == code:
            return False
        self._tell_error(actor, ErrorCode.ALREADY_IN_ROOM.name, f"this session is in room {actor.room}")
        return True

    def _on_leave(self, actor: Actor, message: RoomLeave) -> None:
        if message.room_code.strip() != actor.room or not actor.room:
            self._tell_error(actor, ErrorCode.NOT_IN_ROOM.name, "this session is not in that room")
            return

        def left(state: RoomState) -> None:
            actor.room = ""
            actor.note(away=actor.socket is None)
            self._tell_all(actor, state)

        self._ask(actor, left, RoomAction.LEAVE, actor.room)

    def gone(self, actor: Actor) -> None:
        """The session ended: its room shall know."""
        code, actor.room = actor.room, ""
        if code:
            self._request(actor, RoomAction.LEAVE, code, lambda answer: self._on_left(actor, answer))

    def _on_left(self, actor: Actor, answer: Reply | None) -> None:
        if isinstance(answer, RoomState):
            self._tell_all(actor, answer)
        else:
            log.warning("room_not_left", session_id=actor.session_id)  # the room forgets it when it expires

    def _on_expired(self, actor: Actor, post: Post) -> bool:
        if actor.room == post.room_code:
            actor.room = ""
            actor.note(away=False)
        return True

    def _on_members(self, actor: Actor, post: Post) -> bool:
        """A list from another edge: it may be older than the one that the client has, or of a room that it left."""
        return actor.room in ("", post.room_code) and actor.roster.take(*read_key(post.key))

    # --- preferences and voices -------------------------------------------------------------------------

    def _on_preference(self, actor: Actor, message: RoomRawVoicePreference) -> None:
        def preferred(state: RoomState) -> None:
            self._tell_all(actor, state)

        target, wanted = message.target_session_id, message.receive_raw_voice
        self._ask(actor, preferred, RoomAction.PREFER, message.room_code.strip(), target=target, wanted=wanted)

    def _on_signal(self, actor: Actor, message: WebrtcOffer | WebrtcAnswer | WebrtcIce) -> None:
        """Pass it on; the receiver sees from whom it comes."""
        body = encode_utf8(_from(actor.session_id, message))
        if len(body) > self._config.signal_bytes_max:
            text = f"a signal may have {self._config.signal_bytes_max} bytes, not {len(body)}"
            raise PeerError(ErrorCode.MESSAGE_TOO_LARGE, text)
        if actor.signals >= self._config.signals_max:
            raise PeerError(ErrorCode.SLOW_DOWN, f"{actor.signals} signals wait for their receivers")
        actor.signals += 1

        def on_answer(answer: Reply | None) -> None:
            actor.signals -= 1
            if answer is None:
                self._tell_error(actor, ErrorCode.INTERNAL_ERROR.name, "the mesh did not answer in time")
            elif isinstance(answer, Failed):
                self._tell_error(actor, answer.code, answer.message)
            elif isinstance(answer, Posted) and answer.verdict != PostVerdict.TOLD:
                self._tell_error(actor, ErrorCode.MEMBER_NOT_FOUND.name, "that member is not connected now")

        def question(ref: str) -> RoomSignal:
            code = message.room_code.strip()
            return RoomSignal(ref, self._link.identity, actor.session_id, code, message.to)

        self._link.ask(question, message.room_code.strip(), on_answer, payload=(body,))

    # --- speaking ---------------------------------------------------------------------------------------

    def speak(self, actor: Actor, spoken: FinalizedUtterance, then: Callable[[Sequence[RoomMember]], None]) -> None:
        """Somebody speaks, which keeps the room alive: who is there to hear it? Nobody, if the room is gone.

        While the mesh cannot tell, what was spoken waits: those who are there shall hear it.
        """
        actor.busy = True

        def on_answer(answer: Reply | None) -> None:
            actor.busy = False
            if isinstance(answer, Failed) and answer.code in _GONE:
                actor.room = ""
            if actor.ended:
                return
            if answer is None or (isinstance(answer, Failed) and answer.code == _PASSING):
                actor.unsay(spoken)
                return
            then(answer.members if isinstance(answer, RoomState) else ())
            actor.pump()

        self._request(actor, RoomAction.SPEAK, actor.room, on_answer)

    def plan(self, actor: Actor, members: Sequence[RoomMember]) -> list[Fan]:
        """Into which languages an utterance goes, and who hears each."""
        return plan(actor.session_id, language_of(actor.session.init.tgt_lang, "tgt_lang"), members)

    def expect(self, actor: Actor, index: int, fans: list[Fan]) -> None:
        """Each of these listeners gets that index, whatever language it wants of the next one."""
        key = numbered_key(actor.session_id, index)
        for fan in fans:
            for listener in fan.listeners:
                self._posts.expect(actor.session_id, listener, key)

    def hand_out(self, actor: Actor, about: RequestContext, message: TranslationResult | MissingResult) -> None:
        """Tell the listeners of one language. The speaker hears when everybody has everything."""
        index, body = about.index, encode_utf8(message)
        left = len(about.listeners)
        if actor.resumable:
            actor.acks.listens(index, left)

        def done(listener: str, verdict: str) -> None:
            nonlocal left
            left -= 1
            if verdict == PostVerdict.NO_SESSION:
                self._remove(actor, listener)
            if actor.resumable and not actor.ended:
                actor.release(actor.acks.listens(index, -1))
            if not left:
                self._lane_done(actor, about)

        for listener in about.listeners:
            key = numbered_key(actor.session_id, index)
            letter = RelayMessage(listener, PostKind.RESULT, key, body, actor.room, True, partial(done, listener))
            self._posts.send(actor.session_id, letter)

    def _remove(self, actor: Actor, member: str) -> None:
        """A member whose session is over and whose edge died before it could say so."""
        code = actor.room

        def on_answer(answer: Reply | None) -> None:
            if isinstance(answer, RoomState):
                self._tell_all(actor, answer)

        if code:
            edge = self._link.identity
            self._link.ask(lambda ref: RoomRequest(ref, edge, member, RoomAction.LEAVE, code), code, on_answer)

    def _lane_done(self, actor: Actor, about: RequestContext) -> None:
        actor.fans[about.index] -= 1
        if actor.fans[about.index]:
            return
        del actor.fans[about.index]
        if actor.resumable:
            ended = UtteranceEnded(session_id=actor.session_id, utterance_index=about.index, last_seq=about.last_seq)
            actor.tell_kept(about.index, ended)
        actor.pump()

    # --- inside -----------------------------------------------------------------------------------------

    def _ask(self, actor: Actor, then: Then, action: str, code: str, **fields: Any) -> None:
        """Ask the mesh on behalf of the client, who waits for the answer before its next message counts."""
        actor.busy = True

        def on_answer(answer: Reply | None) -> None:
            actor.busy = False
            if actor.ended:
                if isinstance(answer, RoomState) and action in _ENTERS and not actor.moved:
                    actor.room = answer.room_code
                    self.gone(actor)  # it was over before it was in
                return
            if isinstance(answer, RoomState):
                then(answer)
            elif isinstance(answer, Failed):
                self._tell_error(actor, answer.code, answer.message)
            else:
                self._tell_error(actor, ErrorCode.INTERNAL_ERROR.name, "the mesh did not answer in time")
            actor.pump()

        self._request(actor, action, code, on_answer, **fields)

    def _request(
        self, actor: Actor, action: str, code: str, on_answer: Callable[[Reply | None], None], **fields: Any
    ) -> None:
        def question(ref: str) -> RoomRequest:
            return RoomRequest(ref, self._link.identity, actor.session_id, action, code, **fields)

        self._link.ask(question, code or actor.session_id, on_answer)

    def _tell_all(self, actor: Actor, state: RoomState) -> None:
        """Everybody in the room hears who is in it."""
        if any(member.session_id == actor.session_id for member in state.members):
            self._tell_own(actor, state)
        body = encode_utf8(members_of(state))
        key = numbered_key(state.room_id, state.version)
        for member in state.members:
            if member.session_id != actor.session_id:
                code, ignore = state.room_code, lambda verdict: None
                self._posts.send(
                    code, RelayMessage(member.session_id, PostKind.ROOM_MEMBERS, key, body, code, False, ignore)
                )

    def _tell_own(self, actor: Actor, state: RoomState) -> None:
        """Who asked hears it too. If it has a later list meanwhile, that one again, for it waits for an answer."""
        if actor.roster.take(state.room_id, state.version):
            actor.tell(members_of(state))
        else:
            self.tell_again(actor)

    def tell_again(self, actor: Actor) -> None:
        """Who is in the room now. A client that was away was not told who came and went meanwhile."""
        code = actor.room
        if not code:
            return

        def looked(answer: Reply | None) -> None:
            if actor.ended or actor.room != code:
                return
            if isinstance(answer, RoomState) and not actor.roster.is_older(answer.room_id, answer.version):
                actor.roster.take(answer.room_id, answer.version)
                actor.tell(members_of(answer))
            elif isinstance(answer, Failed) and answer.code in _GONE:
                actor.room = ""
                actor.note(away=actor.socket is None)
                self._tell_error(actor, answer.code, answer.message)

        self._request(actor, RoomAction.LOOK, code, looked)

    def _tell_error(self, actor: Actor, code: str, message: str) -> None:
        actor.tell(RoomErrorMessage(code=code, message=message))


def _who(message: RoomCreate | RoomJoin) -> dict[str, str]:
    lang = message.preferred_lang
    return {
        "display_name": message.display_name or "",
        "preferred_lang": language_of(lang, "preferred_lang") if lang else "",
    }


def _from(sender: str, message: WebrtcOffer | WebrtcAnswer | WebrtcIce) -> Message:
    if isinstance(message, WebrtcIce):
        return WebrtcIce(room_code=message.room_code, to=sender, candidate=message.candidate)
    kind = type(message)
    return kind(room_code=message.room_code, to=sender, sdp=message.sdp)
