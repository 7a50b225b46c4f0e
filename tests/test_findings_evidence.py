"""The evidence of every finding has the keys and types that its kind declares."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from expected import case

from snapreport.findings.gate_rules import FAILING_KINDS
from snapreport.findings.reference_cycles import CycleEvidence
from snapreport.findings.run import KINDS
from snapreport.schemas.documents import schema


def test_evidence_is_as_declared(telling_path: Path) -> None:
    kinds = {kind.name: kind for kind in KINDS}
    for finding in case(telling_path).found:
        assert type(finding.evidence) in kinds[finding.kind].evidence
        # mypy knows the types of what rules write, but not of rows that come from a table.
        msgspec.convert(finding.to_json()["evidence"], type(finding.evidence))


def test_every_kind_of_finding_is_known_everywhere() -> None:
    names = {kind.name for kind in KINDS}
    assert set(schema("stats --json")["$defs"]["Finding"]["properties"]["kind"]["enum"]) == names
    assert len(names) == len({kind.label for kind in KINDS}) == len(KINDS)
    assert set(FAILING_KINDS) < names


@pytest.mark.parametrize("change", [{"more": 1}, {"bursts": "1"}, {"bursts": True}])
def test_what_is_not_declared_is_refused(change: dict[str, object]) -> None:
    right = {"bursts": 1, "burst_bytes": 2, "burst_count": 3, "share_of_bytes": 0.5}
    assert msgspec.convert(right, CycleEvidence)["burst_count"] == 3
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**right, **change}, CycleEvidence)


def test_evidence_is_read_by_key() -> None:
    evidence = CycleEvidence(1, 2, 3, 0.5)
    assert evidence["bursts"] == evidence.get("bursts") == evidence.bursts == 1
    assert "bursts" in evidence and "verdict" not in evidence and evidence.get("verdict", "none") == "none"
    with pytest.raises(KeyError):
        evidence["verdict"]
