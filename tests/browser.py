"""Finds a Chromium and starts it as the tests need it: headless, software WebGL, without a network."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The headless shell is the same engine without a window, and opens a page in half the time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "SNAPREPORT_CHROMIUM"
HINT = (
    "no Chromium found: the browser tests need one.\n"
    f"  set {VARIABLE}=/path/to/chrome, or put chromium or google-chrome on PATH,\n"
    "  or run `apt-get install -y chromium` (Debian, as root), or `playwright install chromium`."
)
# SwiftShader draws WebGL on the CPU: the same picture on every machine, and what users of a remote desktop see.
ARGUMENTS = [
    "--no-sandbox",
    "--enable-unsafe-swiftshader",
    "--use-angle=swiftshader",
    # Everything except WebGL is composited without it: the same picture for a third of the work.
    "--disable-gpu-compositing",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    # A page lives for a second or two: V8's slowest compiler takes more than it saves there, in other threads.
    "--js-flags=--no-turbofan",
]


def on_machine() -> str | None:
    """The path of a Chromium named by the environment or on PATH; None where there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        if not Path(named).is_file():
            raise RuntimeError(f"{VARIABLE} names {named}, which is no file\n{HINT}")
        return named
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def of_playwright() -> str | None:
    """The path of the Chromium that playwright downloaded, or None."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def find() -> str:
    """The path of a Chromium.

    Raises:
        RuntimeError: there is none; the message says what to do.
    """
    found = on_machine() or of_playwright()
    if not found:
        raise RuntimeError(HINT)
    return found


@contextmanager
def launched(executable: str | None = None, **options: object) -> Iterator[Browser]:
    """A running headless Chromium."""
    from playwright.sync_api import sync_playwright

    executable = executable or find()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS, **options)
        try:
            yield browser
        finally:
            browser.close()


if __name__ == "__main__":
    try:
        print(find())
    except RuntimeError as error:
        sys.exit(str(error))
