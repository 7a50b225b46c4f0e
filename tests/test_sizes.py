"""The sizes that the README states: of the page, and of what a snapshot adds to it."""

from __future__ import annotations

import lzma
import pickle
from collections.abc import Callable
from pathlib import Path

import corpus
import pytest

import snapreport

PAGE = 367_000  # bytes


@pytest.fixture(scope="module")
def empty_size(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Bytes of the report of an empty snapshot."""
    folder = tmp_path_factory.mktemp("empty")
    (folder / "empty.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
    return snapreport.write_report([snapreport.load(folder / "empty.pickle")], folder / "empty.html")


def test_the_page_itself(empty_size: int) -> None:
    assert 50_000 < empty_size < PAGE


@pytest.mark.parametrize("name", ["small", "training", "multi-gpu", "compiled", *corpus.varied_names()])
def test_a_report_is_the_page_and_a_compressed_pickle(
    name: str, report_of: Callable[..., Path], empty_size: int
) -> None:
    """The whole file, not a difference: what the page gains or loses shows here too."""
    snapshot_path = corpus.path_of(name)
    pickled = snapshot_path.read_bytes()
    compressed = len(lzma.compress(pickled, preset=9))
    # Summary, findings and categories, which the pickle does not contain, outweigh the events of a small one.
    allowance = 0 if len(pickled) >= 1_000_000 else 9_000
    assert report_of(snapshot_path).stat().st_size <= PAGE + compressed + allowance
    assert report_of(snapshot_path).stat().st_size - empty_size <= compressed + allowance
