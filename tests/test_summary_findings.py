"""The summary says with scripts off how much, when, who, why and what next; whatever names contain, they stay text."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import corpus
import pytest
from planted import path_of, rewritten

import snapreport
from snapreport.findings.run import findings
from snapreport.number_format import bytes_text, count_text

SMALL = {"layers": 2, "hidden": 128, "heads": 4, "sequence": 64, "batch": 4, "vocabulary": 4096}
HOSTILE = "</article><script>alert(1)</script><img src=x onerror=alert(2)> & \"'`{{ 7 * 7 }}"


class Reader(HTMLParser):
    """The elements before the application, and their text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.quiet = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.text += [" "] * (tag not in ("a", "b", "code"))
        self.quiet += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.quiet -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self.quiet:
            self.text.append(data)


def read(report: Path) -> tuple[Reader, str]:
    reader = Reader()
    reader.feed(report.read_text())
    return reader, " ".join("".join(reader.text).split())


OOMS = {"demand": ("oom", {}), "fragmentation": ("fragmentation", {**SMALL, "memory": 2 << 30})}


@pytest.mark.parametrize("name", OOMS)
def test_an_oom_without_scripts(name: str, report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    preset, changes = OOMS[name]
    path = path_of(preset, **changes)
    opened = open_report(report_of(path), java_script_enabled=False)
    text = " ".join(opened.page.locator("body").inner_text().split())
    raw = corpus.raw(path)
    trace = raw["device_traces"][0]
    (number,) = [i for i, event in enumerate(trace) if event["action"] == "oom"]
    device = corpus.replayed(path)[0]
    size = bytes_text(trace[number]["size"])
    assert re.search(rf"\b[Aa]n? {size} request (was|failed)", text)  # how much
    assert f"The request (event {count_text(number)}) was made in" in text  # when
    assert bytes_text(device.peak_bytes) in text
    assert f"(event {count_text(device.peak_event)})" in text
    own = next(
        f["name"]
        for f in trace[number]["frames"]
        if "/site-packages/" not in f["filename"] and f["filename"].endswith(".py")
    )
    assert f"was made in {own}" in text  # who
    assert {"demand": "too large", "fragmentation": ": fragmentation"}[name] in text  # why
    assert re.search(r" [\d.]+ ([KMG]iB )?→ [\d.]+ [KMG]iB or more at the failure \(replayed\)", text)  # what next
    first = opened.page.locator("article.finding").first
    assert first.is_visible() and first.locator("b").inner_text() == "Out of memory"
    # Errors are at the very top, visible without scrolling.
    assert "Out of memory on cuda:0" in opened.page.locator("#top").inner_text()


def test_every_finding_has_a_card(telling_path: Path, report_of: Callable[..., Path]) -> None:
    reader, text = read(report_of(telling_path))
    found = [f for f in findings(corpus.loaded(telling_path)) if f.kind not in ("peak", "advice")]
    for finding in found:
        assert " ".join(finding.title.split()) in text
        for line in finding.detail:
            assert " ".join(line.split()) in text
    links = [attrs["href"] for tag, attrs in reader.tags if tag == "a" and attrs.get("class") == "show"]
    assert len(links) >= len(found) and all(link.startswith("#view=") for link in links)
    assert all(
        attrs["href"].startswith(("#", "https://")) for tag, attrs in reader.tags if tag == "a" and "href" in attrs
    )


def test_hostile_names_stay_text(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    """Every function is named with markup, a script and a template."""

    def rename(frame: dict[str, Any]) -> None:
        frame["name"] = HOSTILE + frame["name"]

    path = rewritten(path_of("fragmentation", **SMALL, memory=2 << 30), "hostile-summary.pickle", rename)
    report = report_of(path)
    reader, text = read(report)
    plain, _ = read(report_of(path_of("fragmentation", **SMALL, memory=2 << 30)))
    assert not [tag for tag, attrs in reader.tags if tag == "img" or any(name.startswith("on") for name in attrs)]
    assert sum(tag == "script" for tag, _ in reader.tags) == sum(tag == "script" for tag, _ in plain.tags)
    assert "</script><img src=x onerror=alert(2)> & \"'`{{ 7 * 7 }}" in text
    for enabled in (True, False):
        opened = open_report(report, java_script_enabled=enabled)
        assert opened.page.locator("article.finding").count() >= 1
        assert opened.page.locator("img").count() == 0
        assert "<script>alert(1)</script>" in opened.page.locator("article.finding").first.text_content()


def test_titles_name_the_file_where_there_are_several(report_of: Callable[..., Path]) -> None:
    one, two = path_of("leak"), path_of("churn")
    _, text = read(report_of(one, two))
    assert f"Leak in {one.name}: log_step metrics.py:31 keeps 3.00 MiB every step" in text
    assert f"{two.name}: " in text and re.search(r"released [\d,]+ segments? \(.*?\) and allocated them again", text)


def test_the_same_advice_for_several_devices_is_one(report_of: Callable[..., Path]) -> None:
    """Listed for the device that it saves most on, with its savings on the others; advice without a device in its title
    names it.
    """
    path = path_of("multi-gpu", steps=2, layers=2, hidden=128, heads=4, sequence=64, devices=3, memory=4 << 30)
    found = [f for f in findings(snapreport.load(path)) if f.kind == "advice"]
    of_rule: dict[str, list[Any]] = {}
    for finding in found:
        of_rule.setdefault(finding.evidence["rule"], []).append(finding)
    assert any(len(same) == 3 for same in of_rule.values())
    _, text = read(report_of(path))
    for largest, *others in list(of_rule.values())[:4]:
        # Once among the findings; the verdict's chips name remedies, too.
        assert len(re.findall(r"Advice, cuda:\d " + re.escape(largest.title), text)) == 1
        assert f"Advice, cuda:{largest.device} {largest.title}" in text
        told = [f"cuda:{f.device} ({bytes_text(f.bytes)} less)" for f in others]
        assert (
            not others or f"The same holds for {', '.join(told[:-1]) + ' and ' * (len(told) > 1) + told[-1]}." in text
        )
