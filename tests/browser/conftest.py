"""Fixtures: a real Chromium, its pages, a scripted edge. tests/conftest.py reports a missing Chromium."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests.browser import chromium
from tests.browser.page_server import PageServer
from tests.browser.sine_wave import write_tone
from tests.support.fakes.scripted_mesh import ScriptedMesh

if chromium.what_is_missing():
    collect_ignore_glob = ["test_*.py"]
else:
    from playwright.async_api import Browser, Page, async_playwright


@pytest.fixture(scope="module")
def spoken_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The input of the fake microphone, repeated for ever: two seconds of a tone."""
    return write_tone(tmp_path_factory.mktemp("spoken") / "tone.wav")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(spoken_file: Path) -> AsyncIterator[Browser]:
    """One browser for all tests of a module."""
    async with async_playwright() as playwright:
        flags = [*chromium.FLAGS, f"--use-file-for-fake-audio-capture={spoken_file}"]
        browser = await playwright.chromium.launch(executable_path=chromium.executable(), args=flags)
        yield browser
        await browser.close()


@pytest.fixture(scope="module")
def pages() -> Iterator[PageServer]:
    """Serves console/ on loopback."""
    with PageServer() as server:
        yield server


@asynccontextmanager
async def blank_page(browser: Browser, pages: PageServer) -> AsyncIterator[Page]:
    """An empty page that can import the modules. An uncaught error in it fails the test."""
    context = await browser.new_context(permissions=["microphone"])
    page = await context.new_page()
    uncaught: list[str] = []
    page.on("pageerror", lambda error: uncaught.append(str(error)))
    await page.goto(f"{pages.url}/blank.html")
    yield page
    await context.close()
    assert uncaught == []


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, pages: PageServer) -> AsyncIterator[Page]:
    """One page for each test."""
    async with blank_page(browser, pages) as page:
        yield page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_page(browser: Browser, pages: PageServer) -> AsyncIterator[Page]:
    """One page for all tests of a module that leave no state in it."""
    async with blank_page(browser, pages) as page:
        yield page


@pytest_asyncio.fixture(loop_scope="module")
async def mesh() -> AsyncIterator[ScriptedMesh]:
    """A scripted edge."""
    async with ScriptedMesh() as mesh:
        yield mesh
