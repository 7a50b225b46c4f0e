"""The page that ``snapreport fit -o`` writes: its chart draws the numbers of the answer."""

from __future__ import annotations

import re
from pathlib import Path

import cli
import corpus
import pytest

import snapreport
from snapreport.contracts.fit import FitDevice
from snapreport.forecast.answer import Question, fit_document
from snapreport.report.fit_chart import fit_chart
from snapreport.report.fit_page import fit_page


@pytest.fixture(scope="module")
def device() -> FitDevice:
    snapshot = snapreport.load(corpus.path_of("small"))
    (one,) = fit_document([snapshot], Question([8], [16, 24, 32], memory=400 << 20)).devices
    return one


def points(svg: str, name: str) -> list[tuple[float, float]]:
    (text,) = re.findall(rf'class="{name}"[^>]* points="([^"]*)"', svg)
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())]


def test_heights_are_proportional_to_bytes(device: FitDevice) -> None:
    svg = str(fit_chart(device, "batch"))
    bottom = max(float(y) for y in re.findall(r'class="grid"[^>]* d="M72 ([0-9.]+)', svg))
    sizes = [row.peak_allocated_bytes for row in device.predictions]
    for scale_of, expected in (
        (points(svg, "allocated"), sizes),
        (points(svg, "reserved"), [row.peak_reserved_bytes or 0 for row in device.predictions]),
    ):
        unit = (bottom - points(svg, "allocated")[-1][1]) / sizes[-1]
        for (_, y), size in zip(scale_of, expected, strict=True):
            assert bottom - y == pytest.approx(unit * size, abs=0.2)
    across = [x for x, _ in points(svg, "allocated")]
    assert across[1] - across[0] == pytest.approx(across[3] - across[2], abs=0.2)
    assert len(points(svg, "range")) == 2 * len(sizes)
    (line,) = re.findall(r'class="memory"[^>]* d="M72 ([0-9.]+)H', svg)
    assert bottom - float(line) == pytest.approx(
        (bottom - points(svg, "allocated")[-1][1]) / sizes[-1] * (400 << 20), abs=1
    )


def test_names_are_text(device: FitDevice) -> None:
    assert "<script" not in fit_chart(device, "<script>alert(1)</script>")


def test_the_page(tmp_path: Path) -> None:
    out = tmp_path / "fit.html"
    path = corpus.path_of("small")
    done = cli.in_process("fit", path, "--at", "8", "-o", out)
    assert done.code == 0
    page = out.read_text()
    assert "<svg" in page
    assert "<script" not in page
    assert all(line.split()[0] in page for line in done.out.splitlines() if line[:1].isdigit())
    cards = re.findall(r"^(\d+ GB), .* usable +(\d+(?: or more)?|none) ", done.out, re.MULTILINE)
    (answer,) = re.findall(
        r'<header id="top">\s*<h1>.*</h1>\s*<p class="headline">Largest batch: (.*) \(estimate\)', page
    )
    shown = answer.split(", ")
    assert shown == [f"{value} on {card}" for card, value in cards][: len(shown)], "the answer comes first"
    assert re.findall(r'text-anchor="middle">(\d+)<', page) == [str(value) for value in range(2, 33, 4)]
    assert cli.in_process("fit", path, "--at", "8", "-o", path).code == 2
    out.write_text("not ours")
    assert cli.in_process("fit", path, "--at", "8", "-o", out).code == 2
    assert out.read_text() == "not ours"


def test_the_slider_says_where_each_value_fits() -> None:
    """One choice for each value, its answer and its mark in the chart; the recorded value is chosen first."""
    snapshot = snapreport.load(corpus.path_of("small"))
    document = fit_document([snapshot], Question([8], [4, 16, 32]))
    (device,) = document.devices
    page = fit_page(document).decode()
    assert re.findall(r'id="device0-value(\d)"( checked)?>(\d+)<', page) == [
        ("0", "", "4"), ("1", " checked", "8"), ("2", "", "16"), ("3", "", "32"),
    ]  # fmt: skip
    answers = re.findall(r'class="value-answer answer\d">\s*<p>Batch (\d+): (.*?)</p>\s*<p>(.*?)</p>', page)
    assert [int(value) for value, _, _ in answers] == [row.value for row in device.predictions]
    assert page.count('class="mark mark') == 4
    assert "(recorded)" in answers[1][1]
    assert all(where == f"It fits on {', '.join(str(one.card) for one in device.largest)}." for _, _, where in answers)
    small = fit_document(
        [snapshot], Question([8], [512], memory=int(1.2 * snapshot.peak(device.device)["max_reserved"]))
    )
    assert "It does not fit on" in fit_page(small).decode()
