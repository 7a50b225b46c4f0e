"""Keyboard and mouse do what the page says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest

WINDOW = [5000, 8000]


@pytest.fixture
def opened(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> Any:
    return borrow_report(report_of(corpus.path_of("training")))


@pytest.fixture
def device() -> Any:
    return corpus.replayed(corpus.path_of("training"))[0]


def span(view: dict[str, Any], axis: str = "x") -> float:
    return view[axis][1] - view[axis][0]


def centre(opened: Any, right: float = 0.5, up: float = 0.5) -> tuple[float, float]:
    plot = opened.plot()
    return plot["left"] + right * plot["width"], plot["top"] + (1 - up) * plot["height"]


def at_rest(opened: Any) -> dict[str, Any]:
    opened.settle()
    return opened.view()


def near(a: float, b: float, scale: float) -> bool:
    return abs(a - b) <= 0.004 * scale


@pytest.mark.parametrize("right", [0.1, 0.5, 0.83])
@pytest.mark.parametrize("turn", [-240, 240])
def test_wheel_zooms_about_the_cursor(opened: Any, right: float, turn: int) -> None:
    before = opened.set_view(x=WINDOW)
    left, top = centre(opened, right)
    event, _ = opened.place_of(left, top)
    opened.page.mouse.move(left, top)
    opened.page.mouse.wheel(0, turn)
    after = at_rest(opened)
    assert (span(after) < 0.8 * span(before)) if turn < 0 else (span(after) > 1.2 * span(before))
    assert after["y"] == before["y"]
    assert near(opened.place_of(left, top)[0], event, span(after)), "the event under the cursor moved away"


def test_shift_wheel_zooms_bytes(opened: Any) -> None:
    before = opened.set_view(x=WINDOW)
    left, top = centre(opened, 0.4, 0.3)
    _, byte = opened.place_of(left, top)
    opened.page.mouse.move(left, top)
    opened.page.keyboard.down("Shift")
    opened.page.mouse.wheel(0, -300)
    opened.page.keyboard.up("Shift")
    after = at_rest(opened)
    assert after["x"] == before["x"] and span(after, "y") < 0.8 * span(before, "y")
    assert near(opened.place_of(left, top)[1], byte, span(after, "y")), "the byte under the cursor moved away"


def drag(opened: Any, start: tuple[float, float], end: tuple[float, float], key: str | None = None) -> None:
    if key:
        opened.page.keyboard.down(key)
    opened.page.mouse.move(*start)
    opened.page.mouse.down()
    opened.page.mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    opened.page.mouse.move(*end)
    opened.page.mouse.up()
    if key:
        opened.page.keyboard.up(key)


def test_drag_pans(opened: Any) -> None:
    """What was under the pointer when it was pressed is under it when it is released."""
    before = opened.set_view(x=WINDOW, y=[1 << 28, 1 << 30])
    start, end = centre(opened, 0.6, 0.4), centre(opened, 0.35, 0.6)
    held = opened.place_of(*start)
    drag(opened, start, end)
    after = at_rest(opened)
    assert near(span(after), span(before), 1) and near(span(after, "y"), span(before, "y"), 1 << 20)
    now = opened.place_of(*end)
    assert near(now[0], held[0], span(after)) and near(now[1], held[1], span(after, "y"))
    assert after["select"] is None, "a drag is no click"


@pytest.mark.parametrize("way", ["Control", "Alt", "button", "b"])
def test_box_zoom(opened: Any, way: str) -> None:
    opened.set_view(x=WINDOW)
    if way == "button":
        opened.page.get_by_role("button", name="Box zoom").click()
    elif way == "b":
        opened.page.keyboard.press("b")
    start, end = centre(opened, 0.25, 0.7), centre(opened, 0.65, 0.2)
    (x0, y1), (x1, y0) = opened.place_of(*start), opened.place_of(*end)
    drag(opened, start, end, way if way in ("Control", "Alt") else None)
    after = at_rest(opened)
    assert near(after["x"][0], x0, x1 - x0) and near(after["x"][1], x1, x1 - x0)
    # The pointer and the edges of the box are at whole pixels; the box is half as high as the plot.
    pixels = 2 * (y1 - y0) / (0.5 * opened.plot()["height"])
    assert abs(after["y"][0] - y0) <= pixels and abs(after["y"][1] - y1) <= pixels


@pytest.mark.parametrize(
    ("keys", "axis", "moved", "zoomed"),
    [
        (["a", "ArrowLeft"], "x", -1, 0),
        (["d", "ArrowRight"], "x", 1, 0),
        (["w", "+"], "x", 0, -1),
        (["s", "-"], "x", 0, 1),
        (["ArrowUp", "Shift+W"], "y", 1, 0),
        (["ArrowDown", "Shift+S"], "y", -1, 0),
        (["Shift+ArrowUp"], "y", 0, -1),
        (["Shift+ArrowDown"], "y", 0, 1),
    ],
    ids=["left", "right", "in", "out", "up", "down", "taller", "lower"],
)
def test_keys_move(opened: Any, keys: list[str], axis: str, moved: int, zoomed: int) -> None:
    for key in keys:
        before = opened.set_view(x=WINDOW, y=[1 << 28, 1 << 30])
        opened.page.keyboard.press(key)
        after = at_rest(opened)
        other = "y" if axis == "x" else "x"
        assert after[other] == before[other], key
        middle = (sum(after[axis]) - sum(before[axis])) / 2
        if zoomed:
            assert (span(after, axis) - span(before, axis)) * zoomed > 0.1 * span(before, axis), key
            assert near(middle, 0, span(before, axis)), key
        else:
            assert middle * moved > 0.05 * span(before, axis) and near(
                span(after, axis), span(before, axis), span(before, axis)
            ), key


def is_everything(opened: Any, device: Any, view: dict[str, Any]) -> bool:
    return (
        view["x"][0] <= -1
        and view["x"][1] >= len(device.events) - 1
        and view["y"][0] == 0
        and view["y"][1] >= device.peak_bytes
    )


@pytest.mark.parametrize("way", ["double click", "0", "Home", "button"])
def test_fit(opened: Any, device: Any, way: str) -> None:
    assert is_everything(opened, device, opened.view()), "a report opens on everything"
    assert not is_everything(opened, device, opened.set_view(x=WINDOW, y=[0, 1 << 20]))
    if way == "double click":
        opened.page.mouse.dblclick(*centre(opened))
    elif way == "button":
        opened.page.get_by_role("button", name="Fit").click()
    else:
        opened.page.keyboard.press(way)
    assert is_everything(opened, device, at_rest(opened))


def test_peak_is_one_key_away(opened: Any, device: Any) -> None:
    opened.page.keyboard.press("p")
    view = at_rest(opened)
    assert view["x"][0] <= device.peak_event <= view["x"][1] and span(view) < len(device.events) / 4


def test_the_view_stays_inside(opened: Any, device: Any) -> None:
    """However far one pans or zooms, part of the trace stays in the window, and the window's size is valid."""
    for keys in (
        ["d"] * 40,
        ["a"] * 80,
        ["s"] * 40,
        ["w"] * 90,
        ["ArrowUp"] * 60,
        ["ArrowDown"] * 60,
        ["Shift+ArrowUp"] * 99,
    ):
        for key in keys:
            opened.page.keyboard.press(key)
        view = at_rest(opened)
        assert -1.001 <= view["x"][0] < view["x"][1] <= len(device.events) * 2.2 and 0 <= view["y"][0] < view["y"][1], (
            keys[0],
            view,
        )
        assert span(view) >= 0.5 and span(view, "y") >= 1


def test_minimap_brush(opened: Any, device: Any) -> None:
    n = len(device.events)
    box = opened.page.locator("canvas.minimap").bounding_box()
    whole = opened.view()["x"]

    def at(event: float) -> tuple[float, float]:
        return box["x"] + (event - whole[0]) / (whole[1] - whole[0]) * box["width"], box["y"] + box["height"] / 2

    drag(opened, at(n * 0.3), at(n * 0.5))
    drawn = at_rest(opened)
    assert near(drawn["x"][0], n * 0.3, n) and near(drawn["x"][1], n * 0.5, n)
    drag(opened, at(n * 0.4), at(n * 0.6))
    moved = at_rest(opened)
    assert near(moved["x"][0], n * 0.5, n) and near(moved["x"][1], n * 0.7, n)
    drag(opened, at(n * 0.7), at(n * 0.9))
    pulled = at_rest(opened)
    assert near(pulled["x"][0], n * 0.5, n) and near(pulled["x"][1], n * 0.9, n)


def test_hover_tells_and_click_pins(opened: Any, device: Any) -> None:
    """A large allocation at the peak: the tooltip has its address, a click pins it, Escape releases it."""
    live = device.live_at(device.peak_event)
    chosen = max(live, key=lambda i: device.allocations[i].size)
    a = device.allocations[chosen]
    base = device.offset(chosen, device.peak_event)
    opened.set_view(x=[device.peak_event - 3, device.peak_event + 3], y=[max(0, base - a.size), base + 2 * a.size])
    place = opened.pixel_of(device.peak_event + 0.5, base + a.size / 2)
    opened.page.mouse.move(place[0] - 3, place[1])
    opened.page.mouse.move(*place)
    opened.settle()
    tip = opened.page.get_by_role("tooltip")
    assert tip.is_visible() and f"{a.addr:x}" in tip.inner_text().lower()
    opened.page.mouse.click(*place)
    opened.settle()
    assert opened.view()["select"] == chosen
    details = opened.page.get_by_label("Selected allocation")
    text = details.inner_text().lower()
    assert f"{a.addr:x}" in text and f"{a.size:,}" in text
    assert all(name.lower() in text for _, _, name in a.stack[:1] + a.stack[-1:])
    opened.page.keyboard.press("Escape")
    opened.settle()
    assert opened.view()["select"] is None and not details.is_visible()


def test_a_move_of_the_pointer_draws_what_follows_it_alone(opened: Any, device: Any) -> None:
    """A large allocation is outlined, with a line through its column; the picture is not drawn again."""
    peak = device.peak_event
    chosen = max(device.live_at(peak), key=lambda i: device.allocations[i].size)
    size, base = device.allocations[chosen].size, device.offset(chosen, peak)
    opened.set_view(x=[peak - 3, peak + 3], y=[max(0, base - size), base + 2 * size], select=None)
    place = opened.pixel_of(peak + 0.5, base + size / 2)
    opened.page.mouse.move(5, 5)
    opened.settle()
    opened.js("""(() => {
      const kinds = [[WebGL2RenderingContext, 'drawElements'], [CanvasRenderingContext2D, 'clearRect']]
      const before = kinds.map(([{ prototype }, name]) => prototype[name])
      window.drawn = []
      kinds.forEach(([{ prototype }, name], i) => { prototype[name] = function (...given) {
        drawn.push(this.canvas.className); return before[i].apply(this, given) } })
      window.drawAsBefore = () => kinds.forEach(([{ prototype }, name], i) => { prototype[name] = before[i] })
    })()""")
    for _ in range(20):  # tiles that arrive meanwhile are drawn, too
        opened.page.mouse.move(5, 5)
        opened.until("document.querySelector('.plot .tooltip').hidden")
        opened.js("drawn.length = 0")
        opened.page.mouse.move(*place)
        opened.until("!document.querySelector('.plot .tooltip').hidden")
        drawn = opened.js("drawn")
        if set(drawn) <= {"hovered"}:
            break
    opened.js("drawAsBefore()")
    assert set(drawn) <= {"hovered"}
    outline = opened.page.locator(".plot canvas.hovered").bounding_box()
    assert outline["y"] <= opened.pixel_of(peak, base + size)[1] + 2
    assert outline["y"] + outline["height"] >= opened.pixel_of(peak, base)[1] - 2
    line = opened.page.locator(".plot .column-line:not([hidden])").first.bounding_box()
    assert line["height"] > 100 and line["x"] <= place[0]
    opened.page.mouse.move(5, 5)
    opened.until("document.querySelector('.plot canvas.hovered').hidden")


def test_noise_frames_behind_a_switch(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    path = corpus.path_of("compiled")
    opened = borrow_report(report_of(path))
    opened.set_view(select=100)
    details = opened.page.get_by_label("Selected allocation")
    hidden = details.inner_text()
    opened.page.keyboard.press("n")
    opened.settle()
    shown = details.inner_text()
    names = [name for _, _, name in corpus.replayed(path)[0].allocations[100].stack]
    missing = [name for name in names if name not in hidden]
    assert missing and not [name for name in names if name not in shown], "one key shows every frame"
