"""Which files an argument of ``snapreport job`` names."""

from __future__ import annotations

from pathlib import Path

from snapreport.jobs.sources import expand


def test_a_path_is_a_pattern_only_where_it_does_not_exist(tmp_path: Path) -> None:
    for name in ("run[1].pickle", "run1.pickle", "run10.pickle", "run2.pickle"):
        (tmp_path / name).write_bytes(b"")
    assert expand([tmp_path / "run[1].pickle"]) == [str(tmp_path / "run[1].pickle")]
    assert expand([tmp_path / "run[12].pickle"]) == [str(tmp_path / f"run{number}.pickle") for number in (1, 2)]
    assert expand([tmp_path / "missing.pickle"]) == [str(tmp_path / "missing.pickle")]  # it fails when it is read
