"""The view of modules in Chromium: numbers of the library's modules at any moment, folding, searching, a link, axe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import polars as pl
import pytest
from test_browser_axe import AXE, RUN
from test_module_lines import RECORDING

import snapreport


@pytest.fixture
def opened(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> Any:
    return borrow_report(report_of(RECORDING), "#view=xray")


def rows(opened: Any) -> dict[str, tuple[int, int]]:
    """path: modules, bytes"""
    opened.settle()
    return {row["path"]: (row["modules"], row["bytes"]) for row in opened.js("snapreport.debug.view()")["rows"]}


def test_every_module_has_the_bytes_of_the_library(opened: Any) -> None:
    snapshot = snapreport.load(RECORDING)
    allocations = snapshot.allocations(0).filter(pl.col("module").is_not_null())
    for event in (None, 0, 100, 700, 1500, 2568):
        opened.set_view(at=event, options={"xray.alike": "apart"})
        at = snapshot.timeline(0).peak_event if event is None else event
        live = (pl.col("alloc_event") <= at) & ((pl.col("free_event") < 0) | (pl.col("free_event") > at))
        shown = rows(opened)
        assert len(shown) >= 10
        for path, (count, size) in shown.items():
            below = (pl.col("module") == path) | pl.col("module").str.starts_with(f"{path}.")
            assert (count, size) == (1, allocations.filter(live & below)["size"].sum()), (event, path)
    peaks = {row["module"]: row["peak_bytes"] for row in snapshot.modules(0).iter_rows(named=True)}
    opened.set_view(at=None)
    assert {path: peaks[path] for path in rows(opened)} == {path: size for path, (_, size) in rows(opened).items()}


def test_what_is_alike_is_one_row_and_opens(opened: Any) -> None:
    shown, apart = rows(opened), ["layers.0", "layers.1", "layers.2", "layers.3"]
    assert shown["layers.*"][0] == 4 and not set(apart) & set(shown)
    opened.page.get_by_role("button", name="Fold alike").click()
    now = rows(opened)
    assert sum(now[path][1] for path in apart) == shown["layers.*"][1]
    opened.page.get_by_role("button", name="Fold alike").click()
    opened.page.locator('.list-row:has-text("0–3 × 4") .expander').click()
    assert "layers.*.qkv" not in rows(opened)
    opened.until("location.hash.includes('xray.toggled')")


def test_a_click_searches_on_all_views(opened: Any) -> None:
    row = opened.page.locator('.list-row:has-text("qkv × 4")')
    row.click()
    opened.settle()
    assert opened.view()["query"] == "module:layers.*.qkv"
    assert row.get_attribute("aria-selected") == "true"
    expected = corpus.loaded(RECORDING).query("module:layers.*.qkv", device=0)
    assert set(expected["module"]) == {f"layers.{layer}.qkv" for layer in range(4)}
    assert f"{len(expected):,} matches" in opened.page.locator("#app .toolbar").inner_text()
    row.click()
    opened.settle()
    assert opened.view()["query"] == ""
    opened.page.keyboard.press("Home")
    opened.page.keyboard.press("Enter")
    opened.settle()
    assert opened.view()["query"] == "module:embedding"


def test_inferred_modules_are_said_to_be(report_of: Callable[..., Path], borrow_report: Callable[..., Any]) -> None:
    path = corpus.path_of("small")
    opened = borrow_report(report_of(path), "#view=xray")
    assert "places inferred from the lines of forward" in opened.page.locator(".table-words").inner_text()
    peaks = {row["module"]: row["peak_bytes"] for row in corpus.loaded(path).modules(0).iter_rows(named=True)}
    shown = rows(opened)
    assert len(shown) > 3 and all(shown[module][1] == peaks[module] for module in shown.keys() & peaks.keys())
    assert shown.keys() & peaks.keys()


def test_reports_without_modules_have_no_such_view(
    report_of: Callable[..., Path], borrow_report: Callable[..., Any]
) -> None:
    path = corpus.ROOT / "tests" / "recordings" / "allocator" / "torch-2.12.pickle.xz"
    tabs = borrow_report(report_of(path)).page.get_by_role("tab").all_inner_texts()
    assert "Table" in tabs and "X-ray" not in tabs


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(scheme: str, report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run `npm ci` in static/")
    opened = open_report(report_of(RECORDING), "#view=xray&query=module:layers.*.up", color_scheme=scheme)
    opened.js(AXE.read_text(encoding="utf-8") + "; void 0")
    assert not opened.js(RUN)
