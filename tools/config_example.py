"""Writes config.example.toml from mesh.config, so that the example cannot drift: `python -m tools.config_example`.

Each setting is shown with its explanation (the `#:` comment above the field), its unit, its bounds and its default. A
setting without an explanation of its own is an error.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.inspect import (
    DictType,
    Field,
    FloatType,
    IntType,
    ListType,
    StrType,
    StructType,
    Type,
    VarTupleType,
    type_info,
)

from mesh.config import Config

PREFACE: Final = """\
# Lingua Mesh: every setting, with its default. Keep only what you change.
# In the environment a setting is LINGUA_<SECTION>_<KEY>, as in LINGUA_EDGE_PORT=5011; that wins over this file.
# This file is made by `python -m tools.config_example`.
"""
WIDTH: Final = 120
#: Words of a setting's name that tell its unit; the first that is found counts.
UNITS: Final = {
    "_ms_per_s": "milliseconds per second",
    "_per_s": "per second",
    "_ms": "milliseconds",
    "_seconds": "seconds",
    "_life_s": "seconds",
    "_percent": "percent",
    "_bytes": "bytes",
    "_chars": "characters",
}


class UnexplainedError(Exception):
    """A setting has no comment of its own."""


def example() -> str:
    """The text of config.example.toml; UnexplainedError if a setting has no explanation."""
    shape = type_info(Config)
    assert isinstance(shape, StructType)
    return PREFACE + "".join(section(field.name, field.type) for field in shape.fields)


def section(name: str, shape: Type) -> str:
    """One section: its docstring, then each setting with its explanation."""
    assert isinstance(shape, StructType)
    lines = ["", f"# {inspect.getdoc(shape.cls)}", f"[{name}]"]
    for field, text in _explained(name, shape):
        lines += _wrapped(text, "# ")
        for entry_field, entry_text in _entry_fields(f"{name}.{field.name}", field.type):
            lines += _wrapped(f"{entry_field.name}: {entry_text}", "#   ")
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        lines += _setting(name, field.name, default)
    return "\n".join(lines) + "\n"


def _explained(name: str, shape: StructType) -> Iterator[tuple[Field, str]]:
    """Each field with its explanation, unit and bounds."""
    comments = _comments(shape.cls)
    for field in shape.fields:
        comment = comments.get(field.name)
        if not comment:
            raise UnexplainedError(f"{name}.{field.name}: no `#:` comment above it in {shape.cls.__module__}")
        yield field, " ".join((comment, *_limits(field.name, field.type)))


def _entry_fields(name: str, shape: Type) -> Iterator[tuple[Field, str]]:
    """The fields of the entries, if the setting is a list or table of them."""
    entry = shape.item_type if isinstance(shape, ListType | VarTupleType) else None
    entry = shape.value_type if isinstance(shape, DictType) else entry
    if isinstance(entry, StructType):
        yield from _explained(name, entry)


def _limits(name: str, shape: Type) -> Iterator[str]:
    unit = next((unit for word, unit in UNITS.items() if word in name), "")
    bounds = _bounds(shape)
    if unit or bounds:
        yield f"[{', '.join(part for part in (unit, bounds) if part)}]"


def _bounds(shape: Type) -> str:
    if isinstance(shape, IntType | FloatType) and shape.ge is not None:
        return f"{shape.ge} to {shape.le}"
    if isinstance(shape, StrType) and shape.pattern:
        words = shape.pattern.removeprefix("^(").removesuffix(")$")
        return f"one of {words.replace('|', ', ')}" if "|" in words else f"matches {shape.pattern}"
    return ""


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _setting(section_name: str, name: str, default: Any) -> list[str]:
    """One line, or a table of its own for each entry of a table."""
    if not isinstance(default, dict):
        return [f"{name} = {_toml(default)}"]
    lines = []
    for key, entry in default.items():
        lines.append(f"[{section_name}.{name}.{key}]")
        lines += [f"{field} = {_toml(value)}" for field, value in msgspec.structs.asdict(entry).items()]
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else msgspec.json.encode(value).decode()


def _comments(cls: type) -> dict[str, str]:
    """Field -> the `#:` lines directly above it, which do not survive in the class itself."""
    source = textwrap.dedent(inspect.getsource(cls))
    lines = source.splitlines()
    found = {}
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            above: list[str] = []
            number = statement.lineno - 2
            while lines[number].strip().startswith("#:"):
                above.insert(0, lines[number].strip().removeprefix("#:").strip())
                number -= 1
            found[statement.target.id] = " ".join(above)
    return found


if __name__ == "__main__":
    sys.stdout.write(example())
