"""Every saving equals the tests' own replay to the byte, on every available snapshot, with what its query selects."""

from __future__ import annotations

from pathlib import Path

import corpus
import oracle
import pytest
import recorded
import saving_oracle

from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.number_format import arrow_text
from snapreport.snapshot import Snapshot

MIN_SHARE = 0.02


def of_setting(finding: Finding) -> str:
    """What the title of a replayed setting claims; tests/test_advice_recorded.py compares it with real runs."""
    evidence = finding.evidence
    return f": peak reserved {arrow_text(evidence['reserved_bytes'], evidence['replayed_bytes'])} (replayed)"


def check(snapshot: Snapshot, replayed: dict[int, oracle.Device]) -> int:
    """How many savings were compared."""
    given = [f for f in findings(snapshot) if f.kind == "advice"]
    count = 0
    for device in replayed:
        here = [f for f in given if f.device == device]
        peak = replayed[device].peak_bytes
        changes = {}
        for finding in here:
            saving = finding.evidence["saving"]
            if saving is None:
                assert finding.evidence["at_peak_bytes"] is None
                assert "→" not in finding.title or of_setting(finding) in finding.title
                continue
            change = saving_oracle.bytes_out(snapshot, device, replayed[device], saving)
            changes[finding.evidence["rule"]] = change
            assert change, f"{finding.title}: its query selects nothing"
            most, event = saving_oracle.peak_without(replayed[device], change)
            assert (saving["peak_bytes"], saving["peak_event"]) == (most, event), finding.title
            assert saving["saves_bytes"] == peak - most == finding.bytes
            assert saving["saves_bytes"] >= MIN_SHARE * peak, f"{finding.title}: too little to say"
            assert finding.evidence["at_peak_bytes"] == saving_oracle.at_peak(replayed[device], change)
            count += 1
        sizes = [f.bytes for f in here if f.evidence["saving"]]
        assert sizes == sorted(sizes, reverse=True), "the greatest saving first"
        for finding in here:
            if both := finding.evidence["together"]:
                every = saving_oracle.largest(changes[rule] for rule in both["rules"])
                most, event = saving_oracle.peak_without(replayed[device], every)
                assert (both["peak_bytes"], both["peak_event"]) == (most, event), finding.detail
                assert both["saves_bytes"] == peak - most
                best = [f for f in here if f.evidence["saving"]][:2]
                assert both["rules"] == [f.evidence["rule"] for f in best] and finding is best[0]
                count += 1
    return count


def test_every_saving_is_replayed(snapshot_path: Path) -> None:
    check(corpus.loaded(snapshot_path), corpus.replayed(snapshot_path))


@pytest.mark.parametrize("name", recorded.cases())
def test_every_saving_on_recordings_of_real_pytorch(name: str) -> None:
    path = recorded.ROOT / f"{name}.pickle"
    # Pinned memory gets no saving; newer recorders write it in a form that the oracle does not support.
    raw = {key: value for key, value in corpus.raw(path).items() if not key.startswith("host_")}
    check(recorded.load(name), oracle.replay(raw))


def test_savings_are_compared() -> None:
    """The files that are always present have some, also of two together."""
    path = corpus.path_of("training")
    assert check(corpus.loaded(path), corpus.replayed(path)) >= 4
