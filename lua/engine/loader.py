"""Loads every script of lua/scripts: checks its header, binds its names, wraps it so that one EVALSHA runs many calls.

A script is written for one call. The source sent to Redis is a loop over the calls of a batch, isolated by pcall: a
call that fails has its error text in its place, the others go on. Time is Redis's own, read once per batch; `now_text`
is `now_ms` as text, for values that are only stored.

    KEYS  the keys of all calls, one after the other
    ARGV  number of calls, then per call: number of keys, number of arguments, the arguments
          (a repeated group: its count, then the arguments of each item)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lua.engine.header import Field, Group, Header, Members, ScriptError, check_body, names_in, read_header
from mesh.errors import StoreError

FOLDER: Final = Path(__file__).parents[1] / "scripts"
_FUNCTION: Final = re.compile(r"^local function (\w+)", re.MULTILINE)

_BATCH: Final = """
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)
local now_text = string.format('%.0f', now_ms)
{shared}
local function one(key_at, arg_at)
{bindings}
{body}
end
local replies, key_at, arg_at = {{}}, 0, 1
for call = 1, tonumber(ARGV[1]) do
  local key_count, arg_count = tonumber(ARGV[arg_at + 1]), tonumber(ARGV[arg_at + 2])
  local ok, reply = pcall(one, key_at, arg_at + 2)
  if not ok then reply = type(reply) == 'table' and reply.err or tostring(reply) end
  replies[call] = reply
  key_at, arg_at = key_at + key_count, arg_at + 2 + arg_count
end
return replies
"""

_READ: Final[dict[str, Callable[[Any], Any]]] = {"text": bytes.decode, "int": int, "bytes": bytes}


@dataclass(frozen=True, slots=True)
class Script:
    """One script, wrapped for batches, with the codec of its arguments and replies."""

    name: str
    header: Header
    source: str
    sha: str
    confirmed: bool
    _args: tuple[str, ...]
    _groups: tuple[tuple[str, tuple[str, ...]], ...]
    _readers: tuple[Callable[[Any], Any], ...]
    _has_list: bool

    def check_order(self, args: Sequence[str], groups: Mapping[str, Sequence[str]]) -> None:
        """Assert that these are the arguments in header order: for callers that build the lists themselves."""
        assert self._args == tuple(args), f"{self.name}: the arguments are {self._args}"
        found = dict(self._groups)
        assert list(found) == list(groups), f"{self.name}: the groups are {list(found)}"
        for plural, names in groups.items():
            assert found[plural] == tuple(names), f"{self.name}: the arguments of {plural} are {found[plural]}"

    def arguments(self, args: Mapping[str, Any] | list[Any]) -> list[str | int | bytes]:
        """The arguments of one call in header order; a missing or unknown name is a bug of the caller.

        A list is in header order already: see `check_order`.
        """
        if type(args) is list:
            return args
        assert isinstance(args, Mapping)
        assert len(args) == len(self._args) + len(self._groups), f"{self.name}: got {sorted(args)}"
        values = [args[name] for name in self._args]
        for plural, names in self._groups:
            items = args[plural]
            values.append(len(items))
            for item in items:
                values.extend([item[name] for name in names])
        return values

    def read(self, replies: Sequence[Any]) -> list[list[Any] | StoreError]:
        """The replies to a batch, each with its fields in their declared types; a final `list` field holds the rest.

        StoreError in place of a script's error text, and of a reply that does not match the header.
        """
        count = len(self._readers)
        answers: list[list[Any] | StoreError] = []
        for reply in replies:
            if not isinstance(reply, list):
                answers.append(
                    StoreError(f"{self.name}: {reply.decode(errors='replace') if isinstance(reply, bytes) else reply}")
                )
                continue
            try:
                if len(reply) < count or (len(reply) > count and not self._has_list):
                    raise ValueError(f"{len(reply)} fields")
                fields = [read(value) for read, value in zip(self._readers, reply, strict=False)]
            except (ValueError, TypeError, AttributeError) as error:
                text = f"{self.name} replied {reply!r}, which does not match its header: {error}"
                answers.append(StoreError(text))
                continue
            if self._has_list:
                fields.append(reply[count:])
            answers.append(fields)
        return answers


def load_scripts(folder: Path = FOLDER) -> dict[str, Script]:
    """Every script of `folder` by name; ScriptError if one disagrees with its header."""
    shared = _load_shared(folder / "shared")
    return {path.stem: _load(path, shared) for path in sorted(folder.glob("*.lua"))}


@dataclass(frozen=True, slots=True)
class Fragment:
    """A file of lua/scripts/shared: functions for several scripts."""

    text: str
    uses: list[str]
    functions: set[str]
    #: Table fields that they read.
    members: Members


def _load_shared(folder: Path) -> dict[str, Fragment]:
    found: dict[str, tuple[Header, str]] = {}
    for path in sorted(folder.glob("*.lua")):
        text = path.read_text(encoding="utf-8")
        header = read_header(path, text)
        found[path.stem] = header, "\n".join(text.split("\n")[header.length :])
    functions = {name: set(_FUNCTION.findall(body)) for name, (_, body) in found.items()}
    for name, (header, body) in found.items():
        check_body(folder / f"{name}.lua", header, body, functions)
    return {
        name: Fragment(body, header.uses, functions[name], names_in(body, 1).members.keys())
        for name, (header, body) in found.items()
    }


def _load(path: Path, shared: dict[str, Fragment]) -> Script:
    text = path.read_text(encoding="utf-8")
    header = read_header(path, text)
    if not header.keys or not header.returns:
        raise ScriptError(path, 1, "the header needs the sections KEYS and RETURNS")
    body = "\n".join(text.split("\n")[header.length :])
    used = [shared[name] for name in _with_dependencies([name for name in header.uses if name in shared], shared)]
    members = {member for fragment in used for member in fragment.members}
    check_body(path, header, body, {name: fragment.functions for name, fragment in shared.items()}, members)
    fragments = "\n".join(fragment.text for fragment in used)
    source = _BATCH.format(shared=fragments, bindings=_bindings(header), body=body)
    has_list = header.returns[-1].type == "list"
    return Script(
        name=header.name,
        header=header,
        source=source,
        sha=hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(),
        confirmed=header.confirmed,
        _args=tuple(field.name for field in header.args),
        _groups=tuple((f"{g.name}s", tuple(field.name for field in g.args)) for g in header.groups.values()),
        _readers=tuple(_READ[field.type] for field in header.returns if field.type != "list"),
        _has_list=has_list,
    )


def _with_dependencies(names: Sequence[str], shared: dict[str, Fragment]) -> list[str]:
    """Fragments in the order in which Lua must read them: dependencies first."""
    ordered: list[str] = []
    for name in names:
        for needed in [*_with_dependencies(shared[name].uses, shared), name]:
            if needed not in ordered:
                ordered.append(needed)
    return ordered


def _bindings(header: Header) -> str:
    lines = [f"local {field.name} = {_key(index)}" for index, field in enumerate(header.keys, start=1)]
    lines += [f"local {field.name} = {_arg(field, index)}" for index, field in enumerate(header.args, start=1)]
    if header.groups:
        lines.append(f"key_at, arg_at = key_at + {len(header.keys)}, arg_at + {len(header.args)}")
        lines += [_group_binding(group) for group in header.groups.values()]
    return "\n".join(lines)


def _group_binding(group: Group) -> str:
    fields = [f"{field.name} = {_key(index)}" for index, field in enumerate(group.keys, start=1)]
    fields += [f"{field.name} = {_arg(field, index)}" for index, field in enumerate(group.args, start=1)]
    return (
        f"local {group.name}s = {{}}\n"
        "arg_at = arg_at + 1\n"
        f"for item = 1, tonumber(ARGV[arg_at]) do\n"
        f"  {group.name}s[item] = {{{', '.join(fields)}}}\n"
        f"  key_at, arg_at = key_at + {len(group.keys)}, arg_at + {len(group.args)}\n"
        "end"
    )


def _key(index: int) -> str:
    return f"KEYS[key_at + {index}]"


def _arg(field: Field, index: int) -> str:
    text = f"ARGV[arg_at + {index}]"
    return f"tonumber({text})" if field.type == "int" else text
