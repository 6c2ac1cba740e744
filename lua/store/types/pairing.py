"""Results of the scripts that change pairing codes. Plain values, no Redis: cores may import them."""

from __future__ import annotations

from typing import Literal, NamedTuple


class IssuedCode(NamedTuple):
    """Code issued to a node. "slow": rate-limited. "late": duplicate of an old request. "unknown": no such node."""

    verdict: Literal["ok", "slow", "late", "unknown"]
    code: str = ""
    #: The code before it, "" if none.
    earlier: str = ""
    #: Time until the next attempt is allowed, if "slow".
    wait_ms: int = 0


class PairingAttempt(NamedTuple):
    """Whether a client may redeem a code now; if not, the time to wait."""

    allowed: bool
    wait_ms: int = 0
