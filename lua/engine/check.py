"""`python -m lua.engine.check`: checks every script against its header; names the first mismatch by file and line."""

from __future__ import annotations

import sys

from lua.engine.header import ScriptError
from lua.engine.loader import load_scripts


def main() -> int:
    """Exit code: 0 if all agree."""
    try:
        scripts = load_scripts()
    except ScriptError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(scripts)} Lua scripts agree with their headers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
