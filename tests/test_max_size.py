"""``--max-size``: what is left out, what always stays, and that the report and the command say so."""

from __future__ import annotations

from pathlib import Path

import cli
import corpus
import decoder
import numpy as np
import pytest

import snapreport


@pytest.fixture(scope="module")
def snapshot() -> Path:
    return corpus.path_of("serving")


@pytest.fixture(scope="module")
def whole(snapshot: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    report = tmp_path_factory.mktemp("whole") / "whole.html"
    assert cli.in_process(snapshot, "-o", report).code == 0
    return report


def smallest(snapshot: Path, folder: Path) -> int:
    """The minimum that the command says it can reach."""
    run = cli.in_process(snapshot, "--max-size", "1KiB", "-o", folder / "never.html")
    cli.assert_refused(run, "allowed")
    assert not (folder / "never.html").exists()
    # "… takes 223 KiB (227,931 bytes) …": the first number in full is the minimum.
    return int(run.err.split("(")[1].split(" bytes")[0].replace(",", ""))


def test_everything_where_it_fits(snapshot: Path, whole: Path, tmp_path: Path) -> None:
    run = cli.in_process(snapshot, "--max-size", "10MB", "-o", tmp_path / "r.html")
    assert run.code == 0 and "left out" not in run.err
    assert (tmp_path / "r.html").read_bytes() == whole.read_bytes()


def test_fits_and_says_what_went(snapshot: Path, whole: Path, tmp_path: Path) -> None:
    full = whole.stat().st_size
    limit = (smallest(snapshot, tmp_path) + full) // 2
    report = tmp_path / "r.html"
    run = cli.in_process(snapshot, "--max-size", limit, "-o", report)
    assert run.code == 0, run.err
    assert report.stat().st_size <= limit
    assert "left out to fit" in run.err and f"--max-size {full}" in run.err
    text = report.read_text(encoding="utf-8")
    assert "left out to fit" in text, "the report itself must say so"
    manifest = decoder.Report(text).manifest
    assert all(device["left_out"] for device in manifest["devices"])
    # The size that the command gives for including everything is enough.
    again = cli.in_process(snapshot, "--max-size", full, "-o", tmp_path / "again.html")
    assert again.code == 0 and (tmp_path / "again.html").read_bytes() == whole.read_bytes()


def test_totals_stay_exact_at_the_least(snapshot: Path, whole: Path, tmp_path: Path) -> None:
    report = tmp_path / "least.html"
    least = smallest(snapshot, tmp_path) + 256  # the limit itself is in the report, in words, digits and compressed
    assert cli.in_process(snapshot, "--max-size", least, "-o", report).code == 0
    kept, full = decoder.Report(report.read_text(encoding="utf-8")), decoder.Report(whole.read_text(encoding="utf-8"))
    timeline = snapreport.load(snapshot).timeline(0)
    for name in ("size", "stack", "alloc_event", "lifetime", "category"):
        np.testing.assert_array_equal(kept.device(0)[name], full.device(0)[name])
    assert kept.manifest["devices"][0]["stats"] == full.manifest["devices"][0]["stats"]
    assert kept.manifest["devices"][0]["peak_bytes"] == timeline.peak_bytes
    assert "addr_lo" in kept.manifest["devices"][0]["left_out"], "addresses weigh most: they cannot be there"


@pytest.mark.parametrize("size", ["", "ten", "-5MB", "0", "10 QB", "nan"])
def test_sizes_that_are_none(snapshot: Path, tmp_path: Path, size: str) -> None:
    run = cli.in_process(snapshot, f"--max-size={size}", "-o", tmp_path / "r.html")
    assert run.code == 2 and "Traceback" not in run.err and not (tmp_path / "r.html").exists()
