"""Writes config.example.toml from mesh.config, so that the example cannot drift: `python -m tools.config_example`.

Each setting is shown with its comment from the source, its unit, its bounds and its default.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.inspect import FloatType, IntType, StrType, StructType, Type, type_info

from mesh.config import Config

PREFACE: Final = """\
# Lingua Mesh: every setting, with its default. Keep only what you change.
# In the environment a setting is LINGUA_<SECTION>_<KEY>, as in LINGUA_EDGE_PORT=5011; that wins over this file.
# This file is made by `python -m tools.config_example`.
"""
UNITS: Final = {"_ms": "milliseconds", "_seconds": "seconds", "_percent": "percent", "_bytes": "bytes"}


def example() -> str:
    """The text of config.example.toml."""
    shape = type_info(Config)
    assert isinstance(shape, StructType)
    return PREFACE + "".join(_section(field.name, field.type) for field in shape.fields)


def _section(name: str, shape: Type) -> str:
    assert isinstance(shape, StructType)
    comments = _comments(shape.cls)
    lines = [f"\n# {inspect.getdoc(shape.cls)}", f"[{name}]"]
    for field in shape.fields:
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        about = " ".join(_about(field.name, field.type, comments.get(field.name, "")))
        lines += [f"# {about}"] if about else []
        lines += _setting(name, field.name, default)
    return "\n".join(lines) + "\n"


def _about(name: str, shape: Type, comment: str) -> Iterator[str]:
    if comment:
        yield comment if comment.endswith((".", "?")) else f"{comment}."
    unit = next((unit for end, unit in UNITS.items() if end in name), "")
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


def _setting(section: str, name: str, default: Any) -> list[str]:
    """One line, or a table of its own for each entry of a table."""
    if not isinstance(default, dict):
        return [f"{name} = {_toml(default)}"]
    lines = []
    for key, entry in default.items():
        lines.append(f"[{section}.{name}.{key}]")
        lines += [f"{field} = {_toml(value)}" for field, value in msgspec.structs.asdict(entry).items()]
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else msgspec.json.encode(value).decode()


def _comments(section: type) -> dict[str, str]:
    """Field -> the `#:` lines above it, which do not survive in the class itself."""
    source = inspect.getsource(section)
    lines = source.splitlines()
    found = {}
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            above: list[str] = []
            place = statement.lineno - 2
            while lines[place].strip().startswith("#:"):
                above.insert(0, lines[place].strip().removeprefix("#:").strip())
                place -= 1
            found[statement.target.id] = " ".join(above)
    return found


if __name__ == "__main__":
    sys.stdout.write(example())
