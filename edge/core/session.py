"""Session: what one client's session is, which utterances it accepts and the Dispatch that each becomes. Pure.

    (session_init) -> READY -> CLOSED

Owns the session's defaults and the memory of utterances seen. Requests on their way belong to custody.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Final, NamedTuple

import msgspec

from mesh.errors import ErrorCode, PeerError
from mesh.frames import Dispatch, Work
from mesh.handover import work_from
from mesh.session_wire import PipelineConfig, SessionInit, Utterance

#: What the original's scheduler always asks of a node.
PARTIAL_UPDATE_INTERVAL_MS: Final = 1_000
#: A client is asked to slow down at most this often; the original client debounces by as much.
BACKPRESSURE_EVERY_MS: Final = 500

_LANG: Final = re.compile(r"[A-Za-z0-9_-]{1,35}")
#: Which flag of the pipeline needs which service of a node.
_SERVICES: Final = {
    "use_asr": "asr",
    "use_nmt": "nmt",
    "use_tts": "tts",
    "use_semantic": "semantic",
    "use_tone": "tone",
}


class Limits(NamedTuple):
    """The bounds this core obeys, from the configuration."""

    waiting_max: int
    remembered_max: int


class Session:
    """One session of this edge."""

    def __init__(self, session_id: str, init: SessionInit, trace_id: str, limits: Limits) -> None:
        self.session_id = session_id
        #: What an utterance leaves out comes from here.
        self.init = msgspec.structs.replace(
            init,
            enable_streaming_asr=init.enable_streaming_asr is not False,
            partial_update_interval_ms=init.partial_update_interval_ms or PARTIAL_UPDATE_INTERVAL_MS,
        )
        self.trace_id = trace_id
        self.limits = limits
        self.tenant_id = init.tenant_id or ""
        #: Given by the selector; 0 until then.
        self.epoch = 0
        self.closed = False
        #: (utterance_index, target language) of what was accepted -> whether it failed. A repeat of one that is under
        #: way or has its result makes no second job; one that failed may be sent again.
        self._seen: OrderedDict[tuple[int, str], bool] = OrderedDict()
        self._retries = 0
        self._slowed_ms: int | None = None
        language_of(init.src_lang, "src_lang")
        language_of(init.tgt_lang, "tgt_lang")

    def own(self, session_id: str) -> None:
        """PeerError unless a message is about this session and the session is open."""
        if session_id != self.session_id:
            raise PeerError(ErrorCode.ID_MISMATCH, f"this connection belongs to session {self.session_id}")
        if self.closed:
            raise PeerError(ErrorCode.SESSION_CLOSED, f"session {self.session_id} is closed")

    def is_new(self, utterance: Utterance, waiting: int) -> bool:
        """False if the utterance is a repeat; PeerError if too many wait for their results already."""
        failed = self._seen.get((utterance.utterance_index, _target(utterance)))
        if failed is False:
            return False
        if waiting >= self.limits.waiting_max:
            text = f"{waiting} utterances wait for their results"
            raise PeerError(ErrorCode.TOO_MANY_UTTERANCES, text)
        return True

    def dispatch(
        self, utterance: Utterance, *, edge: str, audio_ms: int, trace_id: str, deadline_ms: int
    ) -> tuple[Dispatch, Work]:
        """Accept `utterance`: the frame that finds a node for it, and what that node will be told."""
        init, target = self.init, _target(utterance)
        request_id = f"{self.session_id}:{utterance.utterance_index}:{target}:{trace_id}"
        if self._seen.get((utterance.utterance_index, target)):
            # The failed one's id is bound to a dead job, and what still comes for it is not for the new one.
            self._retries += 1
            request_id += f":{self._retries}"
        pipeline = utterance.pipeline or PipelineConfig()
        lang_a, lang_b = utterance.lang_a or init.lang_a, utterance.lang_b or init.lang_b
        frame = Dispatch(
            request_id=request_id,
            attempt=1,
            session_id=self.session_id,
            utterance_index=utterance.utterance_index,
            edge=edge,
            tenant_id=self.tenant_id,
            src_lang=language_of(utterance.src_lang, "src_lang"),
            tgt_lang=target,
            lang_a=language_of(lang_a, "lang_a") if lang_a else "",
            lang_b=language_of(lang_b, "lang_b") if lang_b else "",
            services=[service for flag, service in _SERVICES.items() if getattr(pipeline, flag)],
            public=True,
            audio_ms=audio_ms,
            deadline_ms=deadline_ms,
            trace_id=trace_id,
        )
        self._seen[utterance.utterance_index, target] = False
        while len(self._seen) > self.limits.remembered_max:
            self._seen.popitem(last=False)
        return frame, work_from(utterance, init, trace_id)

    def failed(self, utterance_index: int, target: str) -> None:
        """The client was told that there will be no result: it may send the utterance again."""
        if (utterance_index, target) in self._seen:
            self._seen[utterance_index, target] = True

    def may_slow_down(self, now_ms: int) -> bool:
        """True if the client was not told to slow down a moment ago."""
        if self._slowed_ms is not None and now_ms - self._slowed_ms < BACKPRESSURE_EVERY_MS:
            return False
        self._slowed_ms = now_ms
        return True


def _target(utterance: Utterance) -> str:
    return language_of(utterance.tgt_lang, "tgt_lang")


def language_of(text: str, name: str) -> str:
    """A language tag as it is compared everywhere; PeerError if it cannot be one."""
    tag = text.strip().lower()
    if not _LANG.fullmatch(tag):
        raise PeerError(ErrorCode.INVALID_MESSAGE, f"`{name}` is not a language tag: {text[:64]!r}")
    return tag
