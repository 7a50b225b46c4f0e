"""Reports that were truncated or changed in transit: the page says so, and never shows wrong numbers without a note."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import firefox
import pytest

import snapreport

CUT = "This file is cut off: it was written with "
# What a user sees: notes, and the numbers of the interactive part and of the summary.
SEEN = """async () => {
    const isShown = element => !!element && element.getClientRects().length > 0
    const textOf = selector => { const e = document.querySelector(selector); return isShown(e) ? e.textContent : '' }
    const wait = ms => new Promise(done => setTimeout(done, ms))
    let opened = ''
    if (window.snapreport) {
        const stats = () => JSON.stringify(snapreport.devices().map(d => snapreport.stats(d)))
        const ready = snapreport.ready.then(stats, error => 'failed: ' + error)
        opened = await Promise.race([ready, wait(300000).then(() => 'failed: never')])
        const end = performance.now() + 300000
        const isChecked = () => performance.getEntriesByName('snapreport:checked').length > 0
        while (!opened.startsWith('failed') && !isChecked() && performance.now() < end) await wait(5)
    }
    const css = getComputedStyle(document.documentElement, '::before')
    return {
        opened,
        notes: [textOf('#damage'), textOf('.unrun'), textOf('#app').match(/^This report cannot.*/)?.[0],
            css.content !== 'none' && css.display !== 'none' ? css.content : ''].filter(Boolean).join(' | '),
        summary: (document.getElementById('summary') ?? document.body)?.textContent,
    }
}"""


class Damaged:
    """Opens changed copies of one report, all in one page."""

    def __init__(self, page: Any, source: Path, folder: Path) -> None:
        self.page, self.path = page, folder / "damaged.html"
        self.data = source.read_bytes()
        self.whole = self.look(self.data)

    def look(self, data: bytes) -> dict[str, str]:
        self.path.write_bytes(data)
        self.page.goto(self.path.as_uri())
        seen: dict[str, str] = self.page.evaluate(SEEN)
        return seen

    def place_of(self, blob: str) -> slice:
        found = re.search(rb'data-blob="' + re.escape(blob.encode()) + rb'">([^<]*)<', self.data)
        assert found
        return slice(*found.span(1))

    def without(self, at: int, length: int = 1) -> bytes:
        changed = bytes(byte ^ 1 for byte in self.data[at : at + length])
        return self.data[:at] + changed + self.data[at + length :]


@pytest.fixture(scope="module")
def damaged(chromium: Any, report_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    context = chromium.new_context(offline=True)
    yield Damaged(context.new_page(), report_of(corpus.path_of("small")), tmp_path_factory.mktemp("damaged"))
    context.close()


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report in several blobs."""
    from snapreport.report import payload

    out = tmp_path_factory.mktemp("parts") / "parts.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload, "ONE_BLOB_UP_TO", 0)
        snapreport.write_report([snapreport.load(corpus.path_of("multi-gpu"))], out)
    return out


def test_a_whole_report_has_no_note(damaged: Damaged) -> None:
    assert damaged.whole["notes"] == "" and damaged.whole["opened"].startswith("[{")
    assert f'data-bytes="{len(damaged.data):,}"' in damaged.data[:200].decode()
    assert f"it has {len(damaged.data):,} bytes" in damaged.data[-600:].decode()


def test_wherever_it_is_cut_off_it_says_so(damaged: Damaged) -> None:
    code, data = damaged.place_of("application"), damaged.place_of("main")
    ends = [500, 3_000, 30_000, code.start - 900, code.start + 9, code.stop - 9, data.start, data.stop - 9, data.stop]
    for end in [*ends, len(damaged.data) - 400]:
        seen = damaged.look(damaged.data[:end])
        assert CUT in seen["notes"] or "The end of this file is missing" in seen["notes"], end
        if end > 3_000:
            assert f"{CUT}{len(damaged.data):,} bytes" in seen["notes"], end
        if not seen["opened"].startswith("[{"):
            assert (
                "shows the summary only" in seen["notes"]
                or "This report cannot be shown" in seen["notes"]
                or end < 3_001
            )
        else:
            assert seen["opened"] == damaged.whole["opened"]


def test_cut_off_without_scripts(chromium: Any, damaged: Damaged) -> None:
    """The style sheet's note; it waits for two seconds, in which a file may still be loading."""
    page = chromium.new_context(java_script_enabled=False).new_page()
    note = "getComputedStyle(document.documentElement, '::before').content"
    for end in (2_000, 20_000, damaged.place_of("application").start + 9, damaged.place_of("main").stop - 9):
        damaged.path.write_bytes(damaged.data[:end])
        page.goto(damaged.path.as_uri())
        assert "The end of this file is missing" in page.evaluate(note), end
        assert page.evaluate("getComputedStyle(document.documentElement, '::before').display") == "block"
    damaged.path.write_bytes(damaged.data)
    page.goto(damaged.path.as_uri())
    assert page.evaluate("getComputedStyle(document.documentElement, '::before').display") == "none"
    page.context.close()


@pytest.mark.parametrize(
    ("blob", "says"),
    [
        ("application", "The application in this file is damaged, so this page shows the summary only."),
        ("views", "the code of all views but the timeline cannot be read. Everything else is intact."),
        ("main", "This report cannot be shown: the part “main” of this file is damaged"),
    ],
)
def test_a_changed_byte_of_a_part_is_named(damaged: Damaged, blob: str, says: str) -> None:
    place = damaged.place_of(blob)
    for at in (place.start, (place.start + place.stop) // 2, place.stop - 1):
        seen = damaged.look(damaged.without(at))
        assert says in seen["notes"] and seen["summary"] == damaged.whole["summary"]


def test_the_rest_of_a_damaged_report_is_shown(chromium: Any, two_devices: Path, tmp_path: Path) -> None:
    context = chromium.new_context(offline=True)
    report = Damaged(context.new_page(), two_devices, tmp_path)
    assert report.whole["notes"] == ""
    place = report.place_of("d1")
    seen = report.look(report.without(place.start + 100))
    assert "the allocations of cuda:1 cannot be read. Everything else is intact." in seen["notes"]
    assert seen["opened"] == report.whole["opened"]
    assert report.page.evaluate("snapreport.pick(0, snapreport.stats(0).peak_event, 9) !== null")
    assert "damaged" in report.page.evaluate("Promise.resolve().then(() => snapreport.pick(1, 0, 0)).catch(String)")
    # Truncated within the second device, it answers about the first; the device that it would show is missing.
    seen = report.look(report.data[: place.start + 100])
    assert seen["opened"] == report.whole["opened"]
    assert CUT in seen["notes"] and "the allocations of cuda:1" in seen["notes"]
    assert report.page.evaluate("snapreport.pick(0, snapreport.stats(0).peak_event, 9) !== null")
    context.close()


@pytest.mark.parametrize(
    ("place", "old"),
    [
        (b"memory report</title>", b"r"),
        (b"it has ", b"h"),
        (b" bytes and loads", b"b"),
        (b"1024 bytes", b"4"),
        (b"numbered from 0", b"n"),
        (b"<footer", b"t"),
        (b"<style>html::before{display", b"y"),
        (b"</header>\n<main>", b"\n"),
        (b"default-src ", b"d"),
    ],
    ids=lambda value: value.decode() if len(value) > 1 else "",
)
def test_a_changed_word_outside_of_the_summary_is_noticed(damaged: Damaged, place: bytes, old: bytes) -> None:
    at = damaged.data.rindex(place) + place.index(old)
    seen = damaged.look(damaged.data[:at] + bytes([old[0] ^ 64]) + damaged.data[at + 1 :])
    assert seen["notes"]


def test_random_changes_never_show_other_numbers_silently(damaged: Damaged) -> None:
    """Changes that alter nothing visible may go unnoticed."""
    chance = random.Random(7)
    silent = 0
    for number in range(10):
        at = chance.randrange(len(damaged.data)) if number % 2 else chance.choice([*range(900, 60_000, 7)])
        bit = 1 << chance.randrange(8)
        changed = damaged.data[:at] + bytes([damaged.data[at] ^ bit]) + damaged.data[at + 1 :]
        seen = damaged.look(changed)
        is_same = all(seen[key] == damaged.whole[key] for key in ("opened", "summary"))
        assert seen["notes"] or is_same, (at, bit, damaged.data[at - 20 : at + 20])
        silent += not seen["notes"]
    assert silent <= 2


@pytest.mark.parametrize("change", ["CRLF", "UTF-16", "Latin-1", "mark"])
def test_other_encodings_and_line_ends_are_no_damage(damaged: Damaged, change: str) -> None:
    text = damaged.data.decode()
    changed = {
        "CRLF": text.replace("\n", "\r\n").encode(),
        "UTF-16": text.encode("utf-16"),
        # As a server's wrong header makes a browser read it, and as an editor saves what it took for Latin-1.
        "Latin-1": damaged.data.replace(b'<meta charset="utf-8">', b'<meta charset="latin1">'),
        "mark": b"\xef\xbb\xbf" + damaged.data,
    }[change]
    seen = damaged.look(changed)
    assert seen["notes"] == "" and seen["opened"] == damaged.whole["opened"]


def test_in_firefox_too(damaged: Damaged) -> None:
    binary = firefox.find()
    if not binary:
        pytest.skip(firefox.NONE)
    code = damaged.place_of("application")
    with firefox.launched(binary) as page:
        for data, says in (
            (damaged.data, ""),
            (damaged.data[: code.start + 99], CUT),
            (damaged.data[:2_000], "The end of this file is missing"),
            (damaged.without(code.start + 99), "The application in this file is damaged"),
            (damaged.without(damaged.place_of("main").start + 99), "is damaged"),
        ):
            damaged.path.write_bytes(data)
            page.open(damaged.path.as_uri(), 1200, 800)
            notes = page.js(f"({SEEN})()")["notes"]
            assert says in notes and bool(says) == bool(notes)
