"""Reports where viewers forbid something: scripts, workers, downloads, or drawing while the tab is hidden."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import corpus
import pytest
from pages import Opened
from waiting import wait_until

# No frame is drawn, as in a tab behind another one, until the page is shown.
HIDDEN = """
const waiting = window.waiting = [], draw = window.requestAnimationFrame.bind(window)
let isShown = false
window.requestAnimationFrame = callback => isShown ? draw(callback) : waiting.push(callback)
Object.defineProperty(document, 'hidden', { configurable: true, get: () => !isShown })
Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => isShown ? 'visible' : 'hidden' })
window.showTab = () => {
    isShown = true
    document.dispatchEvent(new Event('visibilitychange'))
    for (const callback of waiting.splice(0)) draw(callback)
}
"""
NOTE = "JavaScript is off or not allowed here"


class _Server(SimpleHTTPRequestHandler):
    policy = ""

    def end_headers(self) -> None:
        if self.policy and "report" in self.path:
            self.send_header("Content-Security-Policy", self.policy)
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, report_of: Callable[..., Path]) -> Iterator[Callable[[str], str]]:
    """``served(policy)`` → the address of a report that a server sends with its own Content-Security-Policy."""
    (tmp_path / "report.html").write_bytes(report_of(corpus.path_of("small")).read_bytes())
    handler = type("Handler", (_Server,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def address(policy: str) -> str:
        handler.policy = policy
        return f"http://127.0.0.1:{server.server_port}/report.html"

    yield address
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("policy", ["script-src 'none'", "sandbox", "default-src 'none'; style-src 'unsafe-inline'"])
def test_where_scripts_are_forbidden_a_note_says_so(served: Callable[[str], str], chromium: Any, policy: str) -> None:
    """``noscript`` would stay silent: the browser considers scripts enabled."""
    page = chromium.new_context().new_page()
    page.goto(served(policy))
    assert page.get_by_text(NOTE).is_visible()
    assert page.locator("#summary").is_visible() and page.locator("#app").is_hidden()
    page.context.close()


@pytest.mark.parametrize(
    ("policy", "without_scripts"),
    [
        ("sandbox; default-src 'none'; img-src 'self'; style-src 'self'", True),
        ("default-src 'self'", True),
        ("style-src 'none'", False),
    ],
    ids=["a CI server", "self", "styles alone"],
)
def test_where_styles_are_forbidden_a_note_says_so(
    served: Callable[[str], str], chromium: Any, policy: str, without_scripts: bool
) -> None:
    page = chromium.new_context().new_page()
    page.goto(served(policy))
    text = page.locator("body").inner_text()
    assert "Styles are not allowed here" in text and "By stack trace" in text and "This file is complete" in text
    assert (NOTE in text) == without_scripts and "missing" not in text
    assert page.locator("#app").is_hidden() and page.locator("svg").first.bounding_box()["height"] > 50
    page.context.close()


def test_in_a_frame_without_scripts_a_note_says_so(served: Callable[[str], str], chromium: Any, tmp_path: Path) -> None:
    (tmp_path / "ticket.html").write_text('<iframe sandbox src="report.html"></iframe>', encoding="utf-8")
    page = chromium.new_context().new_page()
    page.goto(served("").replace("report.html", "ticket.html"))
    report = page.frame_locator("iframe")
    assert report.get_by_text(NOTE).is_visible() and report.locator("#summary").is_visible()
    page.context.close()


def test_where_the_application_alone_is_forbidden_a_note_says_so(
    served: Callable[[str], str], chromium: Any, tmp_path: Path
) -> None:
    """As by a server that allows the scripts that it found in the file."""
    boot = re.search(r"sha256-[\w+/=]+", (tmp_path / "report.html").read_text(encoding="utf-8"))
    page = chromium.new_context().new_page()
    page.goto(served(f"script-src '{boot[0]}'"))
    page.get_by_text("The browser did not run the application in this file").wait_for()
    assert page.locator("#summary").is_visible()
    page.context.close()


@pytest.mark.parametrize(
    "policy", ["worker-src 'self'", "default-src 'self' 'unsafe-inline'"], ids=["blobs", "own files"]
)
def test_where_blobs_are_forbidden_a_note_says_so(served: Callable[[str], str], chromium: Any, policy: str) -> None:
    page = chromium.new_context().new_page()
    page.goto(served(policy))
    page.evaluate("snapreport.ready")
    assert "does not allow workers" in page.locator(".notice").inner_text()
    assert page.evaluate("snapreport.setView({view: 'flame'}).then(() => snapreport.getView().view)") == "flame"
    page.context.close()


def test_where_they_run_the_script_removes_the_note(served: Callable[[str], str], chromium: Any) -> None:
    page = chromium.new_context().new_page()
    page.goto(served(""))
    page.evaluate("snapreport.ready")
    assert page.get_by_text(NOTE).count() == 0
    page.context.close()


def test_where_workers_are_forbidden_a_note_says_so(served: Callable[[str], str], chromium: Any) -> None:
    page = chromium.new_context().new_page()
    page.goto(served("worker-src 'none'; child-src 'none'"))
    page.evaluate("snapreport.ready")
    assert "does not allow workers" in page.locator(".notice").inner_text()
    assert page.evaluate("snapreport.pick(0, snapreport.stats(0).peak_event, 1024) !== null")
    page.context.close()


def test_a_download_that_a_sandbox_refuses_is_not_announced_as_done(
    served: Callable[[str], str], chromium: Any, tmp_path: Path
) -> None:
    """First where it is refused, which not every browser reports, then where it is allowed and arrives."""
    address = served("")
    page = chromium.new_context(viewport={"width": 1300, "height": 900}).new_page()
    downloads: list[Any] = []
    page.on("download", lambda download: downloads.append(download))
    for permissions in ("allow-scripts", "allow-scripts allow-downloads"):
        assert not downloads
        frame = f'<iframe sandbox="{permissions}" src="report.html" style="width: 1200px; height: 800px"></iframe>'
        (tmp_path / "viewer.html").write_text(frame, encoding="utf-8")
        page.goto(address.replace("report.html", "viewer.html"))
        report = next(frame for frame in page.frames if frame.url.endswith("report.html"))
        report.evaluate("snapreport.ready.then(() => snapreport.setView({view: 'table'}))")
        report.get_by_role("button", name="CSV").click()
        report.locator(".notice:visible").wait_for()
        said = report.locator(".notice").inner_text()
        assert "may refuse downloads" in said and "open the report itself in a browser" in said
        assert "Saving" not in report.locator("#app").inner_text()
    wait_until(lambda: downloads, "a download", lambda _: page.wait_for_timeout(20))
    assert len(downloads) == 1
    page.context.close()


def test_a_hidden_tab_is_ready_once_it_is_shown(chromium: Any, report_of: Callable[..., Path]) -> None:
    path = report_of(corpus.path_of("small"))
    context = chromium.new_context(offline=True)
    opened = Opened(context.new_page(), path)
    opened.watch()
    opened.page.add_init_script(HIDDEN)
    opened.page.goto(path.as_uri())
    opened.js("() => { window.isReady = false; void snapreport.ready.then(() => { window.isReady = true }) }")
    opened.until("window.waiting.length > 0")
    assert opened.js("document.hidden") and not opened.js("window.isReady")
    opened.js("showTab()")
    opened.js("snapreport.ready")
    opened.settle()
    assert opened.js("snapreport.drawn()")["tiles"] > 0
    # What is requested while it is hidden again waits, and is there when the tab is back.
    assert opened.set_view(view="segments")["view"] == "segments"
    opened.check()
    context.close()
