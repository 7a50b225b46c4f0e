"""Rows of spans above the plot: the right spans at the right events, by pointer and by keys; the ruler."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
from planted import path_of
from test_annotations import spans_of

import snapreport

ROW = 15


@pytest.fixture
def opened(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> Any:
    return borrow_report(report_of(corpus.path_of("training")))


def tracks(opened: Any) -> dict[str, Any]:
    opened.settle()
    return opened.js("snapreport.debug.view().tracks")


def row(opened: Any, kind: str) -> tuple[int, dict[str, Any]]:
    shown = tracks(opened)["shown"]
    return next((i, track) for i, track in enumerate(shown) if track["kind"] == kind)


def place(opened: Any, number: int, piece: dict[str, float]) -> tuple[float, float]:
    """CSS pixels of the middle of a piece."""
    box, plot = opened.page.locator(".tracks canvas").bounding_box(), opened.plot()
    return plot["left"] + (piece["x0"] + piece["x1"]) / 2, box["y"] + number * ROW + ROW / 2


def test_rows_hold_what_python_says(opened: Any) -> None:
    path = corpus.path_of("training")
    shown = tracks(opened)["shown"]
    steps = snapreport.load(path).steps(0).select("name", "first_event", "last_event").rows()
    assert shown[0]["kind"] == "step"
    assert [(s["name"], s["first"], s["last"]) for s in shown[0]["spans"]] == steps
    spans = [s for t in shown if t["kind"] == "annotation" for s in t["spans"]]
    rest = [(s["name"], s["first"], s["last"], not s["ragged"] & 1, not s["ragged"] & 2) for s in spans]
    names = {name for name, *_ in steps}
    assert sorted(rest) == [span for span in spans_of(corpus.raw(path), 0) if span[0] not in names]


def test_runs_of_metadata(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    """Consecutive allocations with the same metadata, by a loop over the trace."""
    path = path_of("oom", steps=2, layers=2, metadata=True)
    opened = borrow_report(report_of(path))
    expected: list[list[Any]] = []
    before = None
    for i, event in enumerate(corpus.raw(path)["device_traces"][0]):
        if event["action"] != "alloc":
            continue
        text = event.get("user_metadata") or None
        if text is not None and text == before:
            expected[-1][2] = i
        elif text is not None:
            expected.append([text, i, i])
        before = text
    opened.set_view(options={"timeline.tracks": "all"})
    _, track = row(opened, "metadata")
    assert expected and [[s["name"], s["first"], s["last"]] for s in track["spans"]] == expected


def test_pieces_lie_over_their_events(opened: Any) -> None:
    opened.set_view(x=[2000, 9000])
    plot, still = opened.plot(), opened.still()
    number, track = row(opened, "step")
    toward = plot["width"] / 7000
    for piece in track["pieces"]:
        assert piece["from"] == piece["to"]
        span = track["spans"][piece["from"]]
        assert math.isclose(piece["x0"], max(0, (span["first"] - 2000) * toward), abs_tol=1.6)
        assert math.isclose(piece["x1"], min(plot["width"], (span["last"] + 1 - 2000) * toward), abs_tol=1.6)
    assert {piece["from"] for piece in track["pieces"]} == {
        i for i, s in enumerate(track["spans"]) if s["last"] + 1 > 2000 and s["first"] < 9000
    }
    # And it is drawn there: in another colour than the panel between the rows.
    x, y = place(opened, number, {"x0": track["pieces"][1]["x1"] - 12, "x1": track["pieces"][1]["x1"] - 10})
    assert still.image.getpixel((round(x), round(y))) != still.image.getpixel((round(plot["left"]) - 74, round(y)))


def test_hover_tells_and_click_zooms(opened: Any) -> None:
    device = corpus.replayed(corpus.path_of("training"))[0]
    number, track = row(opened, "step")
    piece = track["pieces"][1]
    span = track["spans"][piece["from"]]
    opened.page.mouse.move(*place(opened, number, piece))
    tip = opened.page.locator(".timeline > .tooltip")
    tip.wait_for()
    text = tip.inner_text()
    peak = max(range(span["first"], span["last"] + 2), key=lambda s: (device.allocated[s], -s))
    assert span["name"] in text
    assert f"events {span['first']:,} – {span['last']:,}, {span['last'] - span['first'] + 1:,} events" in text
    assert f"at event {peak - 1:,}" in text
    assert re.search(r"peak [\d.]+ [KMG]iB allocated", text)
    opened.page.mouse.click(*place(opened, number, piece))
    opened.settle()
    view = opened.view()
    length = span["last"] + 1 - span["first"]
    assert view["x"][0] <= span["first"] and view["x"][1] >= span["last"] + 1
    assert view["x"][1] - view["x"][0] < 1.2 * length
    assert view["options"]["timeline.span"] == f"0.{number}.{piece['from']}"


def test_keys_step_through_spans(opened: Any) -> None:
    _, track = row(opened, "step")
    opened.page.locator(".plot").focus()
    for expected in track["spans"][:2]:
        opened.page.keyboard.press(".")
        opened.settle()
        view = opened.view()
        assert view["x"][0] <= expected["first"] < view["x"][1] and view["x"][1] > expected["last"]
    opened.page.keyboard.press(",")
    opened.settle()
    assert opened.view()["options"]["timeline.span"] == "0.0.0"
    assert track["spans"][0]["name"] in opened.page.locator(".tracks [aria-live]").inner_text()
    opened.page.locator(".tracks canvas").focus()
    opened.page.keyboard.press("ArrowDown")
    opened.settle()
    assert opened.view()["options"]["timeline.span"].startswith("0.1.")


def test_rows_fold(opened: Any) -> None:
    button = opened.page.locator(".track-button")
    rows = tracks(opened)["rows"]
    tall = opened.plot()["height"]
    while opened.view()["options"].get("timeline.tracks") != "none":
        button.click()
        opened.settle()
    assert not tracks(opened)["shown"] and opened.plot()["height"] > tall
    button.click()
    opened.settle()
    assert len(tracks(opened)["shown"]) == min(6, rows) and opened.plot()["height"] == tall


def test_no_rows_without_spans(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    opened = borrow_report(report_of(corpus.path_of("overlap")))
    assert tracks(opened)["rows"] == 0 and not opened.page.locator(".tracks").is_visible()
    opened.page.keyboard.press(".")


def test_hundreds_of_annotations(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    if "annotations_compile.pickle" not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    path = corpus.path_of("annotations_compile.pickle")
    opened = open_report(report_of(path), "#timeline.tracks=all", viewport={"width": 360, "height": 640})
    box = opened.page.locator(".tracks").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 360 and opened.plot()["height"] > 60
    opened.page.set_viewport_size({"width": 1300, "height": 1000})
    shown = tracks(opened)["shown"]
    assert len(shown) == tracks(opened)["rows"] > 6
    assert sorted((s["name"], s["first"], s["last"], True, True) for t in shown for s in t["spans"]) == spans_of(
        corpus.raw(path), 0
    )
    for track in shown:
        assert [i for p in track["pieces"] for i in range(p["from"], p["to"] + 1)] == list(range(len(track["spans"])))
    for axis in ("time", "event"):
        opened.set_view(axis=axis, x=[800, 900])
        assert any(track["pieces"] for track in tracks(opened)["shown"])


def test_the_ruler_measures_and_survives_a_reload(
    opened: Any, report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    path = corpus.path_of("training")
    device = corpus.replayed(path)[0]
    opened.page.keyboard.press("r")
    mouse = opened.page.mouse
    start, end = opened.pixel_of(2000, 2 << 30), opened.pixel_of(6000, 1 << 30)
    mouse.move(*start)
    mouse.down()
    mouse.move(*end, steps=4)
    mouse.up()
    opened.settle()
    events, sizes = opened.view()["options"]["timeline.ruler"].split(",")
    e0, e1 = map(float, events.split(".."))
    b0, b1 = map(int, sizes.split(".."))
    assert abs(e0 - 2000) < 30 and abs(e1 - 6000) < 30
    assert abs(b0 - (2 << 30)) < 50 << 20 and abs(b1 - (1 << 30)) < 50 << 20
    ruler = opened.page.locator(".ruler")
    text = ruler.inner_text()
    between = device.allocated[math.floor(e1) + 1] - device.allocated[math.floor(e0) + 1]
    assert f"{math.floor(e1) - math.floor(e0):,} events" in text
    assert ("allocated +" in text) == (between > 0)
    exact = re.search(r"allocated \+?(-?[\d.]+) ([KMG])iB", text)
    unit = {"K": 1024, "M": 1024**2, "G": 1024**3}[exact[2]]
    assert math.isclose(float(exact[1]) * unit, between, rel_tol=0.01)
    opened.until("location.hash.includes('timeline.ruler')")
    again = open_report(report_of(path), opened.js("location.hash"))
    assert again.page.locator(".ruler").inner_text() == text
    again.page.keyboard.press("Escape")
    again.settle()
    assert not again.page.locator(".ruler").is_visible() and "timeline.ruler" not in again.view()["options"]
    again.page.keyboard.press("Shift+R")
    again.settle()
    assert (
        f"{len(device.events):,} event" in again.page.locator(".ruler").inner_text()
        or again.page.locator(".ruler").is_visible()
    )


@pytest.mark.parametrize("value", ["", "1..2", "a..b,1..2", "1..2,3..4,5", "-1..1e999,0..0", "1..2,-3..4"])
def test_any_ruler_opens(value: str, report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    opened = open_report(
        report_of(corpus.path_of("small")), f"#timeline.ruler={value}&timeline.span=0.9999.99999&marks.list={value}"
    )
    assert opened.js("snapreport.drawn()")["triangles"] > 0 and not opened.page.locator(".ruler").is_visible()
