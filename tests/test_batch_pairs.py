"""Which tensors of one recording have a number for each pair of samples, by their sizes alone."""

from __future__ import annotations

import pickle
from pathlib import Path

import planted_trace
import pytest

import snapreport
from snapreport.allocator.whatif import WhatIf
from snapreport.forecast.batch_growth import batch_growth
from snapreport.forecast.prediction import DeviceFit
from snapreport.forecast.size_laws import AT_MOST_QUADRATIC, QUADRATIC, UNKNOWN
from snapreport.timeline.build import DeviceTimeline

LINEAR = {"filename": "/env/torch/nn/modules/linear.py", "line": 1, "name": "forward"}


def recorded(folder: Path, *mib: int, of_layer: bool = False) -> DeviceTimeline:
    record = planted_trace.Recording()
    for each in mib:
        record.request(each)
        if of_layer:
            record.trace[-1]["frames"].insert(0, LINEAR)
    path = folder / "trace.pickle"
    path.write_bytes(pickle.dumps(record.snapshot(), 4))
    return snapreport.load(path).timeline(0)


@pytest.mark.parametrize(
    ("mib", "batch", "kind"),
    [
        (9, 1536, QUADRATIC),  # 1,536² numbers of 32 bits
        (9, 768, QUADRATIC),  # of two views of each
        (9, 1535, UNKNOWN),
        (16, 2048, AT_MOST_QUADRATIC),  # or 2,048 numbers for each sample
        (16, 2048.5, UNKNOWN),
        (2500, 25_600, QUADRATIC),
    ],
)
def test_a_number_for_each_pair(mib: int, batch: float, kind: int, tmp_path: Path) -> None:
    assert batch_growth(recorded(tmp_path, mib), batch).kind.tolist() == [kind]
    assert batch_growth(recorded(tmp_path, mib, of_layer=True), batch).kind.tolist() != [QUADRATIC]


def test_some_numbers_for_each_pair(tmp_path: Path) -> None:
    """64 for each of 25,600² pairs, where there is one for each, too; multiples of 1,536² are sizes of many things."""
    assert batch_growth(recorded(tmp_path, 2500, 64 * 2500), 25_600).kind.tolist() == [QUADRATIC, QUADRATIC]
    assert batch_growth(recorded(tmp_path, 64 * 2500), 25_600).kind.tolist() == [UNKNOWN]
    assert batch_growth(recorded(tmp_path, 9, 64 * 9), 1536).kind.tolist() == [QUADRATIC, UNKNOWN]


def test_what_may_be_pairs_is_a_range(tmp_path: Path) -> None:
    fit = DeviceFit([2048.0], [WhatIf(recorded(tmp_path, 16))])
    assert [fit.peak_allocated(6144.0, least=least) >> 20 for least in (False, True)] == [9 * 16, 3 * 16]
    assert [fit.peak_allocated(1024.0, least=least) >> 20 for least in (False, True)] == [8, 4]
