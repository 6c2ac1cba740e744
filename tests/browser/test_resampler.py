"""The resampler of a page: pitch, level, block boundaries, aliasing."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.async_api import Page

from tests.browser import sine_wave
from tests.browser.session_page import js

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def resampled(page: Page, sound: np.ndarray, rate: int, block: int) -> np.ndarray:
    body = """
      const { Resampler } = await import("/audio/resampler.js");
      const resampler = new Resampler(given.rate, 16_000);
      const out = [];
      for (let at = 0; at < given.sound.length; at += given.block) {
        out.push(...resampler.push(Float32Array.from(given.sound.slice(at, at + given.block))));
      }
      return out;
    """
    return np.array(await js(page, body, {"sound": sound.tolist(), "rate": rate, "block": block}))


@pytest.mark.parametrize("rate", [48_000, 44_100, 8_000])
async def test_resampler_keeps_pitch_and_level_of_a_tone(shared_page: Page, rate: int) -> None:
    heard = await resampled(shared_page, sine_wave.samples(0.5, 440, rate), rate, 128)
    assert abs(len(heard) - 8_000) < 100
    middle = heard[1_000:-1_000]
    assert abs(sine_wave.loudest_hz(middle) - 440) < 5
    assert abs(np.sqrt(np.mean(middle**2)) - 0.5 / np.sqrt(2)) < 0.005


async def test_resampler_output_does_not_depend_on_block_size(shared_page: Page) -> None:
    sound = sine_wave.samples(0.1, 700, 44_100)
    at_once = await resampled(shared_page, sound, 44_100, len(sound))
    in_blocks = await resampled(shared_page, sound, 44_100, 37)
    assert len(in_blocks) == len(at_once)
    assert np.max(np.abs(in_blocks - at_once)) < 1e-6


async def test_resampler_removes_frequencies_above_the_new_nyquist_limit(shared_page: Page) -> None:
    heard = await resampled(shared_page, sine_wave.samples(0.5, 11_000, 48_000), 48_000, 128)
    assert np.max(np.abs(heard[1_000:-1_000])) < 0.005
