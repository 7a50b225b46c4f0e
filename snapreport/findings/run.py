"""Every finding of a snapshot: the one list of the finders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from snapreport.findings.advice import advice_findings
from snapreport.findings.churn import churn_findings
from snapreport.findings.fragmentation import fragmentation_findings
from snapreport.findings.live_at_end import end_findings
from snapreport.findings.model import Finding, order
from snapreport.findings.oom import oom_findings
from snapreport.findings.peak import peak_findings
from snapreport.reading.recording import Recording
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline

# Each examines one device, and gives nothing where it finds nothing.
FINDERS: tuple[Callable[[Snapshot, DeviceTimeline], list[Finding]], ...] = (
    oom_findings,
    fragmentation_findings,
    end_findings,
    churn_findings,
    peak_findings,
)
# Of a profiler's trace, which has nothing of the allocator's segments and failures.
PROFILE_FINDERS = (end_findings, peak_findings)


_known: WeakKeyDictionary[Snapshot, tuple[Recording, dict[int, list[Finding]]]] = WeakKeyDictionary()


def findings(snapshot: Snapshot, devices: Sequence[int] | None = None) -> list[Finding]:
    """Of ``devices``, by default all: errors, then warnings, then information, each with most bytes first.

    A device's findings are looked for once: a report, its summary, a ticket and a digest ask for the same ones.
    """
    recording, found = _known.get(snapshot, (None, {}))
    if recording is not snapshot.recording:  # redaction puts another one in its place
        found = {}
        _known[snapshot] = snapshot.recording, found
    wanted = snapshot.devices if devices is None else devices
    for device in wanted:
        if device not in found:
            found[device] = _find(snapshot, snapshot.timeline(device))
    return sorted((finding for device in wanted for finding in found[device]), key=order)


def _find(snapshot: Snapshot, timeline: DeviceTimeline) -> list[Finding]:
    finders = PROFILE_FINDERS if snapshot.recording.is_profiled else FINDERS
    found = [finding for find in finders for finding in find(snapshot, timeline)]
    found += advice_findings(snapshot, timeline, found)
    return [_doubted(finding) for finding in found] if timeline.recording_gaps else found


def _doubted(finding: Finding) -> Finding:
    """Where events are missing from the recording, no finding is sure."""
    return replace(finding, confidence="inferred") if finding.confidence == "measured" else finding
