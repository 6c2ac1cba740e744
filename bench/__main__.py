"""`make bench`: every figure, one after another. `make bench ARGS="kernel mesh"` runs some; words from the first that
begins with "-" on are options of the one part that is named before them: `make bench ARGS="peers --install"`."""

from __future__ import annotations

import importlib
import sys

#: Part -> its module.
PARTS = {
    "kernel": "bench.kernel",
    "scale": "bench.scale",
    "commits": "bench.commits",
    "broker": "bench.hops.broker",
    "websocket": "bench.hops.websocket",
    "mesh": "bench.mesh",
    "waterfall": "bench.waterfall",
    "streaming": "bench.streaming",
    "storm": "bench.storm",
    "idle": "bench.capacity.idle",
    "capacity": "bench.capacity.report",
    "peers": "bench.peers.compare",
}
#: Parts that a run of all leaves out, because another part includes them.
INCLUDED = ("idle",)
#: Parts whose `run` takes options.
WITH_OPTIONS = ("waterfall", "capacity", "peers")


def main() -> int:
    """Run the named parts, or all."""
    words = sys.argv[1:]
    first_option = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    wanted, options = words[:first_option], words[first_option:]
    wanted = wanted or [name for name in PARTS if name not in INCLUDED]
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        print(f"no such part: {', '.join(unknown)}. There are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    if options and (len(wanted) != 1 or wanted[0] not in WITH_OPTIONS):
        print(f"options are for one part of: {', '.join(WITH_OPTIONS)}", file=sys.stderr)
        return 2
    for name in wanted:
        module = importlib.import_module(PARTS[name])
        module.run(*([options] if options else []))
        print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
