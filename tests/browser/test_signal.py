"""The condition variable of a session in a page."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.browser.session_page import js

pytestmark = pytest.mark.asyncio(loop_scope="module")

SIGNAL = 'const { Signal } = await import("/session/signal.js"); const signal = new Signal();'


async def test_notify_wakes_all_current_waiters_once(shared_page: Page) -> None:
    body = """
      const woken = [];
      const wait = (name) => signal.wait().then(() => woken.push(name));
      const both = [wait("a"), wait("b")];
      signal.notify();
      await Promise.all(both);
      const late = wait("c");
      const before = [...woken];
      signal.notify();
      await late;
      return [before, woken];
    """
    assert await js(shared_page, SIGNAL + body) == [["a", "b"], ["a", "b", "c"]]


async def test_wait_ends_at_its_timeout_without_notify(shared_page: Page) -> None:
    assert await js(shared_page, SIGNAL + "await signal.wait(1); return true;") is True
