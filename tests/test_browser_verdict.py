"""The first screen of a failure and of a leak: the culprit's line, a remedy with its number, and the chart."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import corpus
import firefox
import pytest

from snapreport import write_report
from snapreport.findings.diff import diff
from snapreport.report.build import write_diff

CHIPS = """() => [...document.querySelectorAll('#top > .verdict > .chip')].map(chip => {
    const { top, bottom, right } = chip.getBoundingClientRect()
    return { top, bottom, right, text: chip.innerText, severity: chip.classList[1], remedy: 'remedy' in chip.dataset }
})"""
NUMBER = re.compile(r"\d [KMG]iB|the request fits")
LINE = re.compile(r"\w+\.py:\d+")


@pytest.mark.parametrize("name", ["oom", "leak"])
def test_the_first_screen_tells(name: str, report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    opened = open_report(report_of(corpus.path_of(name)), viewport={"width": 1400, "height": 900})
    for width, height, screens in ((1400, 900, 1), (1280, 720, 1), (390, 844, 2)):
        opened.page.set_viewport_size({"width": width, "height": height})
        opened.settle()
        shown = opened.js(CHIPS)
        assert shown[0]["severity"] == ("error" if name == "oom" else "warning")
        assert shown[0]["text"].startswith("Error" if name == "oom" else "Warning"), "in words, not in colour alone"
        assert shown[0]["bottom"] <= screens * height
        seen = " ".join(chip["text"] for chip in shown if chip["bottom"] <= screens * height)
        assert LINE.search(seen) and NUMBER.search(seen)
        assert all(chip["right"] <= width for chip in shown)
        if width >= 1280:
            assert len({chip["top"] for chip in shown}) <= 2, "at most two rows"
            timeline = opened.page.locator(".timeline").bounding_box()
            assert timeline["height"] > 0.5 * height, "the chart keeps most of the screen"


def test_a_chip_shows_its_allocations_and_is_pinned(
    report_of: Callable[..., Path], open_report: Callable[..., Any]
) -> None:
    opened = open_report(report_of(corpus.path_of("oom")), "#colour=stack", viewport={"width": 1400, "height": 900})
    page = opened.page
    opened.settle()

    def picture() -> bytes:
        opened.settle()
        return bytes(page.locator(".plot").screenshot())

    plain = picture()
    remedy = page.locator("#top > .verdict > .chip[data-remedy]").first
    remedy.hover()
    opened.until("snapreport.debug.view() !== null")
    hovered = picture()
    assert hovered != plain, "its allocations and their curve"
    page.mouse.move(5, 5)
    assert picture() == plain
    assert opened.view()["query"] == ""
    remedy.locator("a").first.click()
    opened.settle()
    view = opened.view()
    assert view["view"] == "timeline" and view["query"] == remedy.get_attribute("data-query")
    remedies = page.locator(".details .remedies li")
    assert remedies.count() == 1 and remedies.first.inner_text().startswith("Advice")
    page.locator("#top > .verdict > .chip.error a").first.click()
    opened.settle()
    assert opened.view()["oom"] is not None
    texts = remedies.all_inner_texts()
    offered = page.locator("#top .verdict :is(.remedy, [data-remedy])").count()
    assert len(texts) == min(3, offered) and all(NUMBER.search(text) for text in texts), texts
    page.go_back()
    opened.until(f"snapreport.getView().query === {view['query']!r}")


RECORDED = corpus.REAL.parent / "recorded"
FIFTEEN: dict[str, list[Path]] = {
    **{
        name: [corpus.REAL / f"{name}.pickle"]
        for name in (
            "lightning_oom",
            "expandable_oom_3gpu",
            "inference_fragmentation",
            "empty_cache_loop",
            "inference_churn",
        )
    },
    **{
        name: [RECORDED / f"{name}.pickle"]
        for name in (
            "hf_trainer_oom",
            "oom_backward",
            "oom_kv",
            "oom_optimizer",
            "leak_loss",
            "leak_outputs",
            "empty_cache_bursts",
        )
    },
    "diff": [RECORDED / "gpt_fp32_ckpt.pickle", RECORDED / "gpt_fp32_foreach.pickle"],
    "job_dp": [RECORDED / "job_dp"],
    "job_pp": [RECORDED / "job_pp"],
}
SENTENCES = """() => [...document.querySelectorAll('#top > .verdict > .chip, #top > .headline')].map(each => {
    const remedy = 'remedy' in each.dataset ? each : each.querySelector('.remedy')
    const { top, bottom } = each.getBoundingClientRect()
    return { top, bottom, text: each.innerText, remedy: remedy?.innerText ?? '' }
})"""


WINDOWS = ((1400, 900, 1), (1280, 720, 1), (390, 844, 2))
"""Width, height, and how many screens count as the first."""


@pytest.fixture(scope="module")
def first_screen_report(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The report of one of the fifteen, made once for both browsers."""
    folder = tmp_path_factory.mktemp("fifteen")

    def report_of_name(name: str) -> Path:
        paths = FIFTEEN[name]
        if not all(path.exists() for path in paths):
            pytest.skip("no recordings at ../shared")
        report = folder / f"{name}.html"
        if report.exists():
            return report
        if name.startswith("job"):
            subprocess.run([sys.executable, "-m", "snapreport", "job", paths[0], "-o", report], check=True)
        elif name == "diff":
            write_diff([diff(*map(corpus.loaded, paths))], report)
        else:
            write_report([corpus.loaded(paths[0])], report)
        return report

    return report_of_name


def check_first_screen(name: str, shown: list[dict[str, Any]], width: int, height: int, screens: int) -> None:
    """The culprit's line and a remedy with its number, without a click; a job and a comparison begin with the cause."""
    if name in ("diff", "job_dp", "job_pp"):
        assert shown[0]["remedy"] == "", "the cause comes first"
    seen = [each for each in shown if each["bottom"] > each["top"] >= 0 and each["bottom"] <= screens * height]
    assert any(LINE.search(each["text"]) for each in seen), (name, width)
    # What only costs time saves no bytes: the number is of the segments that were released.
    part = "text" if name == "empty_cache_loop" else "remedy"
    assert any(each["remedy"] and NUMBER.search(each[part]) for each in seen), (name, width)


# Named differently from recordings, so that they stay together and each report is made once.
@pytest.mark.parametrize("name", FIFTEEN, ids="report {}".format)
def test_real_reports_tell_on_their_first_screen(
    name: str, open_report: Callable[..., Any], first_screen_report: Callable[[str], Path]
) -> None:
    opened = open_report(first_screen_report(name), viewport={"width": 1400, "height": 900})
    for width, height, screens in WINDOWS:
        opened.page.set_viewport_size({"width": width, "height": height})
        opened.settle()
        check_first_screen(name, opened.js(SENTENCES), width, height, screens)


@pytest.fixture(scope="module")
def browser() -> Iterator[firefox.Page]:
    binary = firefox.find()
    if binary is None:
        pytest.skip(firefox.NONE)
    with firefox.launched(binary) as page:
        yield page


@pytest.mark.parametrize("name", FIFTEEN, ids="report {}".format)
def test_real_reports_tell_on_their_first_screen_in_firefox(
    name: str, browser: firefox.Page, first_screen_report: Callable[[str], Path]
) -> None:
    report = first_screen_report(name)
    for width, height, screens in WINDOWS:
        browser.open(report.as_uri(), width, height)
        browser.js("snapreport.ready.then(() => true)")
        assert browser.js("[innerWidth, innerHeight]") == [width, height]
        check_first_screen(name, browser.js(f"({SENTENCES})()"), width, height, screens)
