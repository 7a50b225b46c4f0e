"""What is drawn is what is there: colours at known places, in both themes, after zooming, after a lost context."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import oracle
import pytest

import snapreport

GIB = 1 << 30
# (size in GiB, born at event, freed at event or -1): what stands on what is easily said, see the docstring below.
BANDS = [(4, 0, -1), (2, 100, 600), (3, 200, -1), (1, 300, 400), (2, 650, 900)]
EVENTS = 1000
Color = tuple[int, int, int]


def bands() -> dict[str, Any]:
    """Five bands of several GiB over a thousand events, the rest of which are allocations of 512 bytes and their frees."""
    events: list[dict[str, Any]] = []
    small = False
    for i in range(EVENTS):
        frames = [{"filename": "train.py", "line": i, "name": f"f{i}"}]
        born = next((n for n, band in enumerate(BANDS) if band[1] == i), None)
        freed = next((n for n, band in enumerate(BANDS) if band[2] == i), None)
        if born is not None:
            events.append({"action": "alloc", "addr": GIB * 100 * (born + 1), "size": BANDS[born][0] * GIB, "stream": 0, "time_us": i * 10, "frames": frames})
        elif freed is not None:
            events.append({"action": "free_completed", "addr": GIB * 100 * (freed + 1), "size": BANDS[freed][0] * GIB, "stream": 0, "time_us": i * 10})
        else:
            small = not small
            frames = [{"filename": "small.py", "line": 1, "name": "small"}]
            events.append({"action": "alloc" if small else "free_completed", "addr": 512, "size": 512, "stream": 0, "time_us": i * 10, "frames": frames})
    return {"segments": [], "device_traces": [events]}


@pytest.fixture(scope="module")
def drawn_bands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[oracle.Device, Path]]:
    folder = tmp_path_factory.mktemp("bands")
    (folder / "bands.pickle").write_bytes(pickle.dumps(bands()))
    snapreport.write_report([snapreport.load(folder / "bands.pickle")], folder / "bands.html")
    yield oracle.replay(bands())[0], folder / "bands.html"


def far(a: Color, b: Color) -> int:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def middle(device: oracle.Device, allocation: int, event: int) -> float:
    return device.offset(allocation, event) + device.allocations[allocation].size / 2


def color_at(opened: Any, picture: Any, event: float, byte: float) -> Color:
    """The colour that most of a few pixels around a place have: marks and lines are one pixel wide."""
    left, top = opened.pixel_of(event, byte)
    seen = [picture.getpixel((round(left) + dx, round(top) + dy)) for dx in (-4, -2, 0, 2, 4) for dy in (-2, 0, 2)]
    return max(set(seen), key=seen.count)


def large(device: oracle.Device) -> list[int]:
    return [i for i, a in enumerate(device.allocations) if a.size >= GIB]


def assert_bands(opened: Any, device: oracle.Device) -> dict[int, Color]:
    """Every band has one colour wherever it lies, unlike its neighbours' and the background's."""
    opened.page.mouse.move(5, 5)
    opened.settle()
    picture = opened.picture()
    background = color_at(opened, picture, 50, 8 * GIB)
    assert far(background, color_at(opened, picture, 950, 10 * GIB)) <= 3
    colors: dict[int, Color] = {}
    for event in (50, 150, 250, 350, 500, 620, 700, 850, 950):
        stack = [i for i in device.live_at(event) if device.allocations[i].size >= GIB]
        here = [color_at(opened, picture, event, middle(device, i, event)) for i in stack]
        for i, color in zip(stack, here, strict=True):
            assert far(color, colors.setdefault(i, color)) <= 6, f"allocation {i} at {event} is {color}, elsewhere {colors[i]}"
            assert far(color, background) > 24, f"allocation {i} cannot be told from the background"
        for below, above in zip(here, here[1:], strict=False):
            assert far(below, above) > 12, f"neighbours at {event} look alike"
        top = device.allocated[event + 1]
        assert far(color_at(opened, picture, event, top - GIB / 4), here[-1]) <= 6, f"the stack at {event} ends too low"
        assert far(color_at(opened, picture, event, top + GIB / 4), background) <= 3, f"the stack at {event} ends too high"
    return colors


def test_bands_are_where_they_are(drawn_bands: tuple[oracle.Device, Path], open_report: Callable[..., Any]) -> None:
    device, report = drawn_bands
    opened = open_report(report)
    assert len(assert_bands(opened, device)) == len(BANDS)


@pytest.mark.parametrize("ratio", [1, 2])
def test_zoomed_in(drawn_bands: tuple[oracle.Device, Path], open_report: Callable[..., Any], ratio: int) -> None:
    """Edges to the event and to the byte: bands 2 and 3 begin where they begin, also on a screen of twice the pixels."""
    device, report = drawn_bands
    opened = open_report(report, device_scale_factor=ratio)
    opened.set_view(x=[195, 205], y=[0, 10 * GIB])
    opened.settle()
    opened.page.mouse.move(5, 5)
    picture = opened.picture().resize((1300, 900))
    background = color_at(opened, picture, 197, 9.5 * GIB)
    third = large(device)[2]
    assert far(color_at(opened, picture, 201, middle(device, third, 201)), background) > 24
    for event, wanted in ((198.5, False), (199.6, False), (200.5, True), (203, True)):
        # Position s holds events [s - 1, s): after event 200 the stack is taller, from x = 200 on.
        seen = far(color_at(opened, picture, event, middle(device, third, 201)), background) > 24
        assert seen == wanted, f"at {event} the band is {'there' if seen else 'not there'}"


def test_small_allocations_deep_inside(drawn_bands: tuple[oracle.Device, Path], open_report: Callable[..., Any]) -> None:
    """512 bytes on top of 4 GiB, zoomed to the byte: float32 alone would lose them."""
    device, report = drawn_bands
    opened = open_report(report)
    base = 4 * GIB
    event = next(i for i in range(40, 60) if device.allocated[i + 1] == base + 512)
    opened.set_view(x=[event - 4, event + 6], y=[base - 512, base + 1024])
    opened.page.mouse.move(5, 5)
    opened.settle()
    picture = opened.picture()
    background = color_at(opened, picture, event + 0.5, base + 900)
    below = color_at(opened, picture, event + 0.5, base - 250)
    small = color_at(opened, picture, event + 0.5, base + 256)
    gone = color_at(opened, picture, event + 1.5, base + 256)
    assert far(small, background) > 24 and far(small, below) > 12 and far(gone, background) <= 3


def test_both_themes(drawn_bands: tuple[oracle.Device, Path], open_report: Callable[..., Any]) -> None:
    device, report = drawn_bands
    backgrounds = []
    for scheme in ("light", "dark"):
        opened = open_report(report, color_scheme=scheme)
        assert_bands(opened, device)
        backgrounds.append(sum(color_at(opened, opened.picture(), 50, 8 * GIB)))
    assert backgrounds[0] > 3 * 170 and backgrounds[1] < 3 * 85


def test_theme_button(drawn_bands: tuple[oracle.Device, Path], open_report: Callable[..., Any]) -> None:
    device, report = drawn_bands
    opened = open_report(report, color_scheme="light")
    button = opened.page.get_by_role("button", name="theme")
    seen = set()
    for _ in range(3):
        button.click()
        opened.settle()
        seen.add(sum(color_at(opened, opened.picture(), 50, 8 * GIB)) > 3 * 128)
    assert seen == {True, False}
    assert_bands(opened, device)


def test_time_axis(drawn_bands: tuple[oracle.Device, Path], open_report: Callable[..., Any]) -> None:
    """Events are 10 µs apart here, so that the time axis shows the same picture, stretched."""
    device, report = drawn_bands
    opened = open_report(report)
    view = opened.set_view(axis="time", x=[10, 990], y=[0, 12 * GIB])
    assert view["axis"] == "time"
    opened.page.mouse.move(5, 5)
    opened.settle()
    picture = opened.picture()
    background = color_at(opened, picture, 500, 11 * GIB)
    for event in (50, 150, 250, 500, 700, 950):
        top = device.allocated[event + 1]
        assert far(color_at(opened, picture, event + 0.5, top - GIB / 4), background) > 24
        assert far(color_at(opened, picture, event + 0.5, top + GIB / 4), background) <= 3


def test_lost_context(drawn_bands: tuple[oracle.Device, Path], open_report: Callable[..., Any]) -> None:
    """The graphics card may take everything away at any time: the picture comes back, and later views are drawn."""
    device, report = drawn_bands
    opened = open_report(report)
    before = assert_bands(opened, device)
    opened.js("snapreport.testContextLoss()")
    opened.page.wait_for_timeout(1500)
    opened.settle()
    assert assert_bands(opened, device) == before
    opened.set_view(x=[100, 700])
    opened.set_view(x=[-1, 999])
    assert assert_bands(opened, device) == before


def test_exactness_is_said(drawn_bands: tuple[oracle.Device, Path], open_report: Callable[..., Any]) -> None:
    opened = open_report(drawn_bands[1])
    drawn = opened.js("snapreport.drawn()")
    assert drawn["exact"] is True and drawn["triangles"] > 2 * len(BANDS) and drawn["level"] == 0
