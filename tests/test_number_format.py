"""Sizes, counts and shares read the same in Python's outputs and on the page, over small, large and awkward values."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest

from snapreport.number_format import bytes_text, count_text, duration_text, share_text

ASK = """([sizes, shares]) => JSON.stringify({
    sizes: sizes.map(size => snapreport.debug.format.bytes(size)),
    counts: sizes.map(size => snapreport.debug.format.count(size)),
    shares: shares.map(([part, whole]) => snapreport.debug.format.share(part, whole))})"""


def sizes() -> list[int]:
    """Every size up to some KiB, both sides of each unit's limits and roundings, and random ones up to 8 PiB."""
    dice = random.Random(11)
    borders = [
        round(figure * 1024**unit) for unit in range(1, 6) for figure in (0.9994, 0.9995, 1, 9.995, 99.95, 1023.5)
    ]
    near = [border + off for border in borders for off in (-1, 0, 1) if border < 2**53]
    halves = [1024**unit * (2 * k + 1) // 200 for unit in (1, 2, 3) for k in range(100, 2100, 7)]
    return [
        *range(5000),
        *near,
        *halves,
        *(int(2 ** dice.uniform(0, 53)) for _ in range(20_000)),
        -1,
        -1536,
        -(3 << 30),
    ]


def shares() -> list[tuple[int, int]]:
    """Every thousandth, what rounds either way, the minimum, zero, and random parts of real wholes."""
    dice = random.Random(12)
    found = [(part, 1000) for part in range(1001)] + [(part, 20_000) for part in range(0, 20_001, 5)]
    found += [(0, 0), (5, 0), (0, 5), (1, 1 << 45), (1, 2), (3, 2), (1 << 40, (1 << 40) + 1)]
    for _ in range(20_000):
        whole = int(2 ** dice.uniform(0, 46))
        found.append((dice.randint(0, whole), whole))
    return found


def test_python_and_page_write_numbers_alike(report_of: Callable[..., Path], open_report: Callable[..., Any]) -> None:
    opened = open_report(report_of(corpus.path_of("small")))
    asked, parts = sizes(), shares()
    found = json.loads(opened.page.evaluate(ASK, [asked, parts]))
    assert found["sizes"] == [bytes_text(size) for size in asked]
    assert found["counts"] == [count_text(size) for size in asked]
    assert found["shares"] == [share_text(part, whole) for part, whole in parts]


@pytest.mark.parametrize(
    ("part", "whole", "words"),
    [
        (0, 7, "0%"),
        (1, 3000, "<0.1%"),
        (1, 2000, "0.1%"),
        (1, 250, "0.4%"),
        (99, 1000, "9.9%"),
        (9_949, 100_000, "9.9%"),
        (9_950, 100_000, "10%"),
        (5, 8, "63%"),
        (1, 1, "100%"),
    ],
)
def test_shares(part: int, whole: int, words: str) -> None:
    assert share_text(part, whole) == words


@pytest.mark.parametrize(
    ("microseconds", "words"),
    [(0, "0 µs"), (99, "99 µs"), (100, "0.1 ms"), (48_000, "48.0 ms"), (225_300, "225 ms"), (999_500, "1.0 s")],
)
def test_durations(microseconds: int, words: str) -> None:
    assert duration_text(microseconds) == words
