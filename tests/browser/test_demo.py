"""The demo page, used by mouse and keyboard."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.async_api import Page, expect

from tests.browser.page_server import PageServer
from tests.support.fakes.scripted_mesh import ScriptedMesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECORDING = "Recording. Speak; when you pause, what you said is translated."


async def screenshot(page: Page, name: str) -> None:
    """Write a screenshot to the directory LINGUA_SCREENSHOTS, if it is set."""
    directory = os.environ.get("LINGUA_SCREENSHOTS")
    if directory:
        await page.screenshot(path=Path(directory) / f"{name}.png")


async def visit(page: Page, pages: PageServer, url: str) -> None:
    await page.goto(f"{pages.url}/demo/speak.html?{urlencode({'urls': url, 'src': 'en', 'tgt': 'es'})}")


async def test_demo_shows_result_of_a_recording(page: Page, pages: PageServer, mesh: ScriptedMesh) -> None:
    await visit(page, pages, mesh.url)
    await page.get_by_role("button", name="Record").click()
    client = await mesh.client()
    assert (client.init.src_lang, client.init.tgt_lang) == ("en", "es")
    await client.accept(use_binary_frame=True)
    await expect(page.get_by_role("status")).to_have_text(RECORDING)
    chunks = await client.chunks(3)
    await screenshot(page, "recording")
    await page.get_by_role("button", name="Stop").click()
    while not chunks[-1].is_final:
        chunks.append(await client.chunk())
    await expect(page.get_by_role("status")).to_have_text("Recorded; waiting for the result.")
    await client.send_result(0, "hola", last_seq=chunks[-1].seq)
    await client.send("missing_result", session_id="s-1", utterance_index=1, reason="gap_timeout", created_at_ms=1)
    shown = ["hello\nhola", "No result: it took too long. Say it again."]
    await expect(page.get_by_role("listitem")).to_have_text(shown, use_inner_text=True)
    await expect(page.get_by_role("button", name="Record")).to_be_visible()
    await screenshot(page, "result")


async def test_demo_second_recording_reuses_the_session(page: Page, pages: PageServer, mesh: ScriptedMesh) -> None:
    await visit(page, pages, mesh.url)
    await page.get_by_role("button", name="Record").press("Enter")
    client = await mesh.client()
    await client.accept()
    last = None
    for _ in range(2):
        first = await client.chunk()
        assert last is None or first.seq == last.seq + 1
        await page.get_by_role("button", name="Stop").press("Enter")
        last = first
        while not last.is_final:
            last = await client.chunk()
        await page.get_by_role("button", name="Record").press("Enter")
    assert mesh.clients_pending == 0


async def test_demo_shows_unreachable_mesh(page: Page, pages: PageServer, free_port: int) -> None:
    await visit(page, pages, f"ws://127.0.0.1:{free_port}")
    await page.get_by_role("button", name="Record").click()
    status = page.get_by_role("status")
    await expect(status).to_contain_text(f"Cannot connect to ws://127.0.0.1:{free_port}")
    await expect(status).to_contain_text("Check the address")
    await expect(page.get_by_role("button", name="Record")).to_be_visible()
    await screenshot(page, "unreachable")


async def test_demo_shows_lost_connection_until_it_is_resumed(
    page: Page, pages: PageServer, mesh: ScriptedMesh
) -> None:
    await visit(page, pages, mesh.url)
    await page.get_by_role("button", name="Record").click()
    client = await mesh.client()
    await client.accept()
    await client.chunk()
    client.abort()
    again = await mesh.client()
    await expect(page.get_by_role("status")).to_contain_text("The connection is lost")
    await again.accept(resumed=True, resend_from_seq=0)
    await expect(page.get_by_role("status")).to_have_text(RECORDING)
    assert (await again.chunk()).seq == 0
