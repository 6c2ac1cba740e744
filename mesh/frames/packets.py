"""Packets: the ZeroMQ messages of the mesh. A packet carries the frames that one process has for another at one moment.

A packet is a multipart `table, blob, blob, ...`. The table is one msgpack array of the version and the entries; an
entry is the head, the frame and the payload of one frame. Payload parts of link.inline_bytes_max or more are blobs:
parts of their own, which a broker forwards by reference. An entry names the place of its first blob, so that a
malformed entry cannot displace the blobs of another.

A broker decodes `Sealed` entries: frame and payload stay msgpack, as views into the received table. A link decodes
`Opened` entries. Both decode a table by one call. If that fails, each entry is decoded by itself, so that a malformed
one costs no frame but its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from mesh.frames import FRAME_VERSION, PACKET_FRAMES_MAX, PAYLOAD_PARTS_MAX, AnyFrame, Frame, Head, encode

#: Exceptions of decoding bytes that are no packet, entry or frame of the mesh.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
#: The payload of a frame without one.
NO_PAYLOAD: Final = msgspec.Raw(encode([]))
#: Upper bound of an entry's size beyond the strings of its head, its frame and its payload, and of an empty table's.
ENTRY_BYTES: Final = 64

_Place = Annotated[int, msgspec.Meta(ge=0)]
_BlobCount = Annotated[int, msgspec.Meta(ge=0, le=PAYLOAD_PARTS_MAX)]


class Sealed(Head, frozen=False, array_like=True, kw_only=True, gc=False):  # type: ignore[misc]
    """An entry whose frame and payload are not decoded."""

    #: Place of its first blob among the blobs of the packet; whoever forwards the entry sets it anew.
    blob: _Place
    #: Number of its blobs.
    blobs: _BlobCount
    frame: msgspec.Raw
    #: As `Opened.payload`.
    payload: msgspec.Raw


class Opened(Head, frozen=True, array_like=True, kw_only=True, gc=False):
    """An entry as its receiver reads it. The fields on the wire are those of Sealed."""

    blob: _Place
    blobs: _BlobCount
    frame: AnyFrame
    #: Its parts in order; None stands for the next of its blobs.
    payload: Annotated[list[bytes | None], msgspec.Meta(max_length=PAYLOAD_PARTS_MAX)]


E = TypeVar("E", Sealed, Opened)


class _Table(msgspec.Struct, Generic[E], array_like=True, gc=False):
    version: int
    entries: Annotated[list[E], msgspec.Meta(max_length=PACKET_FRAMES_MAX)]


class _RawTable(msgspec.Struct, array_like=True, gc=False):
    version: int
    entries: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=PACKET_FRAMES_MAX)]


class _Version(msgspec.Struct, array_like=True, gc=False):
    """The first field of every table, and of every head in the messages of version 1."""

    version: int


_decode_raw_table: Final = msgspec.msgpack.Decoder(_RawTable).decode
_decode_version: Final = msgspec.msgpack.Decoder(_Version).decode


class OtherVersionError(Exception):
    """A packet of another frame version, or a message of version 1."""

    def __init__(self, version: int) -> None:
        super().__init__(f"frame version {version}, expected {FRAME_VERSION}")
        self.version = version


class Tables(Generic[E]):
    """Decoder of tables with entries of one kind."""

    def __init__(self, kind: type[E]) -> None:
        table: Any = _Table
        self._decode: Callable[[Any], _Table[E]] = msgspec.msgpack.Decoder(table[kind]).decode
        self._decode_entry: Callable[[Any], E] = msgspec.msgpack.Decoder(kind).decode

    def read(self, table: Any) -> tuple[list[E], int]:
        """The entries of a table (bytes or zmq.Frame) that are well-formed, and the number of those that are not.

        Raises OtherVersionError for a packet of another version, and one of UNREADABLE for anything that is no table.
        """
        try:
            packet = self._decode(table)
        except UNREADABLE:
            return self._read_each(table)
        if packet.version != FRAME_VERSION:
            raise OtherVersionError(packet.version)
        return packet.entries, 0

    def _read_each(self, table: Any) -> tuple[list[E], int]:
        version = _decode_version(table).version
        if version != FRAME_VERSION:
            raise OtherVersionError(version)
        found: list[E] = []
        entries = _decode_raw_table(table).entries
        for entry in entries:
            try:
                found.append(self._decode_entry(entry))
            except UNREADABLE:
                pass
        return found, len(entries) - len(found)


#: Decoders of a broker and of a link.
read_sealed: Final = Tables(Sealed).read
read_opened: Final = Tables(Opened).read


def encode_table(entries: Sequence[Sealed]) -> bytes:
    """The table of a packet. The caller sets `blob` of each entry and sends the blobs in that order."""
    return encode((FRAME_VERSION, entries))


def seal_payload(payload: Sequence[Any], inline_bytes_max: int) -> tuple[msgspec.Raw, list[Any]]:
    """`Sealed.payload` and the blobs of a payload, whose parts are bytes or buffers. Blobs are not copied."""
    parts: list[Any] = []
    blobs: list[Any] = []
    for part in payload:
        if len(part) >= inline_bytes_max:
            blobs.append(part)
            part = None
        elif type(part) is not bytes:
            part = bytes(part)
        parts.append(part)
    return msgspec.Raw(encode(parts)), blobs


def open_payload(entry: Opened, parts: Sequence[Any]) -> list[Any] | None:
    """The payload of an entry of the packet `parts` (table first); None if its blobs are not those of its payload."""
    payload: list[Any] = entry.payload
    if not entry.blobs and None not in payload:
        return payload
    first = 1 + entry.blob
    blobs = parts[first : first + entry.blobs]
    if len(blobs) != payload.count(None):
        return None
    following = iter(blobs)
    return [next(following) if part is None else part for part in payload]


def seal(head: Head, frame: Frame, payload: msgspec.Raw = NO_PAYLOAD, blobs: int = 0) -> Sealed:
    """The entry of a frame; `payload` and the number of its blobs as `seal_payload` gives them."""
    return Sealed(
        head.lane,
        head.to,
        head.cell,
        head.source,
        head.sent_us,
        head.deadline_ms,
        blob=0,
        blobs=blobs,
        frame=msgspec.Raw(encode(frame)),
        payload=payload,
    )
