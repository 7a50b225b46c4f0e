"""In Chromium: inferred categories are hatched in the legend, and the details say where a category comes from."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from test_repeated_tensors import training

import snapreport


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Batches are inferred to be inputs; parameters and gradients are known by their stacks."""
    path = tmp_path_factory.mktemp("source") / "batches.pickle"
    path.write_bytes(pickle.dumps(training().raw(), 4))
    return path


@pytest.fixture
def opened(batches: Path, report_of: Callable[..., Path], open_report: Callable[..., Any]) -> Any:
    return open_report(report_of(batches), "#view=timeline&colour=category&legend.open=yes")


def test_the_legend_hatches_what_is_inferred(opened: Any) -> None:
    opened.set_view(view="timeline", colour="category")
    opened.page.wait_for_selector(".legend .swatch.inferred")
    hatched = opened.page.locator(".legend li:has(.swatch.inferred)")
    assert hatched.count() == 1 and "input" in hatched.text_content()
    assert "100% of it inferred" in hatched.locator("button").get_attribute("title")
    image = "e => getComputedStyle(e).backgroundImage"
    assert "repeating-linear-gradient" in hatched.locator(".swatch").evaluate(image)
    plain = opened.page.locator(".legend .swatch:not(.inferred)")
    assert plain.count() >= 2 and plain.first.evaluate(image) == "none"


def test_the_details_say_where_a_category_comes_from(opened: Any, batches: Path) -> None:
    rows = snapreport.load(batches).allocations(0)
    for category, words in (
        ("input", "inferred from phases, sizes and lifetimes"),
        ("parameter", "its stack trace"),
    ):
        chosen = rows.filter(pl.col("category").cast(pl.String) == category)["id"][0]
        opened.set_view(select=chosen)
        opened.until("words => document.querySelector('#app').textContent.includes(words)", words)
