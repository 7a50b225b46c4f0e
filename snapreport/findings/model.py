"""A finding: one statement about a snapshot's memory, with its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from snapreport.contracts import plain
from snapreport.contracts.finding import Confidence, Severity

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """One thing found on one device.

    kind: "peak", "oom", "fragmentation", "leak", "live_at_end", "churn" or "advice". title: one sentence, as a
    colleague would say it. detail: more sentences. bytes: what it is about, for the order of findings. event: the
    position to look at, None where it is about the whole trace; stack: the stack it is about, None where there is no
    one. evidence: the numbers behind the sentences, plain values for JSON; their types are in ``evidence.py``. basis:
    what it rests on, in sentences: events seen, how many bytes have frames, what the record cannot tell. confidence:
    "measured" where it follows from the record, "inferred" where a rule was met that has exceptions, "estimate" where
    something needed for certainty was not recorded. link: the state of the page that shows it: ``view``, and where they
    help ``at`` (a position), ``x``
    (first and last position), ``query``.
    """

    kind: str
    device: int
    severity: Severity
    title: str
    detail: Sequence[str] = field(default_factory=list)
    bytes: int = 0
    event: int | None = None
    stack: int | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    basis: Sequence[str] = field(default_factory=list)
    confidence: Confidence = "measured"
    link: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values; sentences without their parts."""
        document: dict[str, Any] = plain(self)
        return document


def order(finding: Finding) -> tuple[int, bool, int, int, int]:
    """Sort key: errors before warnings before information; what would have avoided a failure; what a person does first;
    most bytes; device.
    """
    avoids_failure = bool(finding.evidence.get("avoids_failure"))
    priority = int(finding.evidence.get("priority", 0))
    return SEVERITIES.index(finding.severity), not avoids_failure, priority, -finding.bytes, finding.device
