"""The simulated pipeline: marked, deterministic, and slower for longer audio."""

from __future__ import annotations

import base64
from array import array

from hypothesis import given
from hypothesis import strategies as st

from linguamesh.local import demo_pipeline
from linguamesh.node.job import Job
from mesh.messages import node


def job(seconds: float = 1.8) -> Job:
    audio = b"\x00\x00" * int(16_000 * seconds)
    assign = node.JobAssign(
        job_id="job-00-1",
        attempt_id=1,
        session_id="s-1",
        utterance_index=0,
        src_lang="en",
        tgt_lang="es",
        pipeline=node.PipelineConfig(),
        audio=base64.b64encode(audio).decode(),
        audio_format="pcm16",
        sample_rate=16_000,
        trace_id="t",
    )

    async def no_partial(_assign: node.JobAssign, _text: str, _is_final: bool) -> None: ...

    return Job(assign, no_partial)


async def test_texts_are_marked_as_simulated() -> None:
    result = await demo_pipeline.translate(job(0.5))
    assert result.text_asr == "[simulated] 0.5 s of en speech"
    assert result.text_translated == "[simulated] 0.5 s of en speech, in es"
    assert result.tts_format == "pcm16"
    assert len(result.tts_audio) == 2 * int(demo_pipeline.TONE_S * demo_pipeline.TONE_RATE)
    assert await demo_pipeline.translate(job(0.5)) == result


def test_tone_is_audible_and_does_not_clip() -> None:
    samples = array("h", demo_pipeline.tone())
    assert 1_000 < max(samples) < 32_000
    assert (samples[0], abs(samples[-1]) < 200) == (0, True)


@given(st.floats(0, 40), st.text(max_size=20))
def test_durations_grow_with_the_audio_and_are_deterministic(audio_s: float, seed: str) -> None:
    pace = demo_pipeline.pace_of(audio_s, seed)
    assert pace == demo_pipeline.pace_of(audio_s, seed)
    longer = demo_pipeline.pace_of(audio_s + 10, seed)
    assert longer.asr_ms > pace.asr_ms
    expected = 20 + demo_pipeline.ASR_MS_PER_S * audio_s
    assert abs(pace.asr_ms - expected) <= demo_pipeline.VARIATION * expected + 1


@given(st.floats(0, 40), st.floats(1, 20))
def test_durations_scale_with_the_speed(audio_s: float, times: float) -> None:
    usual = demo_pipeline.pace_of(audio_s, "seed")
    slow = demo_pipeline.pace_of(audio_s, "seed", demo_pipeline.MS_PER_S * times)
    assert abs(slow.asr_ms - usual.asr_ms * times) <= times + 1
    assert abs(slow.nmt_ms - usual.nmt_ms * times) <= times + 1


def test_duration_of_opus_is_that_of_its_packets() -> None:
    packets = b"".join(len(packet).to_bytes(2, "little") + packet for packet in (b"abc", b"", b"x" * 300))
    assert demo_pipeline.audio_seconds(packets, "opus", 16_000) == 0.06
    assert demo_pipeline.audio_seconds(b"\x00" * 32_000, "pcm16", 16_000) == 1.0
