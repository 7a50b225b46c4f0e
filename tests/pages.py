"""Opens reports in Chromium and reads them: every page is watched for requests and errors while it is used."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waiting import wait_until

if TYPE_CHECKING:
    from PIL.Image import Image
    from playwright.sync_api import Browser, Page

SIZE = {"width": 1300, "height": 900}
OWN = ("file:", "blob:", "data:")
Color = tuple[int, int, int]


# Two frames have passed, no tile is pending, and two frames more.
SETTLED = """async () => {
    const frame = () => new Promise(done => requestAnimationFrame(done))
    const end = performance.now() + 300_000
    await frame(); await frame()
    while (snapreport.drawn().pending !== 0) {
        if (performance.now() > end) throw new Error('tiles are pending for ever')
        await frame()
    }
    await frame(); await frame()
}"""
# A page shows its other views once, unseen, while its reader rests: a quarter of what opening takes.
NEVER_AT_REST = "window.requestIdleCallback = () => 0"
LOST_CONTEXT = """() => new Promise(done => {
    document.addEventListener('webglcontextrestored', () => done(), { capture: true, once: true })
    snapreport.testContextLoss()
})"""
# With a limit: a page that never shows it would hold up the whole run.
SET_VIEW = """patch => Promise.race([
  snapreport.setView(patch).then(() => snapreport.getView()),
  new Promise((_, fail) => setTimeout(() => fail(new Error('never drawn')), 300_000)),
])"""
PLOT = """() => {
    const strip = document.querySelector('canvas.minimap').getBoundingClientRect()
    const box = document.querySelector('.plot').getBoundingClientRect()
    return { left: strip.x, width: strip.width, top: box.y + 22, height: box.height - 48 }
}"""


@dataclass(frozen=True)
class Still:
    """The screen at one moment, addressed by places of the timeline: events across, bytes up."""

    image: Image | None
    view: dict[str, Any]
    plot: dict[str, float]

    def pixel_of(self, x: float, byte: float) -> tuple[float, float]:
        """CSS pixels of a place; on the time axis only where time is linear in events."""
        (x0, x1), (y0, y1), plot = self.view["x"], self.view["y"], self.plot
        return (
            plot["left"] + (x - x0) / (x1 - x0) * plot["width"],
            plot["top"] + plot["height"] - (byte - y0) / (y1 - y0) * plot["height"],
        )

    def place_of(self, left: float, top: float) -> tuple[float, float]:
        """The place that a CSS pixel shows."""
        (x0, x1), (y0, y1), plot = self.view["x"], self.view["y"], self.plot
        return (
            x0 + (left - plot["left"]) / plot["width"] * (x1 - x0),
            y0 + (plot["top"] + plot["height"] - top) / plot["height"] * (y1 - y0),
        )

    def color(self, x: float, byte: float) -> Color:
        """The most common colour of a few pixels around a place: marks and lines are one pixel wide."""
        left, top = self.pixel_of(x, byte)
        ratio = self.image.width / self.plot["screen"]
        seen = [
            self.image.getpixel((round(left * ratio) + dx, round(top * ratio) + dy))
            for dx in (-4, -2, 0, 2, 4)
            for dy in (-2, 0, 2)
        ]
        return max(set(seen), key=seen.count)


@dataclass
class Opened:
    """A page with a report in it, and the requests and errors that it should not have caused."""

    page: Page
    path: Path
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def watch(self) -> None:
        own = self.path.as_uri()
        self.page.on(
            "request",
            lambda r: (
                self.outside.append(r.url)
                if not r.url.startswith(OWN) or (r.url.startswith("file:") and r.url.partition("#")[0] != own)
                else None
            ),
        )
        self.page.on(
            "console", lambda m: self.errors.append(f"{m.type}: {m.text}") if m.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda e: self.errors.append(f"uncaught: {e}"))

    @property
    def told(self) -> list[str]:
        """The console's messages, without those that software WebGL always writes."""
        return [e for e in self.errors if "GPU stall due to ReadPixels" not in e and "software WebGL" not in e]

    def check(self) -> None:
        assert not self.outside, f"the page asked for {self.outside}"
        assert not self.told, f"the page's console says {self.told}"

    def js(self, expression: str, argument: Any = None) -> Any:
        """Evaluates an expression or function in the page; promises are awaited."""
        return self.page.evaluate(expression, argument)

    def view(self) -> dict[str, Any]:
        return self.js("snapreport.getView()")

    def set_view(self, **patch: Any) -> dict[str, Any]:
        """Changes the view and waits for the frame that shows it; returns the view then."""
        return self.js(SET_VIEW, patch)

    def plot(self) -> dict[str, float]:
        """The plot inside its axes in CSS pixels of the window: left, top, width, height; and the window's width.

        The minimap lies exactly above it and is as wide; labels take 22 pixels over and 26 under it.
        """
        return self.js(PLOT) | {"screen": self.page.viewport_size["width"]}

    def still(self) -> Still:
        """What is on the screen now."""
        from PIL import Image

        return Still(Image.open(io.BytesIO(self.page.screenshot())).convert("RGB"), self.view(), self.plot())

    def pixel_of(self, x: float, byte: float) -> tuple[float, float]:
        return Still(None, self.view(), self.plot()).pixel_of(x, byte)

    def place_of(self, left: float, top: float) -> tuple[float, float]:
        return Still(None, self.view(), self.plot()).place_of(left, top)

    def until(self, expression: str, argument: Any = None) -> None:
        """Waits until an expression is true. (playwright's own wait evaluates strings, which the page's policy
        forbids.)
        """
        wait_until(lambda: self.js(expression, argument), expression, lambda _: self.page.wait_for_timeout(20))

    def lose_context(self) -> None:
        """Drops what the graphics card holds, and waits until the page has it again and has drawn."""
        self.js(LOST_CONTEXT)
        self.settle()

    def settle(self) -> None:
        """Waits until what was requested is drawn: two frames have passed and no tile is pending."""
        self.js(SETTLED)


def open_report(
    browser: Browser, path: Path, fragment: str = "", *, before: str = "", is_rehearsed: bool = False, **context: Any
) -> Opened:
    """Opens a report from its file, offline; ``before`` is a script to run before the page's own. is_rehearsed: waits
    until the other views have been shown off screen, which otherwise does not happen.
    """
    opened = Opened(browser.new_context(**{"viewport": SIZE, "offline": True, **context}).new_page(), path)
    opened.watch()
    for script in (before, "" if is_rehearsed else NEVER_AT_REST):
        if script:
            opened.page.add_init_script(script)
    opened.page.goto(path.as_uri() + fragment)
    if context.get("java_script_enabled", True):
        opened.js("snapreport.ready")
        if is_rehearsed:
            opened.until("performance.getEntriesByName('snapreport:prepared').length > 0")
        opened.settle()
    return opened
