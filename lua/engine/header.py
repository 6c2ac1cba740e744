"""Parses a script's header and checks the body against it.

    -- node_reserve: lease a slot provisionally.
    -- USES lease                 functions of lua/scripts/shared/lease.lua
    -- CONFIRMED                  optional: WAIT for redis.wait_replicas replicas
    -- KEYS
    --   leases   zset   leases of the node
    -- KEYS per candidate         a repeated group: `for _, candidate in ipairs(candidates)`
    -- ARGV
    --   attempt  int    which attempt
    -- RETURNS
    --   verdict  text   ok | full

The body uses these names and never KEYS[n] or ARGV[n], so positions cannot drift. A name that is used but not declared,
or declared but not used, is an error. Fields of a group count as used also in a fragment that the script USES.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

KEY_TYPES: Final = frozenset({"hash", "zset", "set", "stream", "string"})
ARG_TYPES: Final = frozenset({"text", "int", "bytes"})
RETURN_TYPES: Final = frozenset({"text", "int", "bytes", "list"})

#: Names that the loader defines for every script.
PREDEFINED: Final = frozenset({"now_ms", "now_us", "now_text"})
_KEYWORDS: Final = (
    "and break do else elseif end false for function if in local nil not or repeat return then true until while"
)
_LIBRARY: Final = "redis cmsgpack string table math tonumber tostring type ipairs pairs pcall unpack error"
_LUA: Final = frozenset(_KEYWORDS.split() + _LIBRARY.split())
_TOKEN: Final = re.compile(
    r"--[^\n]*|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|[A-Za-z_]\w*|\d[\w.]*|\.\.\.|\.\.|[=~<>]=|\S"
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_TITLE: Final = re.compile(r"-- (\w+): (.+)")
_SECTION: Final = re.compile(r"-- (KEYS|ARGV|RETURNS)(?: per (\w+))?(?:\s{2,}.*)?")
_FIELD: Final = re.compile(r"--   (\w+)\s+(\w+)(?:\s+(.*))?")
_CONTINUED: Final = re.compile(r"--\s{4,}\S.*")
_USES: Final = re.compile(r"-- USES ([\w, ]+?)(?:\s{2,}.*)?")
_CONFIRMED: Final = re.compile(r"-- CONFIRMED(?:\s{2,}.*)?")


class ScriptError(ValueError):
    """A script and its header disagree; the text begins with file:line."""

    def __init__(self, path: Path, line: int, text: str) -> None:
        super().__init__(f"{path}:{line}: {text}")


class Field(NamedTuple):
    """One declared name."""

    name: str
    type: str
    line: int


class Group(NamedTuple):
    """Keys and arguments that repeat together; the body loops over `<name>s`."""

    name: str
    keys: list[Field]
    args: list[Field]


class Header(NamedTuple):
    """The declarations of a header."""

    name: str
    uses: list[str]
    confirmed: bool
    keys: list[Field]
    args: list[Field]
    groups: dict[str, Group]
    returns: list[Field]
    #: Number of header lines; the body follows.
    length: int


def read_header(path: Path, text: str) -> Header:
    """The header at the top of `text`; ScriptError if a line does not parse."""
    lines = text.split("\n")
    title = _TITLE.fullmatch(lines[0])
    if not title or title[1] != path.stem:
        raise ScriptError(path, 1, f"the first line must be `-- {path.stem}: <one sentence>`")
    header = Header(title[1], [], False, [], [], {}, [], next(n for n, line in enumerate(lines) if line[:2] != "--"))
    section: list[Field] | None = None
    types = KEY_TYPES
    for number, line in enumerate(lines[1 : header.length], start=2):
        if match := _USES.fullmatch(line):
            header.uses.extend(re.split(r",\s*", match[1]))
        elif _CONFIRMED.fullmatch(line):
            header = header._replace(confirmed=True)
        elif match := _SECTION.fullmatch(line):
            section, types = _section(header, match[1], match[2])
        elif section is not None and (match := _FIELD.fullmatch(line)):
            if match[2] not in types:
                raise ScriptError(path, number, f"{match[1]}: the type is {match[2]!r}, not one of {sorted(types)}")
            section.append(Field(match[1], match[2], number))
        elif section is not None and not _CONTINUED.fullmatch(line):
            raise ScriptError(path, number, "expected `--   name  type  meaning` or a section (KEYS, ARGV, RETURNS)")
    return header


def _section(header: Header, kind: str, group_name: str | None) -> tuple[list[Field], frozenset[str]]:
    if kind == "RETURNS":
        return header.returns, RETURN_TYPES
    types = KEY_TYPES if kind == "KEYS" else ARG_TYPES
    if group_name is None:
        return (header.keys if kind == "KEYS" else header.args), types
    group = header.groups.setdefault(group_name, Group(group_name, [], []))
    return (group.keys if kind == "KEYS" else group.args), types


class Names(NamedTuple):
    """Names in a body."""

    used: dict[str, int]  # name -> first line
    members: dict[tuple[str, str], int]  # (owner, field) -> first line
    declared: set[str]


def names_in(text: str, first_line: int) -> Names:
    """Every name in Lua source, apart from comments, strings and table fields."""
    tokens = [
        (match[0], first_line + text.count("\n", 0, match.start()))
        for match in _TOKEN.finditer(text)
        if not match[0].startswith("--")
    ]
    texts = ["", "", *(text for text, _ in tokens), ""]
    names = Names({}, {}, set())
    for index, (token, line) in enumerate(tokens, start=2):
        if not _NAME.fullmatch(token):
            continue
        if texts[index - 1] in (".", ":"):
            names.members.setdefault((texts[index - 2], token), line)
        elif not (texts[index - 1] in ("{", ",") and texts[index + 1] == "=" and _in_braces(texts, index)):
            names.used.setdefault(token, line)
    names.declared.update(_declared(texts))
    return names


def _in_braces(texts: list[str], index: int) -> bool:
    return texts[:index].count("{") > texts[:index].count("}")


def _declared(texts: list[str]) -> set[str]:
    """Names after `local` and `for`, and between the brackets after `function`."""
    found: set[str] = set()
    for index, keyword in enumerate(texts):
        if keyword not in ("local", "for", "function"):
            continue
        rest = texts[index + 1 :]
        if keyword == "function" and rest[0] != "(":
            found.add(rest[0])
            rest = rest[1:]
        for follower in rest:
            if _NAME.fullmatch(follower) and follower not in _LUA:
                found.add(follower)
            elif follower not in (",", "("):
                break
    return found


#: (owner, field) of every table field that a text reads.
Members = Collection[tuple[str, str]]


def check_body(
    path: Path, header: Header, body: str, shared: dict[str, set[str]], shared_members: Members = ()
) -> None:
    """ScriptError if the body and its header disagree.

    `shared`: fragment name -> its functions; `shared_members`: fields read by the fragments that the body uses.
    """
    first = header.length + 1
    names = names_in(body, first)
    functions = _functions_used(path, header, shared, names)
    _check_duplicates(path, header)
    _check_used(path, header, names)
    _check_groups(path, header, names, shared_members)
    known = _LUA | PREDEFINED | functions | names.declared | {field.name for field in header.keys + header.args}
    known |= {f"{group}s" for group in header.groups}
    for name, line in names.used.items():
        if name in ("KEYS", "ARGV"):
            raise ScriptError(path, line, f"{name} must not be used: use the names that the header declares")
        if name not in known:
            raise ScriptError(path, line, f"`{name}` is not declared in the header, nor in the body")


def _functions_used(path: Path, header: Header, shared: dict[str, set[str]], names: Names) -> set[str]:
    functions: set[str] = set()
    for fragment in header.uses:
        if fragment not in shared:
            raise ScriptError(path, 1, f"USES {fragment}: there is no lua/scripts/shared/{fragment}.lua")
        if not shared[fragment] & names.used.keys():
            raise ScriptError(path, 1, f"USES {fragment}, but calls none of {sorted(shared[fragment])}")
        functions |= shared[fragment]
    return functions


def _check_duplicates(path: Path, header: Header) -> None:
    seen: set[str] = set(PREDEFINED)
    for field in header.keys + header.args:
        if field.name in seen or field.name in _LUA:
            raise ScriptError(path, field.line, f"`{field.name}` is taken")
        seen.add(field.name)


def _check_used(path: Path, header: Header, names: Names) -> None:
    for field in header.keys + header.args:
        if field.name not in names.used:
            raise ScriptError(path, field.line, f"`{field.name}` is declared, but the body does not use it")


def _check_groups(path: Path, header: Header, names: Names, shared_members: Members) -> None:
    members = {**dict.fromkeys(shared_members, 1), **names.members}
    for group in header.groups.values():
        fields = {field.name: field.line for field in group.keys + group.args}
        if f"{group.name}s" not in names.used:
            raise ScriptError(path, min(fields.values()), f"the body does not use `{group.name}s`")
        for (owner, name), line in members.items():
            if owner == group.name and name not in fields:
                raise ScriptError(path, line, f"`{owner}.{name}` is not declared in the header")
        for name, line in fields.items():
            if (group.name, name) not in members:
                raise ScriptError(path, line, f"`{group.name}.{name}` is declared, but the body does not use it")
