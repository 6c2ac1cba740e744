"""Finds a Chromium for the tests, and its command-line flags."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_CHECK_TIMEOUT_S = 60
#: No network beyond loopback; a fake microphone without a permission prompt.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
)


def executable() -> str | None:
    """The path of a Chromium, or None. LINGUA_CHROMIUM overrides it."""
    named = os.environ.get("LINGUA_CHROMIUM")
    if named:
        return named if Path(named).exists() else None
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@cache
def what_is_missing() -> str:
    """Why the browser tests cannot run, in one line; "" if they can."""
    path = executable()
    if path is None:
        return "no Chromium found; Debian: apt-get install chromium"
    if not _runs(path, "--version"):
        return f"{path} does not start"
    # Playwright's driver is a separate binary; a wheel for another platform does not start.
    if not _runs(sys.executable, "-m", "playwright", "--version"):
        return "the playwright package does not start"
    return ""


def _runs(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=_CHECK_TIMEOUT_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
