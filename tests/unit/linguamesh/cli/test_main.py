"""The command line itself: parsing, WAV files, texts, README."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import wave
from array import array
from pathlib import Path

import pytest

from linguamesh.cli.main import build_parser
from linguamesh.cli.translate import AUDIO_BYTES_MAX, as_text, read_wav
from linguamesh.local.stack import StackOptions
from linguamesh.session import Translation
from mesh.errors import ConfigError

ROOT = Path(__file__).resolve().parents[4]
README = (ROOT / "README.md").read_text()


def write_wav(path: Path, samples: list[int], *, channels: int = 1, width: int = 2, rate: int = 16_000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(array("h" if width == 2 else "b", samples).tobytes())
    return path


def test_mono_is_passed_on_as_it_is(tmp_path: Path) -> None:
    sound = read_wav(write_wav(tmp_path / "a.wav", [1, -2, 3], rate=8_000))
    assert (array("h", sound.pcm).tolist(), sound.sample_rate) == ([1, -2, 3], 8_000)


def test_stereo_is_mixed(tmp_path: Path) -> None:
    sound = read_wav(write_wav(tmp_path / "a.wav", [10, 20, -32_768, -32_768, 32_767, 32_767], channels=2))
    assert array("h", sound.pcm).tolist() == [15, -32_768, 32_767]


def test_what_is_no_usable_wav_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("hello")
    (tmp_path / "empty.wav").write_bytes(b"")
    write_wav(tmp_path / "silent.wav", [])
    write_wav(tmp_path / "bytes.wav", [1], width=1)
    write_wav(tmp_path / "three.wav", [1, 2, 3], channels=3)
    write_wav(tmp_path / "long.wav", [0] * (AUDIO_BYTES_MAX // 2 + 10))
    expected = {
        "absent.wav": "cannot read .*: No such file",
        "text.wav": "not a PCM WAV file",
        "empty.wav": "not a PCM WAV file: it ends too early",
        "silent.wav": "holds no sound",
        "bytes.wav": "8 bits and 1 channels",
        "three.wav": "16 bits and 3 channels",
        "long.wav": "too long for one utterance: at most 47 s at 16000 Hz",
    }
    for name, text in expected.items():
        with pytest.raises(ConfigError, match=text) as error:
            read_wav(tmp_path / name)
        assert "\n" not in str(error.value)


def test_a_result_is_two_texts_and_a_timing_line() -> None:
    translation = Translation(
        0, "hello", "hola", total_ms=120, service_timings={"asr_ms": 60}, network_timings={"scheduler_to_node_ms": 2}
    )
    assert as_text(translation, "en", "es").splitlines() == [
        "en: hello",
        "es: hola",
        "120 ms in total; node: asr 60 ms; network: scheduler_to_node 2 ms; speech: 0 bytes of pcm16",
    ]


def test_defaults_of_the_command_and_of_the_stack_agree() -> None:
    options = build_parser().parse_args(["up"])
    defaults = StackOptions()
    for name in ("port", "edges", "brokers", "selectors", "nodes", "redis", "state_dir", "json"):
        assert getattr(options, name) == getattr(defaults, name)


@pytest.mark.parametrize("wrong", [{"edges": 0}, {"brokers": 65}, {"nodes": -1}, {"port": 70_000}])
def test_what_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="--" + next(iter(wrong))):
        StackOptions(**wrong).check()


def test_help_and_version_start_without_heavy_imports() -> None:
    code = (
        "import sys; from linguamesh.cli.main import build_parser; build_parser().format_help();"
        "print([m for m in ('numpy', 'numba', 'zmq', 'redis', 'websockets', 'msgspec', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_the_readme_shows_the_examples() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    for block, name in zip(blocks, ("hello_node.py", "hello_session.py", "stream_session.py"), strict=True):
        docstring, _, code = (ROOT / "examples" / name).read_text().partition('"""\n\n')
        assert docstring.startswith('"""')
        assert block == code


def test_every_command_in_the_readme_exists() -> None:
    lines = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
    commands = [line.removeprefix(".venv/bin/") for line in lines if "lingua" in line]
    assert commands
    for command in commands:
        build_parser().parse_args(shlex.split(command)[1:])
    table = re.search(r"## The command\n(.*?)\n## ", README, re.DOTALL)
    assert table is not None
    helps = {
        name: subprocess.run(
            [sys.executable, "-m", "linguamesh.cli.main", *name.split(), "--help"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in ("up", "translate", "node", "node drain", "explain", "weights")
    }
    for name, text in helps.items():
        row = next(line for line in table[1].splitlines() if re.match(rf"\| `lingua {name}[` ](?!drain)", line))
        told = set(re.findall(r"`(--[a-z-]+)", row))
        real = set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)) - {"--simulated", "--die-with-parent"}
        assert told == real
