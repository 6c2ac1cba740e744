"""Validity of ids. mesh/random_ids.py generates new ones.

A brace in an id would change its Redis hash slot, so ids of peers must be checked before they are used in a key.
"""

from __future__ import annotations

import re
from typing import Final

_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_CODE: Final = re.compile(r"[0-9]{6}")


def is_id(text: str) -> bool:
    """True if `text` is valid as a node, session, tenant or trace id."""
    return _ID.fullmatch(text) is not None


def is_code(text: str) -> bool:
    """True if `text` has the form of a room or pairing code."""
    return _CODE.fullmatch(text) is not None
