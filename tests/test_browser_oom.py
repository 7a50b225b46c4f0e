"""Running out of memory: the report opens there, one click leads to the request's whole stack, and the figures beside
it are those of the finding.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
from planted import path_of

from snapreport.findings.live import by_category, by_place, live_at, names_of
from snapreport.findings.oom import retries
from snapreport.findings.shortage import shortage
from snapreport.number_format import bytes_text
from snapreport.reading.noise import NOISE, PYTHON, recorded_flags
from snapreport.timeline.own_code import in_library

SMALL = {"layers": 2, "hidden": 128, "heads": 4, "sequence": 64, "batch": 4, "vocabulary": 4096}
RECORDED = corpus.REAL.parent / "recorded"


def paths() -> dict[str, Callable[[], Path]]:
    """Reports with a failure: generated ones, and real ones where available."""
    made: dict[str, Callable[[], Path]] = {
        "demand": lambda: path_of("training", **SMALL, steps=6, devices=2, oom="demand", memory=1 << 30),
        "generated": lambda: path_of("oom", **SMALL, memory=1 << 30),
        "fragmentation": lambda: path_of("fragmentation", **SMALL, memory=2 << 30),
    }
    real = [
        *(corpus.REAL / f"{name}.pickle" for name in ("expandable_oom_3gpu", "lightning_oom")),
        *(RECORDED / f"{name}.pickle" for name in ("oom_backward", "oom_fragment", "oom_kv", "oom_fraction")),
        *(RECORDED / f"{name}.pickle" for name in ("oom_load", "oom_optimizer", "oom_caught_halved", "hf_trainer_oom")),
    ]
    return made | {f"{path.parent.name}/{path.stem}": (lambda path=path: path) for path in real if path.exists()}


PATHS = paths()


@pytest.fixture(scope="module", params=PATHS)
def path(request: Any) -> Path:
    """Of module scope, so that all tests of a report run together and share its page."""
    return PATHS[request.param]()


@pytest.fixture
def failed(path: Path, report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> tuple[Any, Any, int, int]:
    """A report as it opens, its snapshot, and the device and event of the failure with the largest request; failures
    close together count as the first of them.
    """
    snapshot = corpus.loaded(path)
    ooms = [
        (int(snapshot.events(device)["size"][group[0]]), -number, -group[0], device)
        for number, device in enumerate(snapshot.devices)
        for group in retries(snapshot.timeline(device))
    ]
    _, _, event, device = max(ooms)
    return borrow_report(report_of(path)), snapshot, device, -event


def test_it_opens_on_the_failure(failed: tuple[Any, Any, int, int]) -> None:
    opened, snapshot, device, event = failed
    view = opened.view()
    assert (view["device"], view["at"], view["view"]) == (device, event, "timeline")
    assert opened.js("location.hash") == "", "an address that says no more than the report itself"
    size = snapshot.events(device)["size"][event]
    label = opened.page.locator(".request-label")
    assert label.is_visible() and label.inner_text().removeprefix("↑ ") == f"{bytes_text(size)} requested"
    # The block is hatched in the colour of failures: above the stack, from the event on.
    box, plot = label.bounding_box(), opened.plot()
    assert plot["left"] <= box["x"] and box["x"] + box["width"] <= plot["left"] + plot["width"] + 2
    assert view["x"][1] >= snapshot.events(device).height
    if event >= 0.9 * snapshot.events(device).height:
        assert view["x"][1] > 1.03 * snapshot.events(device).height, "room at the right"
    assert_labels_apart(opened)


def assert_labels_apart(opened: Any) -> None:
    """No label on the plot covers another, on a phone as on a desktop; the failed request's is always there."""
    for width in (360, 1400):
        opened.page.set_viewport_size({"width": width, "height": 740})
        opened.set_view()
        labels = opened.page.locator(".line-label:visible")
        boxes = [labels.nth(i).bounding_box() for i in range(labels.count())]
        plot = opened.plot()
        assert opened.page.locator(".request-label").is_visible()
        assert all(plot["left"] <= box["x"] and box["x"] + box["width"] <= width for box in boxes)
        for first, second in itertools.combinations(boxes, 2):
            apart = any(
                first[at] + first[by] <= second[at] or second[at] + second[by] <= first[at]
                for at, by in (("x", "width"), ("y", "height"))
            )
            assert apart, (width, boxes)


def facts(opened: Any) -> dict[str, str]:
    return opened.js("""() => {
        const list = document.querySelector('.details > dl')
        const labels = [...list.querySelectorAll('dt')], values = [...list.querySelectorAll('dd')]
        return Object.fromEntries(labels.map((label, i) => [label.textContent, values[i].textContent]))
    }""")


def names(locator: Any) -> list[str]:
    return locator.evaluate_all("names => names.map(name => name.textContent)")


def held(opened: Any, kind: str) -> list[tuple[str, str]]:
    rows = opened.js(
        """kind => [...document.querySelectorAll(`[data-held=${kind}] button`)].map(row =>
        [...row.querySelectorAll('span')].map(cell => cell.textContent))""",
        kind,
    )
    return [(name, numbers.split("  ")[0]) for name, numbers in rows]


def test_one_click_to_the_whole_stack(failed: tuple[Any, Any, int, int]) -> None:
    """The headline leads to the details of the failure, whose figures are the finding's."""
    opened, snapshot, device, event = failed
    opened.page.locator("#top .verdict a").first.click()
    opened.settle()
    panel = opened.page.get_by_label("Out-of-memory error")
    assert panel.is_visible() and opened.view()["oom"] == event
    timeline = snapshot.timeline(device)
    recording = snapshot.recording
    stack = recording.stack(int(timeline.events["stack"][event]))
    frames = [recording.frames.row(i, named=True)["name"] for i in stack]
    if stack:
        flags, library = recorded_flags(recording), in_library(recording)
        own = [
            n
            for i, n in zip(stack, frames, strict=True)
            if flags[i] & PYTHON and not flags[i] & NOISE and not library[i]
        ]
        shown = names(panel.locator(".frame .name:visible"))
        assert [name for name in shown if name in own][:12] == own[:12], "own frames need no unfolding"
        panel.get_by_label("All").check()
        assert names(panel.locator(".frame .name"))[: len(frames)] == [name or "(no name)" for name in frames]
    else:
        assert "No stack trace was recorded" in panel.inner_text()
    found, _ = shortage(timeline, event)
    told = facts(opened)
    assert told["Requested"].startswith(bytes_text(found.requested))
    assert told["Segment needed"] == bytes_text(found.segment_size or found.requested)
    free = found.device_free
    assert told["Free on the device"] == ("not recorded" if free is None else bytes_text(free))
    assert told["Cached and usable"] == bytes_text(found.free_memory.usable)
    if found.free_memory.usable:
        assert told["Largest free block"] == bytes_text(found.free_memory.largest_usable)
    short = found.requested - (free or 0) - found.free_memory.usable - found.free_memory.locked - found.pending
    assert told["Shortfall"] == (bytes_text(short) if short > 0 else "none in total")
    assert told["Allocated"] == f"{bytes_text(found.allocated)} of {bytes_text(found.reserved)} reserved"
    live = live_at(timeline.allocations, event)
    # Those below 1% are in the legend.
    total = int(timeline.allocated[event + 1])
    categories = [(r["category"], bytes_text(r["bytes"])) for r in by_category(live) if 100 * r["bytes"] >= total]
    assert sorted(held(opened, "category")) == sorted(categories[:6])
    lines = by_place(live, names_of(snapshot))
    assert [size for _, size in held(opened, "function")] == [bytes_text(row["bytes"]) for row in lines[:6]]


def test_every_way_to_the_details(failed: tuple[Any, Any, int, int]) -> None:
    """The mark, the hatched block, the toolbar, the row in Events, the line in Segments, the finding."""
    opened, snapshot, device, event = failed
    page = opened.page
    x, _ = opened.pixel_of(event, 0)
    plot = opened.plot()
    page.mouse.click(x, plot["top"] - 5)
    opened.settle()
    assert opened.view()["oom"] == event, "its mark"
    page.keyboard.press("Escape")
    opened.settle()
    assert opened.view()["oom"] is None and opened.view()["at"] == event
    size = int(snapshot.events(device)["size"][event])
    below = int(snapshot.timeline(device).allocated[event + 1])
    top = opened.view()["y"][1]
    x, y = opened.pixel_of(event, below + min(size, top - below) / 2)
    page.mouse.click(x + 12, y)
    opened.settle()
    assert opened.view()["oom"] == event, "its block"
    page.keyboard.press("Escape")
    opened.set_view(view="events")
    page.locator(f".events [data-event='{event}']").click()
    opened.settle()
    assert opened.view()["oom"] == event, "its row"
    assert page.locator(".details h2").inner_text() == f"Out of memory: {bytes_text(size)} requested"
    page.keyboard.press("Escape")
    opened.set_view(view="segments")
    line = page.locator(".segments-change")
    found, _ = shortage(snapshot.timeline(device), event)
    assert f"{bytes_text(size)} requested" in line.inner_text()
    if found.free_memory.usable:
        assert f"largest block {bytes_text(found.free_memory.largest_usable)}" in line.inner_text()
    assert line.inner_text().split(". Stack")[0] in page.locator(".moment .alarm").get_attribute("title")
    line.get_by_role("button").click()
    opened.settle()
    assert opened.view()["oom"] == event, "the line of its event"
    opened.set_view(view="summary")
    page.locator("article.finding.error a.show").first.click()
    opened.until("snapreport.getView().view !== 'summary'")
    opened.settle()
    assert page.locator(".details").is_visible() and opened.view()["oom"] is not None, "its finding"
    opened.check()


def test_a_stack_of_what_held_the_memory_and_back(failed: tuple[Any, Any, int, int]) -> None:
    opened, _, _, event = failed
    opened.page.locator("#top .verdict a").first.click()
    opened.settle()
    opened.page.locator("[data-held=function] button").first.click()
    opened.settle()
    assert opened.view()["stack"] is not None and opened.view()["oom"] is None
    assert opened.page.get_by_label("Stack trace", exact=True).locator(".frames").count()
    opened.page.locator(".details .back").press("Enter")
    opened.settle()
    assert opened.view()["oom"] == event
    assert opened.js("document.activeElement.matches('.details')"), "the focus stays where the link was"
    opened.page.keyboard.press("Escape")
    assert opened.js("document.activeElement.matches('.plot')"), "and goes to the picture when they close"


def test_the_label_of_a_failure_stays(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    """However close the peak and the moment are, and however narrow the window."""
    opened = borrow_report(report_of(path_of("oom", **SMALL, memory=1 << 30)))
    event = opened.view()["at"]
    opened.js("""() => {
        const canvas = CanvasRenderingContext2D.prototype, fillText = canvas.fillText
        window.said = []
        canvas.fillText = function (text, ...rest) {
            said.push(text)
            return fillText.call(this, text, ...rest)
        }
    }""")
    for at in (event - 1, event, None):
        for width in (1300, 380):
            opened.page.set_viewport_size({"width": width, "height": 800})
            opened.js("said.length = 0")
            opened.set_view(at=at, x=[event - 30, event + 1])
            opened.settle()
            assert any(text.startswith("OOM: ") for text in opened.js("said")), (at, width)
