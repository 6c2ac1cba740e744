"""The job that a node's handler gets."""

from __future__ import annotations

import base64

import pytest

from linguamesh.node.job import Job
from mesh.messages import node as wire


def assignment(audio: str, audio_format: str = "pcm16") -> wire.JobAssign:
    return wire.JobAssign(
        job_id="job-1",
        attempt_id=2,
        session_id="s-1",
        utterance_index=0,
        src_lang="en",
        tgt_lang="es",
        pipeline=wire.PipelineConfig(),
        audio=audio,
        audio_format=audio_format,
        sample_rate=16_000,
        trace_id="t-1",
    )


async def no_partial(assign: wire.JobAssign, text: str, is_final: bool) -> None: ...


def test_pcm16_has_a_duration_and_opus_has_none() -> None:
    second = base64.b64encode(bytes(32_000)).decode()
    assert (Job(assignment(second), no_partial).audio_s, Job(assignment(second, "opus"), no_partial).audio_s) == (
        1.0,
        0.0,
    )


def test_audio_that_is_not_base64_raises_on_access() -> None:
    job = Job(assignment("*"), no_partial)
    with pytest.raises(ValueError, match="base64"):
        _ = job.audio


async def test_partial_is_sent_for_the_assignment() -> None:
    sent: list[tuple[int, str, bool]] = []

    async def send(assign: wire.JobAssign, text: str, is_final: bool) -> None:
        sent.append((assign.attempt_id, text, is_final))

    await Job(assignment(""), send).partial("hel", is_final=True)
    assert sent == [(2, "hel", True)]
