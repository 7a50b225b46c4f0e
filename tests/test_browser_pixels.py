"""The drawing matches the data: colours at known places, in both themes, after zooming, after a lost context."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import corpus
import oracle
import pytest
from pages import Color

import snapreport

GIB = 1 << 30
ODD = 200  # every band is larger by this: no edge lies on a number that float32 can represent
# (size in GiB, born at event, freed at event or -1): the order of the stack is simple, see the docstring below.
BANDS = [(4, 0, -1), (2, 100, 600), (3, 200, -1), (1, 300, 400), (2, 650, 900)]
EVENTS = 1000
# What the page knows of the graphics card. With one, WebGL paints tiles, which otherwise the processor does.
ON_CARD = """const read = WebGL2RenderingContext.prototype.getParameter
    WebGL2RenderingContext.prototype.getParameter = function (name) {
        return name === 0x9246 /* UNMASKED_RENDERER_WEBGL */ ? 'a graphics card' : read.call(this, name)
    }"""


def bands() -> dict[str, Any]:
    """Five bands of several GiB over a thousand events; the others allocate and free 512 bytes each."""
    events: list[dict[str, Any]] = []
    small = False
    for i in range(EVENTS):
        frames = [{"filename": "train.py", "line": i, "name": f"f{i}"}]
        born = next((n for n, band in enumerate(BANDS) if band[1] == i), None)
        freed = next((n for n, band in enumerate(BANDS) if band[2] == i), None)
        if born is not None:
            events.append(
                {
                    "action": "alloc",
                    "addr": GIB * 100 * (born + 1),
                    "size": BANDS[born][0] * GIB + ODD,
                    "stream": 0,
                    "time_us": i * 10,
                    "frames": frames,
                }
            )
        elif freed is not None:
            events.append(
                {
                    "action": "free_completed",
                    "addr": GIB * 100 * (freed + 1),
                    "size": BANDS[freed][0] * GIB + ODD,
                    "stream": 0,
                    "time_us": i * 10,
                }
            )
        else:
            small = not small
            frames = [{"filename": "small.py", "line": 1, "name": "small"}]
            events.append(
                {
                    "action": "alloc" if small else "free_completed",
                    "addr": 512,
                    "size": 512,
                    "stream": 0,
                    "time_us": i * 10,
                    "frames": frames,
                }
            )
    return {"segments": [], "device_traces": [events]}


@pytest.fixture(scope="module")
def drawn_bands(tmp_path_factory: pytest.TempPathFactory) -> tuple[oracle.Device, Path]:
    folder = tmp_path_factory.mktemp("bands")
    (folder / "bands.pickle").write_bytes(pickle.dumps(bands()))
    snapreport.write_report([snapreport.load(folder / "bands.pickle")], folder / "bands.html")
    return oracle.replay(bands())[0], folder / "bands.html"


def far(a: Color, b: Color) -> int:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def middle(device: oracle.Device, allocation: int, event: int) -> float:
    return device.offset(allocation, event) + device.allocations[allocation].size / 2


def large(device: oracle.Device) -> list[int]:
    return [i for i, a in enumerate(device.allocations) if a.size >= GIB]


def assert_bands(opened: Any, device: oracle.Device) -> dict[int, Color]:
    """Every band has one colour everywhere, different from its neighbours' and the background's."""
    opened.page.mouse.move(5, 5)
    opened.settle()
    still = opened.still()
    background = still.color(50, 8 * GIB)
    assert far(background, still.color(950, 10 * GIB)) <= 3
    colors: dict[int, Color] = {}
    for event in (50, 150, 250, 350, 500, 620, 700, 850, 950):
        stack = [i for i in device.live_at(event) if device.allocations[i].size >= GIB]
        here = [still.color(event, middle(device, i, event)) for i in stack]
        for i, color in zip(stack, here, strict=True):
            assert far(color, colors.setdefault(i, color)) <= 6, (
                f"allocation {i} at {event} is {color}, elsewhere {colors[i]}"
            )
            assert far(color, background) > 24, f"allocation {i} cannot be told from the background"
        for below, above in pairwise(here):
            assert far(below, above) > 12, f"neighbours at {event} look alike"
        top = device.allocated[event + 1]
        assert far(still.color(event, top - GIB / 4), here[-1]) <= 6, f"the stack at {event} ends too low"
        assert far(still.color(event, top + GIB / 4), background) <= 3, f"the stack at {event} ends too high"
    return colors


def test_bands_are_where_they_are(drawn_bands: tuple[oracle.Device, Path], borrow_report: Callable[..., Any]) -> None:
    device, report = drawn_bands
    opened = borrow_report(report)
    assert len(assert_bands(opened, device)) == len(BANDS)


@pytest.mark.parametrize("ratio", [1, 2])
def test_zoomed_in(drawn_bands: tuple[oracle.Device, Path], borrow_report: Callable[..., Any], ratio: int) -> None:
    """Edges to the event: a band begins and ends where it does, also on a screen with twice the pixels."""
    device, report = drawn_bands
    opened = borrow_report(report, device_scale_factor=ratio)
    opened.set_view(x=[195, 205], y=[0, 10 * GIB])
    opened.settle()
    opened.page.mouse.move(5, 5)
    still = opened.still()
    background = still.color(197, 9.5 * GIB)
    third = large(device)[2]
    assert far(still.color(201, middle(device, third, 201)), background) > 24
    for event, wanted in ((198.5, False), (199.6, False), (200.5, True), (203, True)):
        # Position s holds events [s - 1, s): after event 200 the stack is taller, from x = 200 on.
        seen = far(still.color(event, middle(device, third, 201)), background) > 24
        assert seen == wanted, f"at {event} the band is {'there' if seen else 'not there'}"
    opened.set_view(x=[595, 605], y=[0, 10 * GIB])
    opened.settle()
    still = opened.still()
    for event, wanted in ((597, True), (599.7, True), (600.3, False), (602, False)):
        # 9 GiB until event 600 frees two of them.
        seen = far(still.color(event, 8 * GIB), background) > 24
        assert seen == wanted, f"at {event} the stack is {'higher' if seen else 'lower'} than it should be"


def test_small_allocations_deep_inside(
    drawn_bands: tuple[oracle.Device, Path], borrow_report: Callable[..., Any]
) -> None:
    """512 bytes on top of 4 GiB, zoomed to the byte: float32 alone would lose them."""
    device, report = drawn_bands
    opened = borrow_report(report)
    base = 4 * GIB + ODD
    event = next(i for i in range(40, 60) if device.allocated[i + 1] == base + 512)
    opened.set_view(x=[event - 4, event + 6], y=[base - 512, base + 1024])
    opened.page.mouse.move(5, 5)
    opened.settle()
    still = opened.still()
    background = still.color(event + 0.5, base + 900)
    below = still.color(event + 0.5, base - 250)
    small = still.color(event + 0.5, base + 256)
    assert (
        far(small, still.color(event + 0.5, base + 40)) <= 6 and far(small, still.color(event + 0.5, base + 470)) <= 6
    )
    gone = still.color(event + 1.5, base + 256)
    assert far(small, background) > 24 and far(small, below) > 12 and far(gone, background) <= 3


def test_both_themes(drawn_bands: tuple[oracle.Device, Path], borrow_report: Callable[..., Any]) -> None:
    device, report = drawn_bands
    backgrounds = []
    for scheme in ("light", "dark"):
        opened = borrow_report(report, color_scheme=scheme)
        assert_bands(opened, device)
        backgrounds.append(sum(opened.still().color(50, 8 * GIB)))
    assert backgrounds[0] > 3 * 170 and backgrounds[1] < 3 * 85


def test_theme_button(drawn_bands: tuple[oracle.Device, Path], open_report: Callable[..., Any]) -> None:
    device, report = drawn_bands
    opened = open_report(report, color_scheme="light")
    button = opened.page.get_by_role("button", name="theme")
    seen = set()
    for _ in range(3):
        button.click()
        opened.settle()
        seen.add(sum(opened.still().color(50, 8 * GIB)) > 3 * 128)
    assert seen == {True, False}
    assert_bands(opened, device)


def test_time_axis(drawn_bands: tuple[oracle.Device, Path], borrow_report: Callable[..., Any]) -> None:
    """Events are 10 µs apart here, so that the time axis shows the same picture, stretched."""
    device, report = drawn_bands
    opened = borrow_report(report)
    view = opened.set_view(axis="time", x=[10, 990], y=[0, 12 * GIB])
    assert view["axis"] == "time"
    opened.page.mouse.move(5, 5)
    opened.settle()
    still = opened.still()
    background = still.color(500, 11 * GIB)
    for event in (50, 150, 250, 500, 700, 950):
        top = device.allocated[event + 1]
        assert far(still.color(event + 0.5, top - GIB / 4), background) > 24
        assert far(still.color(event + 0.5, top + GIB / 4), background) <= 3


@pytest.mark.parametrize("before", ["", ON_CARD], ids=["processor", "card"])
def test_lost_context(before: str, drawn_bands: tuple[oracle.Device, Path], open_report: Callable[..., Any]) -> None:
    """The graphics card may drop everything at any time: the picture comes back, and later views are drawn."""
    device, report = drawn_bands
    opened = open_report(report, before=before)
    colours = assert_bands(opened, device)
    opened.lose_context()
    assert assert_bands(opened, device) == colours
    opened.set_view(x=[100, 700])
    opened.set_view(x=[-1, 999])
    assert assert_bands(opened, device) == colours


@pytest.mark.parametrize("window", [None, (0.4, 0.45)], ids=["all", "near"])
@pytest.mark.parametrize("name", ["large", "training", "overlap", "churn", "train_22k_events.pickle"])
def test_no_holes(
    name: str, window: tuple[float, float] | None, report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    """Everywhere below the curve something is drawn, everywhere above it nothing, at both ends of the pyramid."""
    if name not in corpus.names():
        pytest.skip(corpus.NO_REAL)
    path = corpus.path_of(name)
    device = corpus.replayed(path)[0]
    opened = borrow_report(report_of(path))
    n = len(device.events)
    if window:
        opened.set_view(x=[int(n * window[0]), int(n * window[1])])
    opened.page.mouse.move(5, 5)
    opened.settle()
    still = opened.still()
    view = still.view
    column = 2 * (view["x"][1] - view["x"][0]) / still.plot["width"] + 1
    background = still.color(view["x"][0] + column, view["y"][1] * 0.995)
    holes, stains, places = [], [], 0
    for i in range(1, 80):
        event = view["x"][0] + (min(view["x"][1], n) - view["x"][0]) * i / 80
        near = device.allocated[max(0, int(event - column)) : int(event + column) + 2]
        for share in (0.03, 0.2, 0.4, 0.6, 0.8, 0.96):
            if still.pixel_of(event, min(near) * share)[1] > still.plot["top"] + still.plot["height"] - 4:
                continue  # on the axis
            places += 1
            if far(still.color(event, min(near) * share), background) <= 8:
                holes.append((event, share))
        if far(still.color(event, max(near) + view["y"][1] * 0.012), background) > 24:
            stains.append(event)
    assert len(holes) < 0.02 * places, f"{len(holes)} of {places} places are empty: {holes[:5]}"
    assert len(stains) < 8, f"something is drawn above the curve at {stains[:5]}"  # labels and marks may be


def test_exactness_is_said(drawn_bands: tuple[oracle.Device, Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(drawn_bands[1])
    drawn = opened.js("snapreport.drawn()")
    assert drawn["exact"] is True and drawn["triangles"] > 2 * len(BANDS) and drawn["level"] == 0
