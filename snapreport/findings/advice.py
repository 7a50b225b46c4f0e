"""What could be done about it: advice that names what it saw, and at most what it would save.

Every rule looks at the peak, or at what another finding says, and keeps silent where it saw nothing. Savings are upper
bounds, told as such: what a rule could take away at the very most, were nothing put in its place. They are bytes of the
peak, or of what is reserved, and never more than that.
"""

from __future__ import annotations

from collections.abc import Sequence

from snapreport.findings.advice_allocator import ALLOCATOR_RULES, HOST_RULES
from snapreport.findings.advice_model import MODEL_RULES
from snapreport.findings.basis import basis_of
from snapreport.findings.model import Finding
from snapreport.findings.seen import LEAST_BYTES, Seen
from snapreport.timeline.build import DeviceTimeline, Snapshot
from snapreport.timeline.recording_gaps import has_history


def advice_findings(snapshot: Snapshot, timeline: DeviceTimeline, findings: Sequence[Finding]) -> list[Finding]:
    """Advice for one device, greatest saving first. ``findings``: what was found before, which some rules rest on.

    None without a trace: what is live when a snapshot is taken says little about what the peak was made of.
    """
    if not timeline.peak_bytes or not has_history(timeline):
        return []
    seen = Seen(snapshot, timeline, findings)
    rules = HOST_RULES if timeline.kind == "host" else (*MODEL_RULES, *ALLOCATOR_RULES)
    given = [advice for rule in rules if (advice := rule(seen)) and advice.bytes >= LEAST_BYTES]
    return [
        Finding(
            kind="advice",
            device=timeline.device,
            severity="info",
            title=advice.title,
            detail=[advice.saw],
            bytes=advice.bytes,
            event=timeline.peak_event,
            evidence={
                "rule": advice.rule,
                "saves_at_most": advice.bytes if advice.memory else 0,
                "memory": advice.memory,
                "term": advice.term,
                "url": advice.url,
            },
            basis=basis_of(timeline),
            confidence=advice.confidence,
            link=dict(advice.link)
            if advice.link
            else {"view": "flame", "at": timeline.peak_event, "query": advice.query},
        )
        for advice in sorted(given, key=lambda advice: (-advice.bytes, advice.rule))
    ]
