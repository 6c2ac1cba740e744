"""Parameters of a query: parsed and validated one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mesh.config.weights import Weights
from mesh.errors import ErrorCode
from mesh.frames import Dispatch

TEXT_CHARS_MAX: Final = 200
VALUES_MAX: Final = 64
#: The audio of a simulated job, if none is named: a short sentence.
AUDIO_MS: Final = 1_500
AUDIO_MS_MAX: Final = 600_000
_YES: Final = frozenset({"true", "1", "yes"})
_NO: Final = frozenset({"false", "0", "no"})


class QueryRefusal(Exception):
    """The query is refused; `status` as in HTTP, `code` from mesh.errors."""

    def __init__(self, status: int, message: str, code: ErrorCode = ErrorCode.INVALID_MESSAGE) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def answer(self) -> dict[str, Any]:
        """The body."""
        return {"code": self.code.name, "message": str(self)}


class Params:
    """The parameters of one query."""

    def __init__(self, params: Mapping[str, list[str]]) -> None:
        self._params = params

    def text(self, name: str, default: str = "") -> str:
        """The last value, without blanks around it; too long is refused."""
        values = self._params.get(name)
        value = values[-1].strip() if values else ""
        if len(value) > TEXT_CHARS_MAX:
            raise QueryRefusal(400, f"{name} is longer than {TEXT_CHARS_MAX} characters")
        return value or default

    def raw(self, name: str) -> str:
        """The last value as it came; a missing one is refused."""
        values = self._params.get(name)
        if not values:
            raise QueryRefusal(400, f"{name} is missing")
        return values[-1]

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.text(name).lower()
        if value and value not in _YES | _NO:
            raise QueryRefusal(400, f"{name} is true or false, not {value!r}")
        return value in _YES if value else default

    def number(self, name: str, default: int, highest: int) -> int:
        """A whole number from 0 to `highest`."""
        value = self.text(name)
        if not value:
            return default
        if not (value.isascii() and value.isdigit()) or int(value) > highest:
            raise QueryRefusal(400, f"{name} is a whole number from 0 to {highest}, not {value!r}")
        return int(value)

    def values(self, name: str) -> list[str]:
        """All values of a repeated parameter, in lower case, each once; commas separate too."""
        values = self._params.get(name, [])
        words = [word.strip().lower()[:TEXT_CHARS_MAX] for value in values for word in value.split(",")]
        kept = list(dict.fromkeys(word for word in words if word))
        if len(kept) > VALUES_MAX:
            raise QueryRefusal(400, f"{name} has more than {VALUES_MAX} values")
        return kept

    def weights(self) -> Weights:
        """The set of weights in `weights`, which is JSON."""
        try:
            return msgspec.json.decode(self.raw("weights"), type=Weights)
        except msgspec.DecodeError as error:  # a ValidationError is one
            raise QueryRefusal(400, f"bad weights: {error}") from None


def simulated(params: Params, tenants: frozenset[str]) -> tuple[str, Dispatch]:
    """The routing key and the job that a simulation is about.

    The routing key is named, or is the tenant, or the session; the first of these counts. The job is a tenant's only if
    that is its key: real jobs of a tenant have no other. A key that is the name of a tenant with a pool of its own
    stands for that tenant.
    """
    named, said, session_id = (params.text(name) for name in ("routing_key", "tenant_id", "session_id"))
    routing_key = named or said or session_id or "default"
    tenant_id = routing_key if routing_key == said or named in tenants else ""
    excluded = params.values("exclude_node_id") and [params.text("exclude_node_id")]
    return routing_key, Dispatch(
        request_id=f"simulate:{routing_key}",
        attempt=1,
        session_id=routing_key,
        utterance_index=0,
        edge="",
        tenant_id=tenant_id,
        src_lang=params.text("src_lang", "zh"),
        tgt_lang=params.text("tgt_lang", "en"),
        lang_a=params.text("lang_a"),
        lang_b=params.text("lang_b"),
        services=params.values("required"),
        public=params.flag("accept_public", default=True),
        audio_ms=params.number("audio_ms", AUDIO_MS, AUDIO_MS_MAX),
        deadline_ms=0,
        trace_id="",
        excluded=excluded,
        models=params.values("model"),
        region=params.text("region"),
        gpu_tier=params.text("gpu_tier"),
    )
