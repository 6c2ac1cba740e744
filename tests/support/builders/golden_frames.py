"""One plain sample per frame: each value follows from name, type and position of its field, so its bytes never vary."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec

from mesh import frames


def plain(kind: type[msgspec.Struct]) -> Any:
    """A `kind` with every field set."""
    hints = get_type_hints(kind)
    fields = msgspec.structs.fields(kind)
    return kind(*[_value(hints[field.name], field.name, place) for place, field in enumerate(fields, 1)])


def _value(hint: Any, name: str, place: int) -> Any:
    if type(None) in get_args(hint):
        [hint] = [member for member in get_args(hint) if member is not type(None)]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return plain(hint)
    values: dict[Any, Any] = {
        int: place,
        float: place / 2,
        str: name,
        bool: True,
        list[str]: [name],
        list[int]: [place, place + 1],
        dict[str, int]: {name: place},
        dict[str, bool]: {name: True},
        dict[str, list[str]]: {name: [name]},
        list[frames.ResultAck]: [frames.ResultAck("node_id", "job_id", place, "verdict")],
        list[frames.FinishedJob]: [frames.FinishedJob("node_id", "job_id", place)],
        list[frames.RoomMember]: [frames.RoomMember("s", "n", "en", place, {name: True})],
    }
    return values[hint]
