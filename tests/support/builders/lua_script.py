"""A small Lua script with every kind of header line, for tests of the loader and the header check."""

from __future__ import annotations

from pathlib import Path

GOOD = """\
-- thing_do: does a thing.
-- A second sentence.
-- USES tool
-- KEYS
--   thing  hash   the thing
-- KEYS per part
--   piece  set    a piece of it
-- ARGV
--   count  int    how many
--   name   text   which, in words that
--                 go on here
-- ARGV per part
--   size   int    how large
-- RETURNS
--   total  int    all of them
--   rows   list   the rest

local total = count -- name is not used here
for _, part in ipairs(parts) do
  total = total + part.size
  redis.call('SADD', part.piece, name .. "it's thing")
end
local facts = {size = 1, other = helped(thing)}
return {total, facts.other}
"""
TOOL = """\
-- tool: helps.

local function helped(key)
  return redis.call('HGET', key, 'x') or now_ms
end
"""


def script_folder(tmp_path: Path, script: str = GOOD, tool: str = TOOL) -> Path:
    """A folder with the script `thing_do` and the shared fragment `tool`."""
    (tmp_path / "shared").mkdir(exist_ok=True)
    (tmp_path / "shared" / "tool.lua").write_text(tool)
    (tmp_path / "thing_do.lua").write_text(script)
    return tmp_path
