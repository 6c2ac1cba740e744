"""Session: what one client's session is, which utterances it accepts and the Dispatch that each becomes. Pure.

    (session_init) -> READY -> CLOSED

Owns the session's defaults and the memory of utterances seen. Requests on their way belong to custody.

Job key: what makes two utterances one job, as in the original system: tenant, session, index, target language and the
features asked for. Tenant and session are fixed here, so `JobKey` holds the rest. While a job of that key lives, or has
its result, no second one is made.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from mesh.choosing import Module
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Dispatch, Work
from mesh.handover import work_from
from mesh.modules import required
from mesh.session_wire import FeatureFlags, SessionInit, Utterance

#: What the original's scheduler always asks of a node.
PARTIAL_UPDATE_INTERVAL_MS: Final = 1_000
#: A client is asked to slow down at most this often; the original client debounces by as much.
BACKPRESSURE_EVERY_MS: Final = 500

_LANG: Final = re.compile(r"[A-Za-z0-9_-]{1,35}")


MODULES_NONE: Final[Mapping[str, Module]] = {}


class Limits(NamedTuple):
    """The bounds this core obeys, from the configuration."""

    waiting_max: int
    remembered_max: int


class JobKey(NamedTuple):
    """What tells the jobs of one session apart."""

    utterance_index: int
    target: str
    #: A hash of the features that are on; "none" without any.
    features: str


class Session:
    """One session of this edge. `modules`: what each feature needs of a node."""

    def __init__(
        self,
        session_id: str,
        init: SessionInit,
        trace_id: str,
        limits: Limits,
        modules: Mapping[str, Module] = MODULES_NONE,
    ) -> None:
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
        #: The node that had the last result, and the one that the session is paired with; "" = none.
        self.warm_node = ""
        self.preferred_node = ""
        #: What was accepted -> its request id, "" once it failed. A repeat of one that is under way or has its result
        #: makes no second job; one that failed may be sent again.
        self._seen: OrderedDict[JobKey, str] = OrderedDict()
        self._keys: dict[str, JobKey] = {}
        self._retries = 0
        self._slowed_ms: int | None = None
        self._modules = modules
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
        if self._seen.get(self._key(utterance)):
            return False
        if waiting >= self.limits.waiting_max:
            text = f"{waiting} utterances wait for their results"
            raise PeerError(ErrorCode.TOO_MANY_UTTERANCES, text)
        return True

    def dispatch(
        self, utterance: Utterance, *, edge: str, audio_ms: int, trace_id: str, deadline_ms: int
    ) -> tuple[Dispatch, Work]:
        """Accept `utterance`: the frame that finds a node for it, and what that node will be told."""
        init, key = self.init, self._key(utterance)
        work = work_from(utterance, init, trace_id)
        needs = required(work.pipeline, work.features or {}, self._modules)
        lang_a, lang_b = utterance.lang_a or init.lang_a, utterance.lang_b or init.lang_b
        frame = Dispatch(
            request_id=self._request_id(key, trace_id),
            attempt=1,
            session_id=self.session_id,
            utterance_index=utterance.utterance_index,
            edge=edge,
            tenant_id=self.tenant_id,
            src_lang=language_of(utterance.src_lang, "src_lang"),
            tgt_lang=key.target,
            lang_a=language_of(lang_a, "lang_a") if lang_a else "",
            lang_b=language_of(lang_b, "lang_b") if lang_b else "",
            services=needs.services,
            public=not self.tenant_id,
            audio_ms=audio_ms,
            deadline_ms=deadline_ms,
            trace_id=trace_id,
            preferred_node=self.preferred_node,
            warm_node=self.warm_node,
            auto_langs=[language_of(lang, "auto_langs") for lang in utterance.auto_langs or init.auto_langs or ()],
            models=needs.models,
            region=init.region or "",
            gpu_tier=init.gpu_tier or "",
        )
        self._remember(key, frame.request_id)
        return frame, work

    def failed(self, request_id: str) -> None:
        """The client was told that there will be no result: it may send the utterance again."""
        key = self._keys.pop(request_id, None)
        if key is not None:
            self._seen[key] = ""

    def _key(self, utterance: Utterance) -> JobKey:
        features = utterance.features or self.init.features
        return JobKey(utterance.utterance_index, language_of(utterance.tgt_lang, "tgt_lang"), features_hash(features))

    def _request_id(self, key: JobKey, trace_id: str) -> str:
        """The id that the mesh binds a job to: the original's, with more only where that would name two jobs."""
        request_id = f"{self.session_id}:{key.utterance_index}:{key.target}:{trace_id}"
        if key.features != features_hash(self.init.features):
            request_id += f":{key.features}"
        if key in self._seen:
            # The failed one's id is bound to a dead job, and what still comes for it is not for the new one.
            self._retries += 1
            request_id += f":{self._retries}"
        return request_id

    def _remember(self, key: JobKey, request_id: str) -> None:
        self._seen[key] = request_id
        self._keys[request_id] = key
        while len(self._seen) > self.limits.remembered_max:
            self._keys.pop(self._seen.popitem(last=False)[1], None)

    def may_slow_down(self, now_ms: int) -> bool:
        """True if the client was not told to slow down a moment ago."""
        if self._slowed_ms is not None and now_ms - self._slowed_ms < BACKPRESSURE_EVERY_MS:
            return False
        self._slowed_ms = now_ms
        return True


def language_of(text: str, name: str) -> str:
    """A language tag as it is compared everywhere; PeerError if it cannot be one."""
    tag = text.strip().lower()
    if not _LANG.fullmatch(tag):
        raise PeerError(ErrorCode.INVALID_MESSAGE, f"`{name}` is not a language tag: {text[:64]!r}")
    return tag


def features_hash(features: FeatureFlags | None) -> str:
    """A short name for the features that are on; "none" without any."""
    on = sorted(name for name, value in msgspec.structs.asdict(features).items() if value) if features else []
    return hashlib.blake2s(" ".join(on).encode(), digest_size=4).hexdigest() if on else "none"
