"""Base of all WebSocket messages: base classes, bounds, the codec and the parts that clients and nodes share.

Output: exact field names, in the order of docs/protocol.md, no null. Input: required fields must be present and valid;
unknown fields are ignored, null means absent, the case of enumerated words does not matter, and an integer may come as
a float. The strict decoder runs first and alone for well-formed messages; a message that it refuses is repaired once
and decoded again, so leniency costs nothing for well-formed messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta, inspect

from mesh.errors import ErrorCode, PeerError
from mesh.messages.audio import NOT_SENT, check_audio

#: Largest integer that a JavaScript peer can represent.
WHOLE_MAX: Final = 2**53

Id = Annotated[str, Meta(max_length=256)]  # validity is the receiver's check: mesh.ids.is_id
Word = Annotated[str, Meta(max_length=128)]
Line = Annotated[str, Meta(max_length=4_096)]
Text = Annotated[str, Meta(max_length=65_536)]
Lang = Annotated[str, Meta(max_length=35)]
Langs = Annotated[list[Lang], Meta(max_length=256)]
Words = Annotated[list[Word], Meta(max_length=256)]
Whole = Annotated[int, Meta(ge=0, le=WHOLE_MAX)]
Signed = Annotated[int, Meta(ge=-WHOLE_MAX, le=WHOLE_MAX)]
Attempt = Annotated[int, Meta(ge=0, le=2**32 - 1)]
SampleRate = Annotated[int, Meta(ge=1, le=768_000)]
Mode = Literal["one_way", "two_way_auto"]

#: Characters of a peer's own text that an error quotes.
_QUOTE_MAX: Final = 64
_REASON_MAX: Final = 300


class Part(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of the objects inside messages. An optional field that is None is omitted."""


def _wire_name(class_name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_name).lower()


class Message(Part, frozen=True, tag_field="type", tag=_wire_name):
    """Base of all messages: the class SessionInit is `"type": "session_init"`."""

    #: The field with audio, if there is one: absent in the head of a binary message.
    audio_field: ClassVar[str] = ""
    #: False: JSON may leave it out.
    audio_required: ClassVar[bool] = True


def always(value: Any) -> Any:
    """A default for input that is written on output nevertheless: peers of the original require the field."""
    return msgspec.field(default_factory=partial(copy, value))


# --- parts that sessions and nodes share ----------------------------------------------------------


class FeatureFlags(Part, frozen=True, kw_only=True):
    """Optional features that a client requests and a node offers."""

    emotion_detection: bool | None = None
    voice_style_detection: bool | None = None
    speech_rate_detection: bool | None = None
    speech_rate_control: bool | None = None
    speaker_identification: bool | None = None
    persona_adaptation: bool | None = None


class PipelineConfig(Part, frozen=True, kw_only=True):
    """Stages that run. Omitted stages are as in the default pipeline: recognise, translate, synthesise."""

    use_asr: bool = always(True)
    use_nmt: bool = always(True)
    use_tts: bool = always(True)
    use_semantic: bool = always(False)
    use_tone: bool = always(False)


class ServiceTimings(Part, frozen=True, kw_only=True):
    """Time of each stage on the node."""

    asr_ms: Whole | None = None
    nmt_ms: Whole | None = None
    tts_ms: Whole | None = None
    total_ms: Whole | None = None


class ExtraResult(Part, frozen=True, kw_only=True):
    """Additional results of a node."""

    emotion: Word | None = None
    speech_rate: float | None = None
    voice_style: Word | None = None
    service_timings: ServiceTimings | None = None
    language_probability: float | None = None
    language_probabilities: dict[Word, float] | None = None
    reason: Word | None = None  # "NO_TEXT_ASSIGNED" | "ASR_EMPTY"


class SegmentsMeta(Part, frozen=True, kw_only=True):
    """Segments that the recogniser found in the audio; times in seconds."""

    count: Whole
    max_gap: float
    avg_duration: float


class ErrorMessage(Message, frozen=True, kw_only=True, tag="error"):
    """An error; `code` is a name of mesh.errors, or a node's own code, forwarded."""

    code: Word
    message: Line
    details: Any = None


def error_message(code: ErrorCode, message: str, details: dict[str, Any] | None = None) -> ErrorMessage:
    """The `error` for `code`; number and hint go into `details`, so that the outer shape stays the original's."""
    full = {**(details or {}), "number": code.number, "hint": code.hint}
    return ErrorMessage(code=code.name, message=message, details=full)


def error_of(error: PeerError) -> ErrorMessage:
    """The `error` message for a PeerError."""
    return error_message(error.code, error.message, error.details)


# --- codec ----------------------------------------------------------------------------------------

_encoder: Final = msgspec.json.Encoder()
#: Exceptions of the strict decoder.
_REFUSED: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


def encode(message: Message) -> str:
    """`message` as the text of a WebSocket text frame."""
    return _encoder.encode(message).decode()


#: A message as UTF-8 for a socket that sends bytes as a text frame; saves one copy of the audio.
encode_utf8: Final[Callable[[Message], bytes]] = _encoder.encode


T = TypeVar("T")


class Codec(Generic[T]):
    """Decodes the messages of one direction."""

    def __init__(self, union: Any, classes: tuple[type[Message], ...]) -> None:
        self._decode: Callable[[Any], T] = msgspec.json.Decoder(union).decode
        self._shapes: dict[str, inspect.StructType] = {}
        for cls in classes:
            info = inspect.type_info(cls)
            assert isinstance(info, inspect.StructType)
            self._shapes[str(info.tag)] = info
        #: Its audio field, and whether that may be absent.
        self._with_audio: dict[type, tuple[str, bool]] = {
            cls: (cls.audio_field, not cls.audio_required) for cls in classes if cls.audio_field
        }

    @property
    def types(self) -> frozenset[str]:
        """Every `type` of this direction: a closed list, usable as a metric label."""
        return frozenset(self._shapes)

    def decode(self, text: str | bytes) -> T:
        """The message in `text`; PeerError(INVALID_MESSAGE) naming the field if it is malformed."""
        try:
            message = self._decode(text)
        except _REFUSED as error:
            message = self._decode_refused(text, error)
        if type(message) in self._with_audio:
            _check_audio(message, *self._with_audio[type(message)])
        return message

    def decode_head(self, text: str | bytes | bytearray | memoryview) -> T:
        """The same without a check of its audio, for the head of a binary message."""
        try:
            return self._decode(text)
        except _REFUSED as error:
            return self._decode_refused(text, error)

    def _decode_refused(self, text: str | bytes | bytearray | memoryview, error: Exception) -> T:
        """The message that the strict decoder refused, if it can be repaired."""
        if isinstance(error, msgspec.ValidationError):
            return self._decode_leniently(text)
        if isinstance(error, RecursionError):
            raise _invalid("nested too deeply") from None
        raise _invalid(f"not JSON: {error}") from None

    def _decode_leniently(self, text: str | bytes | bytearray | memoryview) -> T:
        try:
            tree = msgspec.json.decode(text)
            if not isinstance(tree, dict):
                raise _invalid("a message is a JSON object")
            tree["type"] = name = self._type_of(tree)
            mended = mend(tree, self._shapes[name])
            return self._decode(_encoder.encode(mended))
        except msgspec.ValidationError as error:
            raise _invalid(str(error)) from None
        except (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError) as error:
            raise _invalid(f"not usable JSON: {error}") from None

    def _type_of(self, tree: dict[str, Any]) -> str:
        name = tree.get("type")
        if not isinstance(name, str):
            raise _invalid("`type` is missing")
        if name.lower() not in self._shapes:
            raise _invalid(f"unknown `type` {name[:_QUOTE_MAX]!r}")
        return name.lower()


def _check_audio(message: Any, name: str, may_be_absent: bool) -> None:
    audio = getattr(message, name)
    if audio is NOT_SENT:
        if not may_be_absent:
            raise _invalid(f"Object missing required field `{name}`")
        return
    try:
        check_audio(audio, null=may_be_absent, name=name)
    except ValueError as error:
        raise _invalid(str(error)) from None


def _invalid(reason: str) -> PeerError:
    # A peer's text may contain a lone surrogate, which str.encode refuses.
    clean = reason[:_REASON_MAX].encode("utf-8", "replace").decode()
    return PeerError(ErrorCode.INVALID_MESSAGE, f"Invalid message format: {clean}")


# --- leniency -------------------------------------------------------------------------------------


def mend(value: Any, shape: inspect.Type) -> Any:
    """`value` with tolerated deviations repaired; every other fault stays and is refused by the decoder."""
    if isinstance(shape, inspect.StructType) and isinstance(value, dict):
        return _mend_struct(value, shape)
    if isinstance(shape, inspect.ListType) and isinstance(value, list):
        return [mend(item, shape.item_type) for item in value]
    if isinstance(shape, inspect.DictType) and isinstance(value, dict):
        return {key: mend(item, shape.value_type) for key, item in value.items() if item is not None}
    if isinstance(shape, inspect.UnionType):
        return _mend_union(value, shape)
    if isinstance(shape, inspect.LiteralType) and isinstance(value, str):
        return next((known for known in shape.values if str(known).lower() == value.strip().lower()), value)
    if isinstance(shape, inspect.IntType) and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _mend_struct(value: dict[str, Any], shape: inspect.StructType) -> dict[str, Any]:
    fields = {field.encode_name: field for field in shape.fields}
    mended = {}
    for name, item in value.items():
        field = fields.get(name)
        if field is None:
            if name == shape.tag_field:
                mended[name] = item
        elif item is not None or field.required:
            mended[name] = mend(item, field.type)
    return mended


def _mend_union(value: Any, shape: inspect.UnionType) -> Any:
    if value is None or (isinstance(value, float) and any(isinstance(t, inspect.FloatType) for t in shape.types)):
        return value
    for member in shape.types:
        if not isinstance(member, inspect.NoneType):
            return mend(value, member)
    return value
