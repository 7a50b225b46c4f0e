"""The job view in Chromium shows what was planted; sorting, brushing, keys and links work as described."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_documents import DISPATCH, STACKS, STEPS, Planted, planted_job

RANKS = 64


@pytest.fixture(scope="module")
def planted() -> Planted:
    return planted_job(RANKS)


@pytest.fixture(scope="module")
def job_path(planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("job") / "job.html"
    path.write_bytes(planted.document)
    return path


def debug(opened: Any) -> Any:
    return opened.js("snapreport.debug.view()")


def set_options(opened: Any, **options: str | None) -> Any:
    opened.set_view(options={f"job.{name}": value for name, value in options.items()})
    return debug(opened)


def cell(opened: Any, place: float, column: float) -> tuple[float, float]:
    """The middle of a cell on screen, in CSS pixels."""
    bounds = opened.page.locator(".job-map").bounding_box()
    box = bounds["x"], bounds["y"]
    shown = debug(opened)["map"]
    geometry, window = shown["geometry"], shown["window"]
    across = (column + 0.5 - window["x0"]) / (window["x1"] - window["x0"])
    down = (place + 0.5 - window["y0"]) / (window["y1"] - window["y0"])
    return (
        box[0] + geometry["left"] + across * (geometry["right"] - geometry["left"]),
        box[1] + geometry["top"] + down * (geometry["bottom"] - geometry["top"]),
    )


def tip(opened: Any) -> str:
    return opened.page.locator(".job-map .tooltip").inner_text()


def test_the_planted_outlier_is_named_with_its_stack(
    borrow_report: Callable[..., Any], job_path: Path, planted: Planted
) -> None:
    opened = borrow_report(job_path)
    assert opened.view()["view"] == "job"
    name = "{} {}:{}".format(*STACKS[DISPATCH][:3])
    first = opened.page.locator(".job-outlier").first.inner_text()
    assert f"Rank {planted.outlier} of 67 holds 6.10 GiB more than its group" in first
    assert name in first
    assert "+6.10 GiB" in first
    # Every rank and stack of the headline is a link.
    links = opened.page.locator("#top .headline a").all_inner_texts()
    assert links == [f"Rank {planted.outlier}", f"Rank {planted.outlier}", name]
    opened.page.locator("#top .headline a").first.click()
    opened.until("snapreport.debug.view().tab === 'rank'")
    rank = opened.page.locator(".job-rank").inner_text()
    assert "17.6 GiB" in rank
    assert name in rank
    opened.check()


def test_cells_say_what_was_planted(borrow_report: Callable[..., Any], job_path: Path, planted: Planted) -> None:
    opened = borrow_report(job_path, "#view=job&job.sort=peak")
    shown = debug(opened)
    peaks = planted.allocated.max(axis=1)
    order = [int(key) for key in shown["order"]]
    assert order[:RANKS] == sorted(range(RANKS), key=lambda rank: (-peaks[rank], rank))
    assert order[RANKS:] == [*planted.missing, planted.failed]
    place = order.index(planted.outlier)
    opened.page.mouse.move(*cell(opened, place, planted.oom_step))
    text = tip(opened)
    assert f"Rank {planted.outlier} · node006 · cuda:4, step {planted.oom_step + 1}" in text
    assert f"Allocated: up to {planted.allocated[planted.outlier, planted.oom_step] / 2**30:.1f} GiB" in text
    assert "above its group's median" in text
    opened.page.mouse.move(*cell(opened, place, planted.oom_step + 1))
    assert "Nothing was recorded here." in tip(opened)
    opened.page.mouse.move(*cell(opened, order.index(planted.failed), 3))
    assert "Could not be read: the pickle ends early" in tip(opened)
    opened.check()


def test_brushing_is_linked_to_every_part(borrow_report: Callable[..., Any], job_path: Path, planted: Planted) -> None:
    opened = borrow_report(job_path, "#view=job&job.tab=stacks")
    page = opened.page
    heavy = np.flatnonzero(planted.stack_bytes.max(axis=1) >= 0.001 * planted.allocated.max())
    assert sorted(row["stack"] for row in debug(opened)["panel"]) == heavy.tolist(), "rows of no weight are folded"
    page.get_by_role("button", name="of less than 0.1%").click()
    opened.until(f"snapreport.debug.view().panel.length === {len(planted.stack_bytes)}")
    for row in debug(opened)["panel"]:
        assert row["maxRow"] == planted.stack_bytes[row["stack"]].argmax(), "ranks that differ by less than is stored"
    page.mouse.move(*cell(opened, 48, 10))
    page.mouse.down()
    page.mouse.move(*cell(opened, 55, 20), steps=4)
    page.mouse.up()
    opened.until("snapreport.getView().options['job.ranks'] === '48..55'")
    shown = debug(opened)
    assert shown["rows"] == [str(rank) for rank in range(48, 56)]
    assert opened.view()["options"]["job.columns"] == "10..20"
    for row in shown["panel"]:
        values = planted.stack_bytes[row["stack"], 48:56]
        most = planted.stack_bytes[row["stack"]].max()
        # A stack's bytes are stored to 1/4095 of its maximum.
        assert row["max"] == pytest.approx(values.max(), abs=most / 4000)
        assert row["median"] == pytest.approx(float(np.median(values)), abs=most / 4000)
    dispatch = next(row for row in shown["panel"] if row["stack"] == DISPATCH)
    assert dispatch["maxRow"] == planted.outlier
    set_options(opened, tab="ranks")
    assert debug(opened)["panel"] == [str(rank) for rank in range(48, 56)]
    cells = page.locator("#job-ranks-row-0 [role=gridcell]").all_inner_texts()
    within = planted.allocated[48, 10:21].max() / 2**30
    assert cells[:2] == ["48", f"{within:.1f} GiB"]
    set_options(opened, tab="findings")
    assert "on 1 of 64 ranks" in page.locator(".job-findings").inner_text()
    set_options(opened, tab="categories")
    assert [bar["name"] for bar in debug(opened)["panel"]] == [f"Rank {rank}" for rank in range(48, 56)]
    set_options(opened, tab="groups")
    texts = page.locator(".job-group header").all_inner_texts()
    assert ["none selected" in text for text in texts] == [True, True, True, False], texts
    assert "8 of 16 ranks" in texts[3] and f"to {planted.allocated[48:56, 10:21].max() / 2**30:.1f} GiB" in texts[3]
    page.keyboard.press("Escape")
    assert "job.ranks" not in opened.view()["options"]
    assert len(debug(opened)["rows"]) == RANKS
    assert "none selected" not in page.locator(".job-groups").inner_text()
    opened.check()


def test_keys_move_a_cell_pick_it_and_brush(borrow_report: Callable[..., Any], job_path: Path) -> None:
    opened = borrow_report(job_path)
    page = opened.page
    page.locator(".job-map").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert debug(opened)["map"]["cursor"] == {"place": 2, "column": 1}
    assert "Rank 2 · node000 · cuda:2, step 2" in page.locator("#app > [aria-live=polite]").inner_text()
    page.keyboard.press("Enter")
    options = opened.view()["options"]
    assert (options["job.rank"], options["job.column"]) == ("2", "1")
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+ArrowDown")
    assert opened.view()["options"]["job.ranks"] == "2..4"
    page.keyboard.press("Escape")
    page.keyboard.press("End")
    assert debug(opened)["map"]["cursor"]["column"] == STEPS - 1
    page.keyboard.press("+")
    window = debug(opened)["map"]["window"]
    opened.until("() => { const { y0, y1 } = snapreport.debug.view().map.window; return y1 - y0 < 67 }")
    page.keyboard.press("0")
    opened.until("() => { const { y0, y1 } = snapreport.debug.view().map.window; return y1 - y0 === 67 }")
    assert window["x0"] == 0
    page.keyboard.press("2")
    assert opened.view()["view"] == "summary"
    page.keyboard.press("1")
    assert opened.view()["view"] == "job"
    opened.check()


def test_the_keyboard_keeps_its_place(borrow_report: Callable[..., Any], job_path: Path, planted: Planted) -> None:
    """What a key presses is often drawn anew, or gone: the focus does not fall back to the start of the page."""
    opened = borrow_report(job_path)
    page = opened.page

    def focus() -> str:
        return str(opened.js("document.activeElement.className + ' ' + document.activeElement.textContent"))

    set_options(opened, tab="groups")
    group = page.locator(".job-group-name").nth(2)
    group.focus()
    page.keyboard.press("Enter")
    opened.until("snapreport.getView().options['job.group'] === '2'")
    assert focus() == "job-group-name clip Stage 2"
    page.locator(".job-brushed button", has_text="Clear").focus()
    page.keyboard.press("Enter")
    opened.until("snapreport.getView().options['job.group'] === undefined")
    assert opened.js("document.activeElement.className") == "job-map surface"
    set_options(opened, tab="findings")
    page.locator(".job-outlier a").first.focus()
    page.keyboard.press("Enter")
    opened.until("snapreport.debug.view().tab === 'rank'")
    assert focus().strip() == f"Rank {planted.outlier}" and opened.js("document.activeElement.role") == "tab"
    set_options(opened, tab="ranks")
    page.locator(".job-ranks .list").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    opened.until("snapreport.debug.view().tab === 'rank'")
    assert focus().strip() == "Rank 1"
    opened.check()


def test_ranks_are_sorted_by_a_column_and_saved_in_that_order(
    borrow_report: Callable[..., Any], job_path: Path, planted: Planted
) -> None:
    opened = borrow_report(job_path, "#view=job&job.tab=ranks")
    panel = opened.page.locator(".job-ranks")
    peaks = planted.allocated.max(axis=1)
    order = [str(rank) for rank in sorted(range(RANKS), key=lambda rank: -peaks[rank])]
    panel.get_by_role("button", name="Allocated", exact=True).click()
    assert debug(opened)["panel"][:RANKS] == order
    panel.get_by_role("button", name="Allocated", exact=True).click()
    assert debug(opened)["panel"][-RANKS:] == order[::-1]
    with opened.page.expect_download() as coming:
        panel.get_by_role("button", name="CSV").click()
    with Path(coming.value.path()).open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert [row["rank"] for row in rows] == debug(opened)["panel"]
    saved = {row["rank"]: float(row["peak_allocated_bytes"]) for row in rows[-RANKS:]}
    assert [saved[str(rank)] for rank in range(RANKS)] == pytest.approx(list(peaks), abs=1)


def test_a_picture_of_the_map(borrow_report: Callable[..., Any], job_path: Path) -> None:
    from PIL import Image

    opened = borrow_report(job_path)
    with opened.page.expect_download() as coming:
        opened.page.get_by_role("button", name="PNG").click()
    image = np.asarray(Image.open(coming.value.path()).convert("RGB"))
    bounds = opened.page.locator(".job-map").bounding_box()
    assert abs(image.shape[1] - bounds["width"]) <= 2
    assert image.shape[0] > bounds["height"], "a caption above the map"
    # In the middle of the map there are cells of many colours.
    middle = image[image.shape[0] // 2, 60 : image.shape[1] // 2]
    assert len(np.unique(middle, axis=0)) > 8


def test_the_address_holds_it_all(borrow_report: Callable[..., Any], job_path: Path, planted: Planted) -> None:
    opened = borrow_report(job_path)
    set_options(opened, metric="reserved", sort="above", against="group", stack=str(DISPATCH), ranks="0..9,52")
    opened.until("location.hash.includes('job.ranks')")
    again = borrow_report(job_path, opened.js("location.hash"), is_new=True)
    assert debug(again)["order"] == debug(opened)["order"]
    assert debug(again)["rows"] == debug(opened)["rows"]
    assert debug(again)["map"]["scale"] == debug(opened)["map"]["scale"]
    assert debug(again)["shown"] == "dispatch moe/dispatch.py:88"
    assert debug(again)["order"][0] == str(planted.outlier)
    again.check()


@pytest.mark.parametrize("width", [360, 800, 1300, 3840])
def test_nothing_is_wider_than_the_window(borrow_report: Callable[..., Any], job_path: Path, width: int) -> None:
    opened = borrow_report(job_path, "#view=job&job.tab=groups", viewport={"width": width, "height": 800})
    for tab in ("groups", "stacks", "categories", "findings", "ranks"):
        set_options(opened, tab=tab)
        assert opened.js("document.documentElement.scrollWidth <= innerWidth"), tab


def test_a_job_of_digests_alone_has_no_views_of_devices(borrow_report: Callable[..., Any], job_path: Path) -> None:
    opened = borrow_report(job_path)
    assert opened.page.locator(".tabs").first.locator("button").all_inner_texts() == ["Job", "Summary"]
    assert opened.js("snapreport.devices()") == []
    with pytest.raises(Exception, match="no view"):
        opened.set_view(view="timeline")


def test_a_thousand_ranks_open_small(borrow_report: Callable[..., Any], tmp_path: Path) -> None:
    planted = planted_job(1024, columns=256)
    path = tmp_path / "large.html"
    path.write_bytes(planted.document)
    assert len(planted.document) < 3_000_000
    opened = borrow_report(path, "#view=job&job.sort=group")
    shown = debug(opened)
    assert sorted(int(key) for key in shown["order"]) == list(range(1024 + 3))
    opened.page.mouse.move(*cell(opened, shown["order"].index(str(planted.outlier)), planted.oom_step))
    assert f"Rank {planted.outlier} " in tip(opened)
    opened.check()
