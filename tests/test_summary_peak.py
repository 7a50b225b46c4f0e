"""What the peak is made of is in the static summary and in a ticket's Markdown: by category, function and
module path.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import corpus
import held_oracle
import oracle
import pytest
from cli import on_loaded
from planted import path_of, rewritten
from test_findings_words import share_words, size_words

import snapreport
from snapreport.report.summary import Card, summarise

HONEST = "Modules are named by the file and line of their forward(): a stack trace does not hold their names."
KEYS = ("category", "place", "module")


def cards(path: Path) -> dict[int, Card]:
    """Of the devices with data, in their order."""
    devices = corpus.replayed(path).items()
    shown = [number for number, device in devices if device.events or device.allocations or max(device.reserved)]
    return dict(zip(shown, summarise([corpus.loaded(path)], "t").cards, strict=True))


def cut(path: str) -> str:
    places = path.split(" › ")
    return path if len(places) <= 5 else " › ".join(["…", *places[-5:]])


def all_of(device: oracle.Device, key: str) -> dict[str, int]:
    """Bytes at the peak by the summary's names; what is in no module is omitted."""
    live = held_oracle.live_at(device, device.peak_event)
    keys = {"category": held_oracle.category, "place": lambda a: held_oracle.place(a.stack)}
    sums = held_oracle.sums(live, keys.get(key) or held_oracle.module_of(live))
    rest = {str(name): row["bytes"] for name, row in sums.items() if name or key != "module"}
    return {cut(name) if key == "module" else name: size for name, size in rest.items()}


def has_names(device: oracle.Device) -> bool:
    return held_oracle.has_modules(held_oracle.live_at(device, device.peak_event))


def test_every_row(telling_path: Path) -> None:
    """The five largest of at least 1%, and the sum of the others; a single row with everything becomes a sentence."""
    for number, card in cards(telling_path).items():
        device = corpus.replayed(telling_path)[number]
        if not device.peak_bytes:
            assert not card.parts
            continue
        parts = {part.key: part for part in card.parts}
        for key in KEYS:
            held = all_of(device, key)
            max_or_zero, total = sorted(held.values(), reverse=True), sum(held.values())
            if not max_or_zero or max_or_zero[0] == device.peak_bytes:
                assert key not in parts
                assert ("All of it is " in " ".join(card.peak)) or not max_or_zero
                continue
            if total < 0.01 * device.peak_bytes:
                assert key not in parts
                continue
            rows = parts[key].rows
            named = [row for row in rows if row[2] != "others"]
            large = [size for size in max_or_zero[:5] if size >= 0.01 * device.peak_bytes]
            want = [*large, *[total - sum(large)] * (total - sum(large) >= 0.01 * device.peak_bytes)]
            assert [(size, share) for size, share, _ in rows] == [
                (size_words(s), share_words(s, device.peak_bytes)) for s in want
            ]
            assert len(named) == len(large)
            for size, _, name in named:
                assert size_words(held[name]) == size
            if key == "module":
                what = "module" if has_names(device) else "module path"
                assert parts[key].title == f"By {what}, {share_words(total, device.peak_bytes)} of it"


def test_the_page_says_it_with_scripts_off(report_of: Callable[..., Path], open_report: Callable[..., object]) -> None:
    path = path_of("training", steps=2)
    opened = open_report(report_of(path), java_script_enabled=False)
    tables = opened.page.locator(".device .by table")
    assert [t.split("\n")[0].split(",")[0] for t in tables.all_inner_texts()] == [
        "By category",
        "By line",
        "By module path",
    ]
    assert all(tables.nth(i).is_visible() for i in range(3))
    assert HONEST in opened.page.locator(".legend").inner_text()
    assert "model.py:178 › model.py:124" in tables.nth(2).inner_text()


@pytest.mark.parametrize("width", [360, 1400])
def test_rows_stay_readable(width: int, report_of: Callable[..., Path], open_report: Callable[..., object]) -> None:
    """Nothing extends beyond its table, however long its names are."""

    def rename(frame: dict) -> None:
        if frame["name"] != "forward" and not frame["filename"].endswith("module.py"):
            frame["name"] = "a_rather_long_name_of_a_function_that_someone_wrote_" + frame["name"]

    path = rewritten(path_of("training", steps=1, layers=2), "long-names.pickle", rename)
    opened = open_report(report_of(path), java_script_enabled=False, viewport={"width": width, "height": 800})
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wide = (
        "[...document.querySelectorAll('.by table')].filter(t => t.scrollWidth > t.parentElement.clientWidth + "
        "1).length"
    )
    assert opened.page.evaluate(wide) == 0
    if width == 360:
        lefts = opened.page.evaluate(
            "[...document.querySelectorAll('.by table')].map(t => t.getBoundingClientRect().left)"
        )
        assert len(set(lefts)) == 1, "below each other"


def test_a_ticket_says_it(telling_path: Path) -> None:
    text = on_loaded("stats", "--markdown", telling_path).out
    for number, card in cards(telling_path).items():
        names = has_names(corpus.replayed(telling_path)[number])
        for part in card.parts:
            line = next(
                line
                for line in text.splitlines()
                if line.startswith(f"- {part.title}: {part.rows[0][0]} ({part.rows[0][1]})")
            )
            assert (HONEST in line) == (part.key == "module" and not names)
            assert len(re.findall(r"B \(", line)) == min(3, len(part.rows))


def test_without_frames_the_summary_says_so() -> None:
    (card,) = cards(corpus.path_of("no-stacks")).values()
    assert [part.key for part in card.parts] in ([], ["category"])
    assert card.peak[-1].endswith("without a stack trace.")


def test_a_final_state_is_no_peak() -> None:
    """Without a trace there is nothing to draw, and live memory is not called a peak."""
    if "torch20_history_blocks.pickle" not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    summary = summarise([snapreport.load(corpus.path_of("torch20_history_blocks.pickle"))], "t")
    assert summary.headline_text == [
        "Parameters hold 100% of the final state, 63% of it in allocate pytorch_backend.py:190.",
        "Final state of cuda:0: 11.0 GiB allocated, 11.0 GiB reserved. Parameters 11.0 GiB.",
    ]
    (card,) = summary.cards
    assert not card.preview and card.doubts == [
        "Recorded without history: only the final state is known. "
        "Call torch.cuda.memory._record_memory_history() before the model is built."
    ]
    assert card.peak[-1] == "All of it is parameters, allocated in allocate pytorch_backend.py:190."
