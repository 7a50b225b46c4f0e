"""Kinds of findings, and the order of findings."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from snapreport.contracts.finding import Evidence, Finding, Severity
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline

__all__ = ["SEVERITIES", "Finding", "FindingKind", "order"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


class FindingKind(Struct, frozen=True):
    """A kind of finding, declared by its rule.

    name: in JSON. label: shown before a finding's title; a title that begins with it is split there. evidence: the
    types that its findings' evidence may have. find: examines one device, and returns nothing where it finds nothing;
    None where another kind's rule makes these findings, too. of_profile: whether it needs nothing of the allocator's
    segments and failures, which a profiler's trace lacks. rank: of cards with the same severity, the smallest first.
    """

    name: str
    label: str
    evidence: tuple[type[Evidence], ...]
    find: Callable[[Snapshot, DeviceTimeline], list[Finding]] | None = None
    of_profile: bool = False
    rank: int = 0


def order(finding: Finding) -> tuple[int, bool, int, int, int]:
    """Sort key: errors before warnings before information; what would have avoided a failure; what a person does first;
    most bytes; device.
    """
    avoids_failure = bool(finding.evidence.get("avoids_failure"))
    priority = int(finding.evidence.get("priority", 0))
    return SEVERITIES.index(finding.severity), not avoids_failure, priority, -finding.bytes, finding.device
