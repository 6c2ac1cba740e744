"""`python -m selector.operators.replay`: decide again what was decided, as it was and with other weights.

Takes the recording of a selector from a file, or those of all running selectors by HTTP. First every decision is run
again as it was: it must come out the same bit for bit (exit code 1 if one does not). Then, with --weights, it tells
what other prices would have changed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from mesh.config.weights import Weights
from mesh.errors import ConfigError
from mesh.loopback import is_loopback
from mesh.process import EXIT_CONFIG, EXIT_FAILED, EXIT_OK, EXIT_UNREACHABLE

DEFAULT_URL: Final = "http://127.0.0.1:5010"
TIMEOUT_S: Final = 30.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
TOP: Final = 10
_HTTP: Final = {"ws": "http", "wss": "https", "http": "http", "https": "https"}
#: The mesh is full, or its selectors are silent.
_UNAVAILABLE: Final = (503, 504)


class Unreachable(Exception):
    """No mesh answers there."""


class Refused(Exception):
    """A mesh answers, but not with a recording."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def main(arguments: list[str] | None = None) -> int:
    """Print what came out; the exit code."""
    options = _parse(arguments)
    try:
        weights = _read_weights(Path(options.weights)) if options.weights else None
        answers = [_replayed(name, data, weights) for name, data in _recordings(options)]
    except ConfigError as error:
        return _fail(str(error), EXIT_CONFIG)
    except Unreachable as error:
        return _fail(f"no mesh running there: {error}. Start one with `lingua up`.", EXIT_UNREACHABLE)
    except Refused as error:
        return _fail(str(error), EXIT_UNREACHABLE if error.status in _UNAVAILABLE else EXIT_FAILED)
    except ValueError as error:  # RecordingError, which only the kernel's side can name
        return _fail(str(error), EXIT_FAILED)
    if options.json:
        print(json.dumps(answers[0] if options.recording else {"selectors": answers}))
    else:
        print("\n".join(line for answer in answers for line in _lines(answer)))
    return EXIT_FAILED if any(answer["different"] for answer in answers) else EXIT_OK


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="lingua replay", description="Decide again what was decided.")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--recording", help="file with one selector's recording")
    source.add_argument("--url", default=DEFAULT_URL, help=f"any edge of a running mesh (default {DEFAULT_URL})")
    parser.add_argument("--weights", help="TOML file with other weights, at its top or in its table [weights]")
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser.parse_args(arguments)


def _fail(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


def _read_weights(path: Path) -> Weights:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(tree.get("weights", tree), Weights)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {error}") from None


# --- recordings -------------------------------------------------------------------------------------------


def _recordings(options: argparse.Namespace) -> list[tuple[str, bytes]]:
    """Where each comes from, and its bytes."""
    if options.recording:
        try:
            return [(options.recording, Path(options.recording).read_bytes())]
        except OSError as error:
            raise ConfigError(f"cannot read {options.recording}: {error.strerror}") from None
    base = _base(options.url)
    selectors = json.loads(_get(f"{base}/api/v1/selectors")).get("selectors", [])
    return [(name, _get(f"{base}/api/v1/recording?{urlencode({'selector': name})}")) for name in selectors]


def _base(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in _HTTP and bool(parts.hostname) and parts.port != 0  # a port that is none raises
    except ValueError:
        is_address = False
    if not is_address:
        raise Unreachable(f"{url} is not an address of a mesh; the form is {DEFAULT_URL}")
    return urlunsplit((_HTTP[parts.scheme], parts.netloc, "", "", ""))


def _get(address: str) -> bytes:
    # A proxy from the environment never leads back to this machine.
    is_here = is_loopback(urlsplit(address).hostname)
    opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_here else []))
    try:
        with opener.open(address, timeout=TIMEOUT_S) as response:
            body: bytes = response.read(ANSWER_BYTES_MAX)
            return body
    except urllib.error.HTTPError as error:
        with error:
            said = " ".join(error.read(1_000).decode(errors="replace").split())
            raise Refused(error.code, f"{address} answers {error.code}: {said}") from None
    except urllib.error.URLError as error:
        refused = isinstance(error.reason, ConnectionRefusedError)
        raise Unreachable(f"{'connection refused' if refused else error.reason} at {_base(address)}") from None
    except (OSError, HTTPException) as error:
        raise Unreachable(f"no answer from {address}: {error}") from None


# --- answers ----------------------------------------------------------------------------------------------


def _replayed(name: str, data: bytes, weights: Weights | None) -> dict[str, Any]:
    from selector.operators.core.recording_format import unpack  # imports the kernel
    from selector.operators.core.replay_check import check, compare

    if not data:  # it has not decided anything yet
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
