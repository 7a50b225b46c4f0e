"""Split: a second pane shows the same view of another device or moment, on one scale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest

import snapreport

VIEWS = ("timeline", "segments", "reserved", "flame", "table", "events")


@pytest.fixture
def two(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> Any:
    """A report of two devices, cuda:1 with an OOM, both panes open."""
    opened = borrow_report(report_of(corpus.path_of("two_devices.pickle.xz")))
    opened.set_view(device=0, view="timeline", second={"device": 1})
    return opened


def test_every_view_is_shown_twice_with_the_data_of_its_device(two: Any) -> None:
    for view in VIEWS:
        state = two.set_view(view=view)
        assert (state["device"], state["second"]["device"]) == (0, 1)
        assert two.page.locator(".pane:visible").count() == 2
        assert two.page.locator(".pane.second canvas:visible, .pane.second [role=row]:visible").count() > 0
        assert two.page.locator(".pane.second .pane-head select").input_value() == "1"
    two.check()


def test_one_scale_in_bytes(two: Any) -> None:
    """The full height represents the same bytes in both; the panes are equally high and wide."""
    state = two.set_view(view="timeline")
    assert state["y"] == state["second"]["y"]
    stats = [two.js("device => snapreport.stats(device)", device) for device in (0, 1)]
    assert state["y"][1] > max(entry["peak_allocated_bytes"] for entry in stats)
    boxes = two.js("[...document.querySelectorAll('.plot')].map(p => p.getBoundingClientRect().toJSON())")
    assert boxes[0]["height"] == pytest.approx(boxes[1]["height"], abs=1)
    assert boxes[0]["width"] == pytest.approx(boxes[1]["width"], abs=2)
    tops = []
    for first, second in ((0, 1), (1, 0)):
        two.set_view(device=first, view="reserved", second={"device": second})
        tops.append(two.js("snapreport.debug.view().boxes.partsTop"))
    assert tops[0] == tops[1] >= max(entry["peak_reserved_bytes"] for entry in stats)


def test_panes_are_equally_high_where_one_has_more_rows(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    """Only one of the devices has spans: the other leaves as much room, so that a byte is as high in both."""
    opened = borrow_report(report_of(Path(snapreport.__file__).parent / "samples" / "two_devices.pickle.xz"))
    for tracks in ("few", "none"):
        opened.set_view(device=1, second={"device": 0}, options={"timeline.tracks": tracks})
        opened.settle()
        rows = opened.js("[...document.querySelectorAll('.tracks canvas')].map(canvas => canvas.clientHeight)")
        assert (rows[0] != rows[1]) == (tracks == "few")
        opened.until("(([a, b]) => a === b)([...document.querySelectorAll('.plot')].map(plot => plot.clientHeight))")


def test_both_panes_are_drawn_when_one_was_coloured_before(two: Any) -> None:
    """Each has its own keys of one device: the tiles of one are not those that the other waits for."""
    two.set_view(second=None)
    for colour in ("stack", "size", "category"):
        two.set_view(colour=colour)
    two.set_view(second={"device": 0})
    drawn = (
        "() => Promise.race([snapreport.setView({x: [100, 300]}).then(() => 'drawn'), "
        "new Promise(done => setTimeout(() => done('never'), 20_000))])"
    )
    assert two.js(drawn) == "drawn"


def test_linked_and_independent_windows(two: Any) -> None:
    two.set_view(view="timeline", x=[100, 300])
    counts = [len(snapreport.load(corpus.path_of("two_devices.pickle.xz")).events(device)) for device in (0, 1)]
    state = two.view()
    factor = counts[1] / counts[0]
    assert state["second"]["x"] == pytest.approx([(e + 1) * factor - 1 for e in (100, 300)], abs=0.01)
    two.page.locator(".pane.second .switch input").uncheck()
    state = two.set_view(x=[500, 600])
    assert state["second"]["x"] == pytest.approx([(e + 1) * factor - 1 for e in (100, 300)], abs=0.01)
    two.until("location.hash.includes('split.apart=1')")
    # A move in the second pane, by key, leaves the first unchanged.
    two.page.locator(".pane.second .plot").focus()
    two.page.keyboard.press("d")
    moved = two.set_view()
    assert moved["x"] == state["x"] and moved["second"]["x"][0] > state["second"]["x"][0]


def test_two_moments_of_one_device(two: Any) -> None:
    """The state of each moment is the same as when shown alone."""
    for view in ("segments", "table", "flame"):
        two.set_view(device=0, view=view, at=200, second=None)
        alone = two.js("snapreport.debug.view()")
        state = two.set_view(at=800, second={"device": 0, "at": 200})
        assert (state["at"], state["second"]["at"]) == (800, 200)
        two.set_view(at=200, second={"device": 0, "at": 800})
        if view == "segments":
            assert two.js("snapreport.debug.view()").keys() == alone.keys()
        words = two.js("[...document.querySelectorAll('.moment-words')].map(w => w.textContent)")
        assert words[0].startswith("event 200 of ") and words[1].startswith("event 800 of ")


def test_a_saved_picture_has_both(two: Any) -> None:
    """Side by side, each under a line that names its device; the legend says whose numbers it shows."""
    from PIL import Image

    two.set_view(device=0, view="timeline", at=None, second={"device": 1})
    assert two.page.locator(".legend-more").inner_text().startswith("First pane, ")
    with two.page.expect_download() as alone:
        two.page.get_by_role("button", name="PNG").click()
    image = Image.open(alone.value.path())
    widths = two.js("[...document.querySelectorAll('.timeline')].map(e => e.offsetWidth)")
    assert image.width == pytest.approx(sum(widths) + 14, abs=2)
    halves = [image.convert("RGB").crop((x, 60, x + widths[0] - 20, image.height)) for x in (0, widths[0] + 20)]
    assert min(len(half.getcolors(1 << 24)) for half in halves) > 20, "both are drawn"


def test_a_link_opens_both_and_the_key_closes(two: Any, report_of: Callable[..., Path], open_report: Any) -> None:
    state = two.set_view(view="segments", at=300, second={"at": 500, "stacked": True})
    two.until("['view=segments', 'at=300', 'stacked'].every(part => location.hash.includes(part))")
    hash_ = two.js("location.hash")
    again = open_report(report_of(corpus.path_of("two_devices.pickle.xz")), hash_)
    assert again.view() == state
    assert again.page.locator(".panes.stacked").count() == 1
    boxes = again.js("[...document.querySelectorAll('.pane')].map(p => p.getBoundingClientRect().toJSON())")
    assert boxes[1]["top"] >= boxes[0]["bottom"] - 1
    again.page.keyboard.press("l")
    assert again.set_view()["second"] is None and again.page.locator(".pane").count() == 1
    again.page.get_by_role("button", name="Split").click()
    assert again.set_view()["second"] is not None
    again.page.get_by_role("button", name="Close", exact=True).click()
    assert again.set_view()["second"] is None
    again.check()


def test_details_of_the_second_pane(two: Any) -> None:
    """What is selected on either side is shown in the one panel; the other's closes."""
    two.set_view(view="timeline", select=5)
    assert two.page.locator(".details:visible").count() == 1
    first = two.page.locator(".details:visible h2").inner_text()
    state = two.set_view(second={"select": 40})
    assert state["second"]["select"] == 40
    assert two.page.locator(".details:visible").count() == 1
    size = two.js("snapreport.allocation(1, 40).size")
    shown = two.page.locator(".details:visible h2").inner_text()
    assert shown != first and two.js("n => snapreport.debug.format.bytes(n)", size).split(" ")[0] in shown


def test_at_360_pixels_one_is_over_the_other(report_of: Callable[..., Path], open_report: Any) -> None:
    opened = open_report(report_of(corpus.path_of("two_devices.pickle.xz")), viewport={"width": 360, "height": 780})
    for view in ("timeline", "segments"):
        opened.set_view(view=view, second={"device": 1})
        boxes = opened.js("[...document.querySelectorAll('.pane')].map(p => p.getBoundingClientRect().toJSON())")
        assert boxes[1]["top"] >= boxes[0]["bottom"] - 1
        assert all(box["height"] >= 200 and box["right"] <= 361 for box in boxes)


def test_wrong_devices_are_refused(two: Any) -> None:
    error = two.js("snapreport.setView({second: {device: 9}}).then(() => '', e => e.name)")
    assert error == "RangeError"
