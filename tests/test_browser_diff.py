"""The Difference view in Chromium: its rows are Python's tables, at every pair of moments, with every grouping."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import polars as pl
import pytest
from planted import path_of, rewritten

import snapreport
from snapreport.findings.diff import SnapshotDiff, diff
from snapreport.report.build import write_diff

Columns = tuple[int, int, int, int, int, str]
SOURCES = ("bytes_before", "bytes_after", "count_before", "count_after", "delta", "change")

MIB = 1 << 20
SERIES_STEPS = (4, 6, 8)


def moved(frame: dict[str, Any]) -> None:
    if frame["filename"].endswith("model.py"):
        frame["line"] += 7


def pair(name: str) -> tuple[Path, ...]:
    """Files to compare, the first with each of the others."""
    small = path_of("small")
    if name == "regression":
        return small, path_of("small", regression=1.5)
    if name == "moved":
        return small, rewritten(path_of("small", regression=1.5), "moved-lines.pickle", moved)
    if name == "series":
        return tuple(path_of("leak", steps=steps, leak=10 * MIB) for steps in SERIES_STEPS)
    if name == "devices":
        few = {"steps": 2, "layers": 2, "hidden": 128, "heads": 4, "sequence": 64, "vocabulary": 4096, "oom": "none"}
        return path_of("training", **few, devices=2), path_of("training", **few, devices=3, regression=1.5)
    if name == "none in common":
        return corpus.path_of("private_pool_gpu3.pickle"), small
    first, _, second = name.partition(" ")
    return corpus.path_of(first), corpus.path_of(second or first)


PAIRS = ["regression", "moved"]
if "train_22k_events.pickle" in corpus.real_names():
    PAIRS += ["train_22k_events.pickle", "train_step_fp32.pickle attention_97_events.pickle"]


@pytest.fixture(scope="module")
def report_of_pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, SnapshotDiff]]:
    """The report of files to compare and the last of their differences, made once."""
    made: dict[str, tuple[Path, SnapshotDiff]] = {}

    def report(name: str) -> tuple[Path, SnapshotDiff]:
        if name not in made:
            first, *others = [snapreport.load(path) for path in pair(name)]
            results = [diff(first, other) for other in others]
            path = tmp_path_factory.mktemp("compared") / "diff.html"
            write_diff(results, path)
            made[name] = path, results[-1]
        return made[name]

    return report


@pytest.fixture
def compared(
    borrow_report: Callable[..., Any],
    open_report: Callable[..., Any],
    report_of_pair: Callable[[str], tuple[Path, SnapshotDiff]],
) -> Callable[..., tuple[Any, SnapshotDiff]]:
    def open_one(name: str, is_own: bool = False, **context: Any) -> tuple[Any, SnapshotDiff]:
        """A separate page where one is requested, or where it has its own context."""
        path, result = report_of_pair(name)
        opened = (open_report if is_own or context else borrow_report)(path, **context)
        opened.until("snapreport.getView().view === 'diff'")
        opened.set_view(view="diff")
        return opened, result

    return open_one


def rows_of(opened: Any, group: str, moment: str) -> list[dict[str, Any]]:
    opened.set_view(view="diff", options={"diff.group": group, "diff.moment": moment})
    return opened.js("snapreport.debug.view()")["rows"]


def columns(row: dict[str, Any]) -> Columns:
    return tuple(row[key] for key in ("before", "after", "countBefore", "countAfter", "delta", "change"))  # type: ignore[return-value]


def expected(table: pl.DataFrame, key: str) -> dict[Any, Columns]:
    return {row[key] or "": tuple(row[source] for source in SOURCES) for row in table.rows(named=True)}  # type: ignore[misc]


@pytest.mark.parametrize("name", PAIRS)
def test_rows_are_the_tables(compared: Callable[..., tuple[Any, SnapshotDiff]], name: str) -> None:
    opened, result = compared(name)
    device = result.devices[0]
    base = len(result.before.recording.stack_offsets) - 1
    named = {moment.name: i for i, moment in enumerate(device.moments)}
    for moment in [m for m in ("peak", "end", *[m for m in named if m.startswith("step")][1:2]) if m in named]:
        at = named[moment]
        option = moment.replace(" ", "-")
        for group, tables in (("function", device.functions), ("category", device.categories)):
            rows = rows_of(opened, group, option)
            assert {row["name"]: columns(row) for row in rows} == expected(tables[at], "name"), (group, moment)
            assert len(rows) == len(tables[at])
        identities = {}
        for row in rows_of(opened, "stack", option):
            stack = row["stack"]
            numbers, own = (result.matching.after, stack - base) if stack >= base else (result.matching.before, stack)
            identities[int(numbers[own])] = columns(row)
            if row["stackBefore"] >= 0:
                assert int(result.matching.before[row["stackBefore"]]) == int(numbers[own])
        wanted = {row["identity"]: tuple(row[s] for s in SOURCES) for row in device.stacks[at].rows(named=True)}
        assert identities == wanted
        files = rows_of(opened, "file", option)
        before, after = device.moments[at].before_bytes, device.moments[at].after_bytes
        assert (sum(r["before"] for r in files), sum(r["after"] for r in files)) == (before, after)
        # Largest change first.
        changes = [abs(row["delta"]) for row in files]
        assert changes == sorted(changes, reverse=True)


@pytest.mark.parametrize("name", PAIRS)
def test_flame_of_the_difference(compared: Callable[..., tuple[Any, SnapshotDiff]], name: str) -> None:
    opened, result = compared(name)
    for moment, table in zip(result.devices[0].moments[:2], result.devices[0].stacks[:2], strict=True):
        opened.set_view(view="flame", options={"flame.measure": "diff", "diff.moment": moment.name})
        opened.until("snapreport.debug.view() !== undefined")
        opened.set_view(view="flame")
        total = opened.js("(d => d?.all ?? {value: 0, loss: 0})(snapreport.debug.view())")
        assert total["value"] == table.filter(pl.col("delta") > 0)["delta"].sum()
        assert total["loss"] == -table.filter(pl.col("delta") < 0)["delta"].sum()
        assert total["value"] - total["loss"] == moment.after_bytes - moment.before_bytes


def test_a_file_and_itself_differ_in_nothing(compared: Callable[..., tuple[Any, SnapshotDiff]]) -> None:
    opened, result = compared("small")
    assert {row["change"] for row in rows_of(opened, "stack", "peak")} == {"same"}
    assert "Nothing changed." in opened.page.locator(".diff-words").inner_text()
    assert result.devices[0].moments[0].before_bytes > 0


def test_both_places_of_what_has_moved(compared: Callable[..., tuple[Any, SnapshotDiff]]) -> None:
    """The same code on other lines is one row, and its stack shows the lines before and after."""
    opened, _ = compared("moved")
    assert {row["change"] for row in rows_of(opened, "stack", "peak")} <= {"same", "grew", "shrank"}
    opened.page.locator(".diff .list-body .list-row").first.click()
    places = opened.page.locator(".diff-pane .frame:has(.diff-was)")
    assert places.count() >= 1
    for i in range(places.count()):
        now = int(re.search(r"model\.py:(\d+)", places.nth(i).locator(".place").inner_text())[1])
        then = int(re.search(r"model\.py:(\d+)", places.nth(i).locator(".diff-was").inner_text())[1])
        assert now == then + 7
    opened.page.get_by_role("button", name="Show it in the timeline before").click()
    opened.until("snapreport.getView().view === 'timeline'")
    stack = re.fullmatch(r"stack:(\d+)", opened.view()["query"])
    assert stack and opened.js("async q => (await snapreport.search(0, q)).count", stack[0]) > 0


def test_devices_of_one_side_are_explained(compared: Callable[..., tuple[Any, SnapshotDiff]]) -> None:
    opened, result = compared("devices")
    assert (result.only_before, result.only_after) == ([], [2])
    said = {}
    for index in range(5):
        opened.set_view(view="diff", device=index)
        empty = opened.page.locator(".diff-empty")
        said[index] = empty.inner_text() if empty.is_visible() else None
    assert said[0] == said[1] and "earlier snapshot" in said[0]
    assert said[2] is said[3] is None
    assert said[4] == "Only one of the two snapshots has this device."
    # Each pair of devices has its own rows.
    for index, device in ((2, result.devices[0]), (3, result.devices[1])):
        opened.set_view(device=index)
        rows = rows_of(opened, "category", "peak")
        assert {row["name"]: columns(row) for row in rows} == expected(device.categories[0], "name")


@pytest.mark.skipif("private_pool_gpu3.pickle" not in corpus.real_names(), reason=corpus.NO_REAL)
def test_no_device_in_common_is_said(compared: Callable[..., tuple[Any, SnapshotDiff]]) -> None:
    opened, result = compared("none in common")
    if result.devices:
        pytest.skip("they have one in common")
    assert opened.page.locator(".diff-empty").inner_text() == "The two snapshots have no device in common."


def test_a_series_is_a_table(compared: Callable[..., tuple[Any, SnapshotDiff]]) -> None:
    opened, _ = compared("series")
    table = opened.page.locator(".diff-series")
    timelines = [snapreport.load(path).timeline(0) for path in pair("series")]
    assert table.locator("summary").inner_text().startswith("3 snapshots: +20.0 MiB from one to the next")
    cells = table.locator("tbody tr").nth(0).locator("td").all_inner_texts()
    for cell, timeline in zip(cells, timelines, strict=True):
        number, unit = cell.split()
        scale = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]
        assert float(number) * scale == pytest.approx(timeline.peak_bytes, rel=0.006)
    assert "snapshots to the next" in opened.page.locator("#top").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_series_is_a_chart(compared: Callable[..., tuple[Any, SnapshotDiff]], scheme: str) -> None:
    """A line for the total and one for the planted leak, at the heights that a simple count of the files gives."""
    opened, _ = compared("series", color_scheme=scheme)
    figure = opened.page.locator("figure.growth")
    assert figure.locator("figcaption").inner_text() == "log_step metrics.py:31 leaks 20.0 MiB a snapshot."
    leaked = [sum(e["size"] for e in events_in(path, "log_step")) for path in pair("series")]
    assert leaked == [steps * 10 * MIB for steps in SERIES_STEPS]
    points = figure.locator("polyline.growth-1").get_attribute("points").split()
    heights = [float(point.split(",")[1]) for point in points]
    assert len(points) == 3 and heights[0] > heights[1] > heights[2]
    assert heights[0] - heights[2] == pytest.approx(2 * (heights[0] - heights[1]), rel=1e-6)
    inks = opened.js(
        """() => [...document.querySelectorAll('.growth-line')].map((e) => getComputedStyle(e).stroke)
        .concat(getComputedStyle(document.querySelector('#app .diff')).color)"""
    )
    assert len(set(inks[:2])) == 2 and "none" not in inks[:2]


def test_the_chart_by_keyboard_and_for_screen_readers(compared: Callable[..., tuple[Any, SnapshotDiff]]) -> None:
    opened, _ = compared("series")
    chart = opened.page.get_by_role("group", name=re.compile("leaks 20.0 MiB a snapshot"))
    chart.focus()
    words = opened.page.locator(".growth-words")
    names = [path.name for path in pair("series")]
    assert words.inner_text() == f"log_step metrics.py:31, {names[2]}: 80.0 MiB, +40.0 MiB since the first."
    opened.page.keyboard.press("ArrowLeft")
    assert words.inner_text() == f"log_step metrics.py:31, {names[1]}: 60.0 MiB, +20.0 MiB since the first."
    opened.page.keyboard.press("Home")
    assert words.inner_text().endswith(f"{names[0]}: 40.0 MiB, ±0 B since the first.")
    opened.page.keyboard.press("ArrowUp")
    assert words.inner_text().startswith(f"Allocated at the end, {names[0]}: ")
    opened.until(
        "[...document.querySelectorAll('[aria-live]')].some((e) => e.textContent.includes('Allocated at the end'))"
    )
    opened.page.get_by_role("button", name=re.compile("log_step metrics.py:31")).click()
    opened.until("snapreport.getView().view === 'timeline'")
    found = opened.js("async q => await snapreport.search(snapreport.getView().device, q)", opened.view()["query"])
    assert (found["count"], found["bytes"]) == (8, 80 * MIB)


def events_in(path: Path, function: str) -> list[dict[str, Any]]:
    (trace,) = corpus.raw(path)["device_traces"]
    return [e for e in trace if e["action"] == "alloc" and any(f["name"] == function for f in e["frames"])]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_curves_and_colours(compared: Callable[..., tuple[Any, SnapshotDiff]], scheme: str) -> None:
    """Both curves are drawn, and every word is readable on its background."""
    opened, _ = compared("regression", color_scheme=scheme)
    drawn = opened.js(
        """() => {
          const c = document.querySelector('canvas.diff-curves')
          const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data
          const seen = new Set()
          let filled = 0
          for (let i = 0; i < d.length; i += 4) {
            if (d[i + 3] > 0) filled++
            if (d[i + 3] === 255) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2])
          }
          return [filled / (d.length / 4), seen.size]
        }"""
    )
    assert drawn[0] > 0.05 and drawn[1] >= 2
    contrast = opened.js(
        """() => {
          const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
          const light = (css) => {
            const [r, g, b] = css.match(/[\\d.]+/g).map((v) => linear(Number(v) / 255))
            return 0.2126 * r + 0.7152 * g + 0.0722 * b
          }
          const back = (e) => getComputedStyle(e).backgroundColor
          const words = document.querySelectorAll('.diff .list-body .cell, .diff-words, .diff-key')
          return [...words].filter((e) => e.textContent).map((e) => {
            let ground = e
            while (/rgba\\(0, 0, 0, 0\\)|transparent/.test(back(ground))) ground = ground.parentElement
            const [a, b] = [light(getComputedStyle(e).color), light(back(ground))].sort((x, y) => y - x)
            return (a + 0.05) / (b + 0.05)
          })
        }"""
    )
    assert contrast and min(contrast) >= 4.5


def test_keyboard_alone(compared: Callable[..., tuple[Any, SnapshotDiff]]) -> None:
    opened, _ = compared("regression")
    rows = rows_of(opened, "stack", "peak")
    opened.page.locator(".diff .list").focus()
    for _ in range(3):
        opened.page.keyboard.press("ArrowDown")
    pane = opened.page.locator(".diff-pane")
    assert pane.locator("h3").inner_text() == rows[2]["name"]
    opened.page.keyboard.press("Home")
    assert pane.locator("h3").inner_text() == rows[0]["name"]
    opened.page.get_by_role("combobox", name="Moments that are compared").select_option("end")
    opened.until("snapreport.getView().options['diff.moment'] === 'end'")
    opened.page.get_by_role("button", name="Categories").press("Enter")
    opened.until("snapreport.getView().options['diff.group'] === 'category'")


def test_on_a_phone(compared: Callable[..., tuple[Any, SnapshotDiff]]) -> None:
    """Only tables scroll sideways, and the rows and the stack of one are within reach."""
    opened, _ = compared("regression", viewport={"width": 360, "height": 740})
    assert opened.js("document.documentElement.scrollWidth") <= 360
    rows = opened.page.locator(".diff .list-body .list-row")
    rows.first.scroll_into_view_if_needed()
    assert opened.page.locator(".diff .list").bounding_box()["height"] > 200
    rows.first.click()
    pane = opened.page.locator(".diff-pane h3")
    pane.scroll_into_view_if_needed()
    box = pane.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 360 and 0 <= box["y"] < 740


def test_a_link_opens_on_the_same_comparison(compared: Callable[..., tuple[Any, SnapshotDiff]]) -> None:
    opened, _ = compared("regression", is_own=True)
    rows = rows_of(opened, "function", "end")
    opened.until("location.hash.includes('diff.group=function') && location.hash.includes('diff.moment=end')")
    opened.page.reload()
    opened.js("snapreport.ready")
    opened.set_view()
    assert opened.js("snapreport.debug.view()")["rows"] == rows
