"""Exports in speedscope itself: its lists show the bytes of each device and of each function at the peak."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import corpus
import polars as pl
import pytest
from cli import in_process
from playwright.sync_api import Browser
from served import served
from waiting import GUARD_SECONDS

import snapreport

SPEEDSCOPE = corpus.NODE_MODULES / "speedscope" / "dist" / "release"
ROWS = "[...document.querySelectorAll('tr')].map(row => [...row.cells].map(cell => cell.innerText.trim()))"
# The bar of a function's own bytes is as wide as its share of all.
OWN = """[...document.querySelectorAll('tr')]
    .map(({ cells: [, own, name] }) => [name?.innerText, name?.title, own.querySelector('div > div')?.style.width])
    .filter(([, , width]) => width).map(([name, file, width]) => [name, file, parseFloat(width)])"""

pytestmark = pytest.mark.skipif(not SPEEDSCOPE.is_dir(), reason="speedscope comes with npm ci in static/")


@pytest.mark.parametrize("sample", ["two_devices", "serving"])
def test_it_shows_the_bytes_at_the_peak(sample: str, chromium: Browser, tmp_path: Path) -> None:
    path = corpus.SAMPLES / f"{sample}.pickle.xz"
    run = in_process("export", path, "--to", "speedscope", "-o", tmp_path / "profile.json")
    assert run.code == 0, run.err
    snapshot = snapreport.load(path)
    peaks = {device: snapshot.peak(device) for device in snapshot.devices}
    first = peaks[snapshot.devices[0]]
    table = snapshot.allocations(snapshot.devices[0])
    is_live = (pl.col("free_event") < 0) | (pl.col("free_event") > first["position"])
    live = table.filter(is_live, pl.col("alloc_event") <= first["position"])
    own: Counter[tuple[str, str]] = Counter()
    for stack, size in live.select("stack", "size").iter_rows():
        frames = snapshot.frames(stack)
        own[frames["name"][0] if len(frames) else "no stack trace", frames["filename"][0] if len(frames) else ""] += (
            size
        )

    with served(SPEEDSCOPE, {"/profile.json": (tmp_path / "profile.json").read_bytes()}) as address:
        page = chromium.new_page(viewport={"width": 1300, "height": 900})
        page.set_default_timeout(1000 * GUARD_SECONDS)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{address}/#profileURL={address}/profile.json")
        page.get_by_text("Sandwich").click()
        page.get_by_text("Symbol Name").wait_for()
        devices = [tuple(cells[1:]) for cells in page.evaluate(ROWS) if len(cells) == 3 and cells[0].isdigit()]
        shown: Counter[tuple[str, str]] = Counter()
        for name, file, share in page.evaluate(OWN):
            shown[name, file] += share
        page.close()
    assert not errors
    if len(peaks) > 1:  # else there is no list
        names = [f"cuda:{device} at the peak" for device in peaks]
        assert devices == [(n, f"{p['allocated'] / 2**30:.2f} GB") for n, p in zip(names, peaks.values(), strict=True)]
    assert sum(own.values()) == first["allocated"]
    shares = {key: 100 * size / first["allocated"] for key, size in own.items()}
    assert {key: share for key, share in shown.items() if share} == pytest.approx(shares, abs=1e-3)
