"""The benchmark of findings: the same runs everywhere; in the first of them nothing missed, invented or miscounted."""

from __future__ import annotations

from pathlib import Path

import corpus
import pytest

FEW = 14  # among which is every kind


def test_the_first_runs_are_told_as_planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(corpus.ROOT))
    from benchmarks import findings

    assert list(findings.runs(FEW)) == list(findings.runs(60))[:FEW]
    every = [run.planted for run in findings.runs()]
    assert {kind: every.count(kind) for kind in findings.SHARES} == findings.SHARES
    document = findings.measure(tmp_path, FEW)
    assert document["wrong"] == []
    for row in document["kinds"]:
        assert row["planted"] > 0, f"no {row['name']} among the first runs"
        assert (row["precision"], row["recall"], row["first"], row["exact"]) == (1, 1, 1, 1), row["name"]
