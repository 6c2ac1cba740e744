"""Results of the scripts that change pairing codes. Plain values, no Redis: cores may import them."""

from __future__ import annotations

from typing import Literal, NamedTuple


class PairingPlan(NamedTuple):
    """Which code a node shall have. "slow": it asked too often. "late": it asked again since. "unknown": no node."""

    verdict: Literal["ok", "slow", "late", "unknown"]
    code: str = ""
    #: The code that it had before, "" if none.
    earlier: str = ""
    #: Time until it may ask again, if it was too often.
    wait_ms: int = 0


class PairingTry(NamedTuple):
    """Whether a client may present a code now; if not, how long it has to wait."""

    allowed: bool
    wait_ms: int = 0
