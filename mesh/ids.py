"""Ids: which ones are valid. mesh/random_ids.py makes new ones.

A brace in an id would move its Redis hash slot, so ids from outside are checked before they are used in a key.
"""

from __future__ import annotations

import re
from typing import Final

ID_LENGTH_MAX: Final = 64
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_CODE: Final = re.compile(r"[0-9]{6}")


def is_id(text: str) -> bool:
    """True if `text` may be used as a node, session, tenant or trace id."""
    return _ID.fullmatch(text) is not None


def is_code(text: str) -> bool:
    """True if `text` may be a code of a room or a pairing."""
    return _CODE.fullmatch(text) is not None
