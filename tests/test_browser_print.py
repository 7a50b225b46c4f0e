"""Printing: the summary, from any view and theme on screen; and a page that runs no scripts says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
from pypdf import PdfReader


def pages_of(opened: Any, folder: Path) -> list[str]:
    """The text of each page as a PDF."""
    path = folder / "page.pdf"
    opened.page.pdf(path=str(path), format="A4")
    return [page.extract_text() for page in PdfReader(path).pages]


@pytest.mark.parametrize("view", ["timeline", "segments", "events", "summary"])
def test_any_view_prints_the_summary(
    view: str, tmp_path: Path, report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    opened = open_report(report_of(corpus.path_of("oom")), color_scheme="dark")
    opened.set_view(view=view)
    headline = opened.page.locator("#top .headline").first.inner_text()
    pages = pages_of(opened, tmp_path)
    words = " ".join(" ".join(pages).split())
    assert " ".join(headline.split())[:60] in words
    assert "Findings" in words and "Devices" in words and "About this recording" in words
    for control in ("Timeline Segments", "Box zoom", "Theme:", "Copy link"):
        assert control not in words, "the app is not printed"
    assert len(pages) > 1 and "About this recording" not in pages[0], "a device begins on a page of its own"


def test_without_scripts_the_page_says_so(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    report = report_of(corpus.path_of("small"))
    silent = open_report(report, java_script_enabled=False)
    assert silent.page.get_by_text("JavaScript is off or not allowed here").is_visible()
    running = open_report(report)
    assert running.page.get_by_text("JavaScript is off or not allowed here").count() == 0


def test_where_workers_are_refused_the_page_works_and_says_so(
    report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    opened = open_report(
        report_of(corpus.path_of("small")),
        before="window.Worker = class { constructor() { throw new DOMException('refused', 'SecurityError') } }",
    )
    assert opened.page.locator(".notice").inner_text().startswith("This viewer does not allow workers.")
    assert opened.js("snapreport.drawn()")["tiles"] > 0
