"""`make bench`: every figure, one after another. `make bench ARGS="kernel mesh"` runs some."""

from __future__ import annotations

import importlib
import sys

PARTS = ("kernel", "scale", "commits", "broker", "mesh", "streaming", "storm", "idle")


def main() -> int:
    """Run the named parts, or all."""
    wanted = sys.argv[1:] or list(PARTS)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        print(f"no such part: {', '.join(unknown)}. There are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    for name in wanted:
        importlib.import_module(f"bench.{name}").run()
        print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
