"""Writes the tables of docs/protocol.md from the structs: `python -m tools.protocol_tables docs/protocol.md`.

A table is between `<!-- begin NAME -->` and `<!-- end NAME -->`; the prose around it is written by hand. A test
compares code and page, so a message, frame or error that is added without its row fails the build.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from mesh import frames
from mesh.errors import ErrorCode
from mesh.messages import client, control, node
from mesh.messages.base import Message, Part

#: Structs and tuples inside frames.
_STRUCTS: Final[tuple[type[msgspec.Struct] | type[tuple[Any, ...]], ...]] = (
    frames.Head,
    frames.Work,
    frames.NodeCaps,
    frames.NodeLoad,
    frames.RoomMember,
    frames.ResultAck,
    frames.FinishedJob,
)
_BLOCK: Final = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def tables() -> dict[str, str]:
    """Name -> table."""
    return {
        "client": _messages(client.ClientMessage),
        "server": _messages(client.ServerMessage),
        "node": _messages(node.NodeMessage),
        "scheduler": _messages(node.SchedulerMessage),
        "operator": _messages(control.Command),
        "control": _messages(control.ControlAnswer),
        "parts": _table(("object", "fields", "meaning"), (_row(part) for part in parts())),
        "frames": _table(("frame", "to", "lane", "fields", "meaning"), map(_frame, frames.FRAMES)),
        "structs": _table(("struct", "fields", "meaning"), map(_row, _STRUCTS)),
        "errors": _table(
            ("number", "code", "what to do"), ((str(code.number), f"`{code.name}`", code.hint) for code in ErrorCode)
        ),
    }


def fill(text: str) -> str:
    """`text` with every table generated anew; KeyError for a block of unknown name."""
    made = tables()
    return _BLOCK.sub(lambda block: block[1] + made[block[2]] + block[3], text)


def parts() -> list[type[Part]]:
    """Every object inside messages, in the order of the modules."""
    found = [value for module in (client, node) for value in vars(module).values() if _is_part(value)]
    return list(dict.fromkeys(found))


def _is_part(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Part) and not issubclass(value, Message) and value is not Part


def _messages(union: Any) -> str:
    rows = ((f"`{cls.__struct_config__.tag}`", _fields(cls), _meaning(cls)) for cls in get_args(union))
    return _table(("type", "fields", "meaning"), rows)


def _row(cls: type[msgspec.Struct] | type[tuple[Any, ...]]) -> tuple[str, str, str]:
    return f"`{cls.__name__}`", _fields(cls), _meaning(cls)


def _frame(cls: type[frames.Frame]) -> tuple[str, str, str, str, str]:
    to = ", ".join(role.name.lower() for role in frames.Role if role in cls.to and role.name)
    return f"`{cls.__name__}`", to, cls.lane.name.lower(), _fields(cls), _meaning(cls)


def _fields(cls: type[msgspec.Struct] | type[tuple[Any, ...]]) -> str:
    if issubclass(cls, tuple):  # a NamedTuple
        return ", ".join(f"`{name}`" for name in cls.__annotations__)
    names = (f"`{field.encode_name}`{'' if field.required else '?'}" for field in msgspec.structs.fields(cls))
    return ", ".join(names) or "–"


def _meaning(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split()).replace("->", "→")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")
