"""`python -m selector.operators.replay FILE...`: run recorded decisions again, as they were and with other weights.

First every decision is replayed unchanged: it must be equal bit for bit (exit code 1 if one is not). Then, with
--weights, the differences under other weights are printed. Knows no network: `lingua replay` fetches the recordings.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from mesh.config.weights import Weights
from mesh.errors import ConfigError
from mesh.process import EXIT_CONFIG, EXIT_FAILED, EXIT_OK

#: Nodes whose shares are printed.
TOP: Final = 10


def main(arguments: list[str] | None = None) -> int:
    """Print the comparison; the exit code."""
    options = _parse(arguments)
    files = [options.recording] if options.recording else options.files
    try:
        weights = _read_weights(Path(options.weights)) if options.weights else None
        answers = [_replayed(file, _read(file), weights) for file in files]
    except ConfigError as error:
        return _fail(str(error), EXIT_CONFIG)
    except ValueError as error:  # RecordingError, whose module imports the kernel
        return _fail(str(error), EXIT_FAILED)
    if options.json:
        print(json.dumps(answers[0] if options.recording else {"selectors": answers}))
    else:
        print("\n".join(line for answer in answers for line in _lines(answer)))
    return EXIT_FAILED if any(answer["different"] for answer in answers) else EXIT_OK


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m selector.operators.replay", description="Replay decisions.")
    parser.add_argument("files", nargs="*", metavar="FILE", help="recordings, one per selector")
    parser.add_argument("--recording", metavar="FILE", help="a single recording; --json prints its object alone")
    parser.add_argument("--weights", help="TOML file with other weights, at its top or in its table [weights]")
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser.parse_args(arguments)


def _fail(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None


def _read_weights(path: Path) -> Weights:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(tree.get("weights", tree), Weights)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {error}") from None


# --- answers ----------------------------------------------------------------------------------------------


def _replayed(file: str, data: bytes, weights: Weights | None) -> dict[str, Any]:
    from selector.operators.core.recording_format import unpack  # imports the kernel
    from selector.operators.core.replay_check import check, compare

    name = Path(file).name
    if not data:  # no decision yet
        return {"recording": name, "decisions": 0, "different": 0, "different_batches": [], "weights_versions": []}
    recording = unpack(data)
    exact = check(recording)
    answer: dict[str, Any] = {
        "recording": name,
        "decisions": exact.decisions,
        "different": exact.different,
        "different_batches": list(exact.batches),
        "weights_versions": sorted({batch.weights_version for batch in recording.batches}),
    }
    if weights is not None:
        compared = compare(recording, weights)
        answer |= {
            "moved": compared.moved,
            "gained_ms": compared.gained_ms,
            "lost_ms": compared.lost_ms,
            "shares": [
                {"node_id": node_id, "before": round(before, 4), "after": round(after, 4)}
                for node_id, before, after in compared.shares(TOP)
            ],
        }
    return answer


def _lines(answer: dict[str, Any]) -> list[str]:
    lines = [f"{answer['recording']}: {answer['decisions']} decisions"]
    if answer["different"]:
        batches = ", ".join(map(str, answer["different_batches"]))
        lines.append(f"  {answer['different']} come out otherwise than recorded (batches {batches})")
    else:
        lines.append("  all come out as recorded, bit for bit")
    if "moved" in answer:
        lines.append(
            f"  with the new weights {answer['moved']} would choose another node: {answer['gained_ms']} ms better by "
            f"the new weights, {answer['lost_ms']} ms worse by the old ones"
        )
        lines += [
            f"  {share['node_id']:<32} {share['before']:7.1%} -> {share['after']:7.1%}" for share in answer["shares"]
        ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
