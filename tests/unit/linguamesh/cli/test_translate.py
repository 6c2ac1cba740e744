"""`lingua translate`: WAV files and printed results."""

from __future__ import annotations

import wave
from array import array
from pathlib import Path

import pytest

from linguamesh.cli.translate import AUDIO_BYTES_MAX, as_text, read_wav
from linguamesh.session import Translation
from mesh.errors import ConfigError


def write_wav(path: Path, samples: list[int], *, channels: int = 1, width: int = 2, rate: int = 16_000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(array("h" if width == 2 else "b", samples).tobytes())
    return path


def test_mono_is_read_unchanged(tmp_path: Path) -> None:
    sound = read_wav(write_wav(tmp_path / "a.wav", [1, -2, 3], rate=8_000))
    assert (array("h", sound.pcm).tolist(), sound.sample_rate) == ([1, -2, 3], 8_000)


def test_stereo_is_mixed_to_mono(tmp_path: Path) -> None:
    sound = read_wav(write_wav(tmp_path / "a.wav", [10, 20, -32_768, -32_768, 32_767, 32_767], channels=2))
    assert array("h", sound.pcm).tolist() == [15, -32_768, 32_767]


def test_unusable_wav_file_is_one_line(tmp_path: Path) -> None:
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


def test_result_is_two_texts_and_a_timing_line() -> None:
    translation = Translation(
        0, "hello", "hola", total_ms=120, service_timings={"asr_ms": 60}, network_timings={"scheduler_to_node_ms": 2}
    )
    assert as_text(translation, "en", "es").splitlines() == [
        "en: hello",
        "es: hola",
        "120 ms in total; node: asr 60 ms; network: scheduler_to_node 2 ms; speech: 0 bytes of pcm16",
    ]
