"""Every finding of a snapshot: the one list of the finders."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from snapreport import plugins, progress
from snapreport.findings.advice import ADVICE, advice_findings
from snapreport.findings.churn import CHURN
from snapreport.findings.fragmentation import FRAGMENTATION
from snapreport.findings.leaks import LEAK, TOO_FEW_STEPS
from snapreport.findings.live_at_end import LIVE_AT_END
from snapreport.findings.model import Finding, FindingKind, order
from snapreport.findings.oom import OOM
from snapreport.findings.peak import PEAK
from snapreport.reading.recording import Recording
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline

KINDS: tuple[FindingKind, ...] = (
    OOM, FRAGMENTATION, LEAK, LIVE_AT_END, CHURN, PEAK, ADVICE, *plugins.load_all(plugins.FINDINGS),
)  # fmt: skip
"""Every kind of finding, in the order in which their rules run; advice looks at the others' findings."""

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
    new = [device for device in wanted if device not in found]
    with progress.stage("findings", len(new) * (len(KINDS) + 1), "") as bar:
        for device in new:
            found[device] = _find(snapshot, snapshot.timeline(device), bar)
    return _said_once(sorted((finding for device in wanted for finding in found[device]), key=order))


def _said_once(found: list[Finding]) -> list[Finding]:
    """The same findings, the hint to record more steps in the first that has it."""
    having = [number for number, finding in enumerate(found) if TOO_FEW_STEPS in finding.detail]
    for number in having[1:]:
        detail = [line for line in found[number].detail if line != TOO_FEW_STEPS]
        found[number] = replace(found[number], detail=detail)
    return found


def _find(snapshot: Snapshot, timeline: DeviceTimeline, bar: progress.Bar) -> list[Finding]:
    kinds = [kind for kind in KINDS if kind.of_profile or not snapshot.recording.is_profiled]
    found: list[Finding] = []
    for kind in kinds:
        found += kind.find(snapshot, timeline) if kind.find else []
        bar.advance(1)
    found += advice_findings(snapshot, timeline, found)
    bar.advance(1)
    return [_doubted(finding) for finding in found] if timeline.recording_gaps else found


def _doubted(finding: Finding) -> Finding:
    """Where events are missing from the recording, no finding is sure."""
    return replace(finding, confidence="inferred") if finding.confidence == "measured" else finding
