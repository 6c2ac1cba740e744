"""Runs Lua that exists only for a test, with the functions of lua/scripts/shared."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lua.engine.loader import FOLDER, Script, load_scripts
from tests.lua.conftest import RedisClient


def script_of(folder: Path, name: str, text: str) -> Script:
    """A script of a test's own; its header is held to the same rules."""
    shutil.copytree(FOLDER / "shared", folder / "shared")
    (folder / f"{name}.lua").write_text(text)
    return load_scripts(folder)[name]


def run(raw: RedisClient, script: Script, keys: list[str], args: Mapping[str, Any]) -> list[Any]:
    words = script.arguments(args)
    [reply] = raw.eval(script.source, len(keys), *keys, 1, len(keys), len(words), *words)
    [answer] = script.read([reply])
    assert isinstance(answer, list), answer
    return answer
