"""Base types of settings. The unit of a setting is in its name, its bounds are in its type."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Ms = Annotated[int, Meta(ge=1, le=86_400_000)]
Seconds = Annotated[int, Meta(ge=1, le=86_400)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Bytes = Annotated[int, Meta(ge=1_024, le=64 * 1024 * 1024)]
MemoryBytes = Annotated[int, Meta(ge=1_024, le=64 * 1024 * 1024 * 1024)]
Percent = Annotated[float, Meta(ge=0, le=100)]


class Section(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Base of all sections. An unknown key is an error; every field has a `#:` comment: fact, bound, consequence."""
