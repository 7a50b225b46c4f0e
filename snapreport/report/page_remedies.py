"""What the page offers to try, replayed together there: remedies as check boxes, and another batch with a slider; see
``static/src/whatif/remedies.ts``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from snapreport.findings.batch_pairs import BatchPairs
from snapreport.findings.failed_requests import failures
from snapreport.findings.model import Finding
from snapreport.findings.saving import live_mask
from snapreport.findings.selection import select
from snapreport.forecast.batch_growth import batch_growth
from snapreport.forecast.remedies import PROPORTIONAL
from snapreport.forecast.size_laws import LINEAR, UNKNOWN
from snapreport.report.finding_cards import page_query
from snapreport.report.sentence_html import Links
from snapreport.report.verdict import certainty, effort_of, rule_of
from snapreport.sentence import sentence
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline

_FEW_PAIRS = 0.002
_COMPARING = ("distance-matrix", "triplet-chunks")


class PageRemedy(Struct, frozen=True):
    """A remedy whose saving was replayed. ``device``: the page's; ``rule``: names it in addresses; ``title``: a
    sentence; ``certainty``, ``effort``: as of a chip; ``query``, ``fraction``: what goes, as in a saving.
    ``failed_events``: those of ``counted_events`` whose requests change; these count as allocated where they failed.
    ``is_proportional``: it makes every tensor smaller, so that other remedies come on top.
    """

    device: int
    rule: str
    title: str
    certainty: str
    effort: str
    query: str
    fraction: float
    failed_events: Sequence[int]
    counted_events: Sequence[int]
    is_proportional: bool
    links: Links


def page_remedies(
    snapshot: Snapshot, found: Sequence[Finding], index: Mapping[int, int], stack_base: int, links: Links
) -> list[PageRemedy]:
    """Those of one snapshot, in the order of its findings. ``index``, ``stack_base``: see ``verdict.chips``."""
    remedies: list[PageRemedy] = []
    for finding in found:
        saving = finding.evidence.get("saving")
        is_leak = finding.kind == "leak" and finding.severity != "info"  # not a cache, whose growth is its purpose
        if not (is_leak or finding.kind == "advice") or not saving or saving["saves_bytes"] <= 0:
            continue
        rule = rule_of(finding, stack_base)
        remedies.append(
            PageRemedy(
                index[finding.device],
                rule,
                sentence("Fix the leak: {}", finding.title.removeprefix("Leak: ")) if is_leak else finding.title,
                certainty(finding),
                effort_of(finding),
                page_query(saving["query"], stack_base),
                saving["fraction"],
                saving["failed_events"],
                failures(snapshot.timeline(finding.device).events),
                rule in PROPORTIONAL,
                links,
            )
        )
    return remedies


class PageGrowth(Struct, frozen=True):
    """What of a device grows with the batch, as queries; ``unsure``: what may. ``device``: the page's."""

    device: int
    growing: str
    unsure: str


def page_growth(
    snapshot: Snapshot, findings: Sequence[Finding], index: Mapping[int, int], stack_base: int
) -> list[PageGrowth]:
    """Of each device at whose peak something grows with the batch. ``index``, ``stack_base``: see ``verdict.chips``.
    What grows with its square or third power is of pairs or triplets: there nothing is foretold.
    """
    found = []
    compared = {one.device for one in findings if one.kind == "advice" and one.evidence["rule"] in _COMPARING}
    for device, place in index.items():
        timeline = snapshot.timeline(device)
        if timeline.kind != "cuda" or not len(timeline.events) or device in compared or _compares_samples(timeline):
            continue
        kind = batch_growth(timeline, 1.0).kind
        masks = kind == LINEAR, kind == UNKNOWN
        if not (masks[0] & live_mask(timeline, timeline.peak_event)).any():
            continue
        queries = [select(timeline, mask) for mask in masks]
        # A query that is too long would leave some of them out.
        if all(bool((mask == chosen).all()) for mask, (_, chosen) in zip(masks, queries, strict=True)):
            found.append(PageGrowth(place, *(page_query(query, stack_base) for query, _ in queries)))
    return found


def _compares_samples(timeline: DeviceTimeline) -> bool:
    """Whether tensors of all pairs of samples hold so much of the peak that it is seen at eight times the batch."""
    pairs = BatchPairs(timeline)
    of_pairs = pairs.of(pairs.samples) & live_mask(timeline, timeline.peak_event)
    return int(timeline.allocations["size"].to_numpy()[of_pairs].sum()) > _FEW_PAIRS * timeline.peak_bytes
