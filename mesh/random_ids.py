"""Generators of random ids and codes. mesh/ids.py checks the validity of ids."""

from __future__ import annotations

import secrets
from typing import Final

#: Ids drawn at once: one call of the kernel costs as much as all else about an id.
_DRAWN: Final = 64
_drawn: Final[list[str]] = []


def _draw() -> None:
    bits = secrets.token_hex(16 * _DRAWN)
    _drawn.extend(bits[start : start + 32] for start in range(0, len(bits), 32))


def new_session_id() -> str:
    """`s-` and 80 random bits in upper-case hex."""
    return f"s-{secrets.token_hex(10).upper()}"


def new_node_id() -> str:
    """`node-` and 64 random bits in upper-case hex."""
    return f"node-{secrets.token_hex(8).upper()}"


def new_job_unique() -> str:
    """The 128-bit part of a job id."""
    if not _drawn:
        _draw()
    return _drawn.pop()


def new_peer_identity(kind: str, name: str) -> str:
    """A ZeroMQ identity that is unique to this run of the process."""
    return f"{kind}:{name}:{secrets.token_hex(4)}"


def new_room_id() -> str:
    """`room-` and 128 random bits in hex."""
    return f"room-{secrets.token_hex(16)}"


def new_code() -> str:
    """Six random digits, the first of which is not 0: a room or pairing code, typed by people."""
    return str(100_000 + secrets.randbelow(900_000))


def new_trace_id() -> str:
    """128 random bits in hex, usable as a W3C trace id."""
    if not _drawn:
        _draw()
    return _drawn.pop()
