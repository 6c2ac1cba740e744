"""Drives a session in a page: session-recorder.js opens it and records its results and events."""

from __future__ import annotations

import asyncio
from typing import Any

from playwright.async_api import Page

from tests.support.conditions import DEADLINE_S
from tests.support.fakes.scripted_mesh import Client, ScriptedMesh

#: Milliseconds. A short backoff makes tests fast; no test depends on its length.
SOON = {"reconnectBase": 20, "reconnectCap": 50}
_RECORDER = 'const { recorded, open, outcome, sound, resultObjects } = await import("/session-recorder.js");'


async def js(page: Page, body: str, given: Any = None) -> Any:
    """Run the body in the page and return its value.

    In scope: `given`, `session` once open, exports of session-recorder.js.
    """
    return await page.evaluate(f"async (given) => {{ {_RECORDER} {body} }}", given)


def opening(page: Page, urls: str | list[str], **options: Any) -> asyncio.Future[Any]:
    """Open a session. The outcome has `value`, the session id, or `error`."""
    options = {"timing": SOON, **options}
    return asyncio.ensure_future(js(page, "return outcome(() => open(...given));", [urls, options]))


async def opened(page: Page, mesh: ScriptedMesh, *, options: dict[str, Any] | None = None, **ack: Any) -> Client:
    """Open a session and return the edge's side of it. `ack`: fields of session_init_ack."""
    waiting = opening(page, mesh.url, **(options or {}))
    client = await mesh.client()
    await client.accept(**ack)
    assert (await waiting)["error"] is None
    return client


async def speak(page: Page, ms: int, *, end: bool = False, sample: int = 1) -> None:
    """Send that much audio, and optionally finalize the utterance."""
    await js(page, "session.speak(sound(...given.sound));", {"sound": [ms, sample]})
    if end:
        await js(page, "session.endUtterance();")


async def recorded(page: Page, name: str) -> Any:
    """The record of that name so far."""
    return await page.evaluate("(name) => recorded[name]", name)


async def until(page: Page, condition: str) -> None:
    """Wait until the condition holds in the page."""
    await page.wait_for_function(condition, timeout=DEADLINE_S * 1_000)


async def results(page: Page, count: int) -> list[dict[str, Any]]:
    """All results, once there are at least `count`."""
    await until(page, f"recorded.results.length >= {count}")
    received: list[dict[str, Any]] = await recorded(page, "results")
    return received
