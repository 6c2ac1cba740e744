"""The backoff of reconnect attempts in a page."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.browser.session_page import js

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: `delays(count, fraction)`: the next delays if the random number is always that fraction.
BACKOFF = """
  const { Backoff } = await import("/session/backoff.js");
  const backoff = new Backoff(500, 3_000);
  const delays = (count, fraction) => {
    Math.random = () => fraction;
    return Array.from({ length: count }, () => backoff.nextDelayMs());
  };
"""


async def test_delay_doubles_up_to_the_cap_and_is_reset(page: Page) -> None:
    body = "const before = delays(5, 1); backoff.reset(); return [before, delays(2, 1)];"
    assert await js(page, BACKOFF + body) == [[500, 1_000, 2_000, 3_000, 3_000], [500, 1_000]]


async def test_delay_is_jittered_down_to_zero(page: Page) -> None:
    assert await js(page, BACKOFF + "return [...delays(2, 0), ...delays(1, 0.5)];") == [0, 0, 1_000]


async def test_delay_stays_at_the_cap_after_many_failures(page: Page) -> None:
    assert await js(page, BACKOFF + "return delays(5_000, 1).at(-1);") == 3_000
