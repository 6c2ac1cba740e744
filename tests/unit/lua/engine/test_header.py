from __future__ import annotations

from pathlib import Path

import pytest

from lua.engine.header import ScriptError, read_header
from lua.engine.loader import load_scripts

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


def folder(tmp_path: Path, script: str = GOOD, tool: str = TOOL) -> Path:
    (tmp_path / "shared").mkdir(exist_ok=True)
    (tmp_path / "shared" / "tool.lua").write_text(tool)
    (tmp_path / "thing_do.lua").write_text(script)
    return tmp_path


def test_a_good_script_loads(tmp_path: Path) -> None:
    script = load_scripts(folder(tmp_path))["thing_do"]
    assert [field.name for field in script.header.keys] == ["thing"]
    assert [field.name for field in script.header.args] == ["count", "name"]
    assert not script.confirmed
    assert "local function helped" in script.source and "local thing = KEYS" in script.source
    assert len(script.sha) == 40


def test_arguments_go_by_name(tmp_path: Path) -> None:
    script = load_scripts(folder(tmp_path))["thing_do"]
    assert script.arguments({"name": "n", "count": 3, "parts": [{"size": 1}, {"size": 2}]}) == [3, "n", 2, 1, 2]
    for wrong in ({"name": "n", "count": 3}, {"name": "n", "count": 3, "parts": [], "more": 1}):
        with pytest.raises(AssertionError):
            script.arguments(wrong)
    with pytest.raises(KeyError):
        script.arguments({"name": "n", "cuont": 3, "parts": []})


def test_replies_are_read_by_their_types(tmp_path: Path) -> None:
    script = load_scripts(folder(tmp_path))["thing_do"]
    assert script.read([7, b"a", b"b"]) == [7, [b"a", b"b"]]
    assert script.read([7]) == [7, []]
    with pytest.raises(ValueError, match="0 fields"):
        script.read([])


def test_confirmed_is_a_line_of_its_own(tmp_path: Path) -> None:
    text = GOOD.replace("-- USES tool\n", "-- USES tool\n-- CONFIRMED\n")
    assert load_scripts(folder(tmp_path, text))["thing_do"].confirmed


@pytest.mark.parametrize(
    ("before", "after", "line", "complaint"),
    [
        ("-- thing_do:", "-- thing:", 1, "the first line must be"),
        ("--   thing  hash", "--   thing  blob", 5, "the type is 'blob'"),
        ("--   thing  hash   the thing", "--  thing", 5, "expected `--   name  type  meaning`"),
        ("local total = count", "local total = 1", 9, "`count` is declared, but the body does not use it"),
        ("helped(thing)", "helped('x')", 5, "`thing` is declared, but the body does not use it"),
        ("local total = count", "local total = count + size", 18, "`size` is not declared"),
        ("local total = count", "local total = count + KEYS[1]", 18, "KEYS must not be used"),
        ("local total = count", "local total = count + ARGV[1]", 18, "ARGV must not be used"),
        ("part.size", "1", 13, "`part.size` is declared, but the body does not use it"),
        ("part.size", "part.size + part.weight", 20, "`part.weight` is not declared"),
        ("ipairs(parts)", "ipairs({})", 7, "the body does not use `parts`"),
        ("--   name   text", "--   count  text", 10, "`count` is taken"),
        ("--   name   text", "--   now_ms text", 10, "`now_ms` is taken"),
        ("-- USES tool", "-- USES hammer", 1, "there is no lua/scripts/shared/hammer.lua"),
        ("helped(thing)", "redis.call('HGET', thing, 'x')", 1, "calls none of ['helped']"),
    ],
)
def test_drift_is_refused(tmp_path: Path, before: str, after: str, line: int, complaint: str) -> None:
    assert before in GOOD
    with pytest.raises(ScriptError) as caught:
        load_scripts(folder(tmp_path, GOOD.replace(before, after, 1)))
    assert complaint in str(caught.value)
    assert f"thing_do.lua:{line}:" in str(caught.value)


def test_sections_are_needed(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="needs the sections"):
        load_scripts(folder(tmp_path, "-- thing_do: x.\n\nreturn {}\n"))


def test_a_shared_fragment_is_checked_too(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"tool\.lua:4: `key` is not declared"):
        load_scripts(folder(tmp_path, tool=TOOL.replace("helped(key)", "helped(other)")))


def test_a_comment_or_a_string_is_no_use(tmp_path: Path) -> None:
    text = GOOD.replace("local total = count", "local total = 'count' -- count")
    with pytest.raises(ScriptError, match="`count` is declared"):
        load_scripts(folder(tmp_path, text))


def test_every_script_of_ours_loads_and_stays_small() -> None:
    scripts = load_scripts()
    wanted = {
        "node_register", "node_heartbeat", "node_offline", "node_changes", "job_commit", "node_reserve", "request_bind",
        "job_advance", "job_release", "session_claim", "session_release", "deployment_check",
    }  # fmt: skip
    assert wanted <= scripts.keys()
    for path in Path("lua").glob("*.lua"):
        header = read_header(path, path.read_text())
        assert len(path.read_text().splitlines()) - header.length <= 80, f"{path} is too long"
