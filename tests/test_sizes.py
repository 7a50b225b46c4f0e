"""The sizes that are promised: a report costs little more than the page, its data less than a compressed pickle."""

from __future__ import annotations

import lzma
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import snapreport


@pytest.fixture(scope="module")
def empty_size(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Bytes of the report of a snapshot that holds nothing."""
    folder = tmp_path_factory.mktemp("empty")
    (folder / "empty.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
    return snapreport.write_report([snapreport.load(folder / "empty.pickle")], folder / "empty.html")


def test_the_page_itself(empty_size: int) -> None:
    assert 50_000 < empty_size < 350_000


def test_data_is_smaller_than_xz(snapshot_path: Path, report_of: Callable[..., Path], empty_size: int) -> None:
    if snapshot_path.suffix == ".pickle" and snapshot_path.stat().st_size > 100_000:
        data = report_of(snapshot_path).stat().st_size - empty_size
        # Names, categories and findings that the pickle does not have take up to half a kilobyte of their own.
        assert data <= len(lzma.compress(snapshot_path.read_bytes(), preset=9)) + 512
