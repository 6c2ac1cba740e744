"""Session: the parameters of one client's session, its accepted utterances and the Dispatch of each. Pure.

    (session_init) -> READY -> CLOSED

Owns the session's defaults and the recent utterances, for deduplication. Pending requests belong to the request
tracker, the order of their results to result_order.py.

Job key: what makes two utterances one job, as in the original system: tenant, session, index, target language and the
requested features. Tenant and session are fixed here, so `JobKey` holds the rest. No second job is made of a key.

Request id: the original's `session:index:target:trace`. A streamed utterance adds the chunks of its segment: a
session that resumes on another edge is segmented anew there, and only the same audio may be the same request.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from edge.audio.core.segment import Segment
from edge.core.convert import NO_GROUP, work_from
from edge.core.record import Record
from edge.sessions.core.utterances.features import Needs, required
from edge.sessions.core.utterances.groups import GroupPosition
from mesh.config.scheduler import Module
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Dispatch, Work
from mesh.messages.client import FeatureFlags, SessionInit, Utterance

#: The interval that the original's scheduler always requests of a node.
PARTIAL_UPDATE_INTERVAL_MS: Final = 1_000
#: A client is throttled at most this often; the original client debounces by as much.
BACKPRESSURE_EVERY_MS: Final = 500

#: Formats of streamed audio, and the sample rate of a client that names none.
STREAM_FORMATS: Final = ("opus", "pcm16")
STREAM_SAMPLE_RATE: Final = 16_000
#: Of a binary frame's time stamp.
_CLOCK_MASK: Final = 0xFFFF_FFFF
#: A client's clock that is further off than this is no measure of the uplink.
_UPLINK_MS_MAX: Final = 3_600_000

_SEQS: Final = re.compile(r"(\d+)-(\d+)(?::|$)")
_LANG: Final = re.compile(r"[A-Za-z0-9_-]{1,35}")
#: Language tags that are remembered as checked.
LANGS_MAX: Final = 1_024


MODULES_NONE: Final[Mapping[str, Module]] = {}


class JobKey(NamedTuple):
    """The identity of a job within its session."""

    utterance_index: int
    target: str
    #: A hash of the features that are on; "none" without any.
    features: str


class FinalizedUtterance(Record, frozen=True):
    """One complete utterance, from one message or from a stream."""

    #: The client's message, or the equivalent of a streamed one; its audio is not read.
    message: Utterance
    audio: bytes
    audio_ms: int
    trace_id: str
    #: Its segment of the stream; None: it arrived as one message.
    segment: Segment | None = None
    #: Time of its first audio from the client to this edge; None = unknown.
    uplink_ms: int | None = None
    #: When it was complete, by the wall clock.
    arrived_us: int = 0


class Session:
    """One session of this edge. `modules`: the needs of each feature; `seen_max`: bound of recent utterances."""

    def __init__(
        self,
        session_id: str,
        init: SessionInit,
        trace_id: str,
        seen_max: int,
        modules: Mapping[str, Module] = MODULES_NONE,
    ) -> None:
        self.session_id = session_id
        #: Defaults of its utterances.
        self.init = msgspec.structs.replace(
            init,
            enable_streaming_asr=init.enable_streaming_asr is not False,
            partial_update_interval_ms=init.partial_update_interval_ms or PARTIAL_UPDATE_INTERVAL_MS,
        )
        self.trace_id = trace_id
        self._seen_max = seen_max
        self.tenant_id = init.tenant_id or ""
        #: Given by the selector; 0 until then.
        self.epoch = 0
        self.closed = False
        #: The node that had the last result, and the one that the session is paired with; "" = none.
        self.warm_node = ""
        self.preferred_node = ""
        #: Of streamed audio.
        self.audio_format, self.sample_rate = negotiated(init)
        #: Accepted utterances, for deduplication: a repeat makes no second job.
        self.seen: OrderedDict[JobKey, None] = OrderedDict()
        self._features = features_hash(init.features)
        #: Those of an utterance with the session's own pipeline and features; None until there was one.
        self._needs: Needs | None = None
        self._slowed_ms: int | None = None
        self._modules = modules
        language_of(init.src_lang, "src_lang")
        language_of(init.tgt_lang, "tgt_lang")

    def key_of(self, utterance: Utterance) -> JobKey:
        """What makes two utterances one job; PeerError if its target cannot be a language."""
        features = self._features if utterance.features is None else features_hash(utterance.features)
        return JobKey(utterance.utterance_index, language_of(utterance.tgt_lang, "tgt_lang"), features)

    def dispatch(
        self, utterance: FinalizedUtterance, target: str, position: GroupPosition | None, *, edge: str, deadline_ms: int
    ) -> tuple[Dispatch, Work]:
        """Accept an utterance: its Dispatch, and the Work for the node that will have it."""
        init, message, segment = self.init, utterance.message, utterance.segment
        target = language_of(target, "tgt_lang")
        # The original's request id, extended only where that would be ambiguous.
        request_id = f"{self.session_id}:{message.utterance_index}:{target}:{utterance.trace_id}"
        if segment is not None:
            request_id += f":{segment.first_seq}-{segment.last_seq}"
        if message.features is not None and (features := features_hash(message.features)) != self._features:
            request_id += f":{features}"
        work = work_from(message, init, utterance.trace_id, target=target, group=position or NO_GROUP)
        if segment is not None:
            work = with_segment(work, segment)
        needs = self._needs
        if needs is None or message.pipeline is not None or message.features is not None:
            needs = required(work.pipeline, work.features or {}, self._modules)
            if message.pipeline is None and message.features is None:
                self._needs = needs
        lang_a, lang_b = message.lang_a or init.lang_a, message.lang_b or init.lang_b
        auto_langs = message.auto_langs or init.auto_langs
        frame = Dispatch(
            request_id=request_id,
            attempt=1,
            session_id=self.session_id,
            utterance_index=message.utterance_index,
            edge=edge,
            tenant_id=self.tenant_id,
            src_lang=language_of(message.src_lang, "src_lang"),
            tgt_lang=target,
            lang_a=language_of(lang_a, "lang_a") if lang_a else "",
            lang_b=language_of(lang_b, "lang_b") if lang_b else "",
            services=needs.services,
            public=not self.tenant_id,
            audio_ms=utterance.audio_ms,
            deadline_ms=deadline_ms,
            trace_id=utterance.trace_id,
            preferred_node=self.preferred_node,
            warm_node=self.warm_node,
            auto_langs=[language_of(lang, "auto_langs") for lang in auto_langs] if auto_langs else [],
            models=needs.models,
            region=init.region or "",
            gpu_tier=init.gpu_tier or "",
            session_epoch=self.epoch,
            arrived_us=utterance.arrived_us,
        )
        return frame, work

    def streamed(self, segment: Segment, wall_us: int, now_ms: int) -> FinalizedUtterance:
        """An utterance from a stream. It has the session's trace id, so that its request id is the same at any edge."""
        init = self.init
        message = Utterance(
            session_id=self.session_id,
            utterance_index=segment.index,
            manual_cut=segment.is_manual_cut,
            src_lang=init.src_lang,
            tgt_lang=init.tgt_lang,
            audio="",
            audio_format=self.audio_format,
            sample_rate=self.sample_rate,
        )
        began_wall_ms = wall_us // 1_000 - (now_ms - segment.began_ms)
        took_ms = uplink_ms(segment.first_client_ms, began_wall_ms)
        return FinalizedUtterance(message, segment.audio, segment.audio_ms, self.trace_id, segment, took_ms, wall_us)

    def seqs_of(self, request_id: str, index: int, target: str) -> tuple[int, int] | None:
        """The first and last chunk of a streamed utterance of ours, from its request id; None if it is not one."""
        prefix = f"{self.session_id}:{index}:{target}:{self.trace_id}:"
        found = _SEQS.match(request_id[len(prefix) :]) if request_id.startswith(prefix) else None
        return (int(found[1]), int(found[2])) if found else None

    def remember(self, utterance: Utterance) -> None:
        """The utterance is accepted: later ones with its job key are deduplicated."""
        self.seen[self.key_of(utterance)] = None
        while len(self.seen) > self._seen_max:
            self.seen.popitem(last=False)

    def may_slow_down(self, now_ms: int) -> bool:
        """True unless the client was throttled less than BACKPRESSURE_EVERY_MS ago."""
        if self._slowed_ms is not None and now_ms - self._slowed_ms < BACKPRESSURE_EVERY_MS:
            return False
        self._slowed_ms = now_ms
        return True


@lru_cache(maxsize=LANGS_MAX)
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


def negotiated(init: SessionInit) -> tuple[str, int]:
    """Format and sample rate of streamed audio: the first that the client offers and we know; PeerError if none is."""
    offered = [name.strip().lower() for name in init.audio_formats or STREAM_FORMATS[:1]]
    known = next((name for name in offered if name in STREAM_FORMATS), None)
    if known is None:
        text = f"none of `audio_formats` can be streamed; offer one of {', '.join(STREAM_FORMATS)}"
        raise PeerError(ErrorCode.UNSUPPORTED_FEATURE, text)
    return known, init.sample_rate or STREAM_SAMPLE_RATE


def uplink_ms(client_ms: int | None, wall_ms: int) -> int | None:
    """Transit time of a message by the client's clock (whole, or its lower 32 bits); None if it is implausible."""
    if client_ms is None:
        return None
    took_ms = wall_ms - client_ms if client_ms > _CLOCK_MASK else (wall_ms - client_ms) & _CLOCK_MASK
    return took_ms if 0 <= took_ms <= _UPLINK_MS_MAX else None


def with_segment(work: Work, segment: Segment) -> Work:
    """The Work with the reason of the segment's end."""
    return msgspec.structs.replace(
        work,
        padding_ms=segment.padding_ms,
        is_manual_cut=segment.is_manual_cut,
        is_pause_triggered=segment.is_pause_triggered,
        is_timeout_triggered=segment.is_timeout_triggered,
        is_max_duration_triggered=segment.is_max_duration_triggered,
        turn_id=segment.turn_id,
    )
