"""Remedies for the peak: advice that names its evidence, with the replayed saving.

Every rule looks at one device, or at another finding, and gives nothing where it does not apply. A saving is the old
peak less the peak of the allocated curve with exactly the named bytes taken out; nothing under ``MIN_SHARE`` is
given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import UNSET, Struct
from msgspec.structs import replace

from snapreport.contracts.finding import Finding, Link
from snapreport.findings.advice_activations import ACTIVATION_RULES
from snapreport.findings.advice_allocator import ALLOCATOR_RULES
from snapreport.findings.advice_attention import ATTENTION_RULES
from snapreport.findings.advice_context import Advice, AdviceContext, AdviceEvidence, CombinedRow
from snapreport.findings.advice_devices import device_imbalance
from snapreport.findings.advice_inference import INFERENCE_RULES
from snapreport.findings.advice_optimizer import OPTIMIZER_RULES
from snapreport.findings.basis import basis_of
from snapreport.findings.cast_weights import cast_on_device
from snapreport.findings.collected_outputs import collected_outputs
from snapreport.findings.collected_weights import collected_weights
from snapreport.findings.effort import place_of, priority_of
from snapreport.findings.exception_holds import exception_holds
from snapreport.findings.expanded_mask import expanded_mask
from snapreport.findings.frozen_base import frozen_base
from snapreport.findings.full_logits import full_logits
from snapreport.findings.model import FindingKind
from snapreport.findings.one_hot import one_hot, one_hot_inputs
from snapreport.findings.outer_product import broadcast, distance_chunks, distance_matrix, triplet_chunks
from snapreport.findings.prefetched_batches import prefetched_batches
from snapreport.findings.remedy_place import remedy_place
from snapreport.findings.resident_data import data_on_device
from snapreport.findings.saving import CLOSE_TO_PEAK, Saving, SavingRow, replay, together, whole_parts
from snapreport.findings.score_chunks import score_chunks
from snapreport.findings.weight_copies import weight_copies
from snapreport.sentence import bytes_change, bytes_part, event_part, sentence
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.recording_gaps import has_history, lost_peaks, recording_start

Rule = Callable[[AdviceContext], Advice | None]
RULES: tuple[Rule, ...] = (
    # Mistakes that one line mends: what an expert looks for first.
    broadcast, one_hot, one_hot_inputs, collected_outputs, exception_holds, expanded_mask, full_logits,
    distance_matrix, distance_chunks, score_chunks, triplet_chunks, data_on_device, prefetched_batches, frozen_base,
    cast_on_device, collected_weights, weight_copies,
    *ATTENTION_RULES,
    *INFERENCE_RULES,
    *OPTIMIZER_RULES,
    *ACTIVATION_RULES,
    device_imbalance,
    *ALLOCATOR_RULES,
)  # fmt: skip
# Rules for host memory: nothing to offload, no fused kernels, no other devices, no caching allocator.
CPU_RULES: tuple[Rule, ...] = (*INFERENCE_RULES, *ACTIVATION_RULES)


def advice_findings(snapshot: Snapshot, timeline: DeviceTimeline, findings: Sequence[Finding]) -> list[Finding]:
    """Advice for one device: what avoids a failure first, then by certainty, effort and saving. ``findings``: earlier
    findings.

    None without a trace: what is live when a snapshot is taken says little about the peak.
    """
    if not timeline.peak_bytes or not has_history(timeline):
        return []
    context = AdviceContext(snapshot, timeline, findings)
    given = advice_with_savings(context)
    given.sort(
        key=lambda pair: (
            not pair[0].avoids_failure,
            _priority(context.timeline, *pair),
            -(pair[1].row.saves_bytes if pair[1] else 0),
            pair[0].rule,
        )
    )
    lowering = [pair for pair in given if not pair[0].avoids_failure]
    both = _best_two(context, lowering)
    limited = next((pair for pair in given if _is_limited(*pair)), None)
    following = _second_remedy(context, limited, given) if limited else None
    return [
        _finding(context, *pair, both if pair in lowering[:1] else None, following if pair is limited else None)
        for pair in given
    ]


def advice_with_savings(context: AdviceContext) -> list[tuple[Advice, Saving | None]]:
    """What the rules give at the context's position, less what saves little."""
    given: list[tuple[Advice, Saving | None]] = []
    for advice in _advised(context, _rules_of(context.timeline)):
        saving = _replayed(context, advice)
        if saving is None or context.is_much(saving.row.saves_bytes):
            given.append((advice, saving))
    return given


def advice_at(context: AdviceContext, position: int) -> list[Advice]:
    """What the rules give at another position, where the peak is once a remedy has lowered it."""
    return list(_advised(context.at(position), _rules_of(context.timeline)))


def _rules_of(timeline: DeviceTimeline) -> Sequence[Rule]:
    if timeline.kind == "host":
        return ()  # none of the rules is about pinned memory
    if timeline.kind == "cpu":
        return CPU_RULES
    return [rule for rule in RULES if rule not in ALLOCATOR_RULES] if timeline.recording.is_profiled else RULES


def _advised(context: AdviceContext, rules: Sequence[Rule]) -> Iterator[Advice]:
    return (advice for rule in rules if (advice := rule(context)) is not None)


def _replayed(context: AdviceContext, advice: Advice) -> Saving | None:
    if advice.mask is None:
        return None
    how = advice.fraction, advice.functions
    return replay(context.timeline, context.recorded, advice.mask, *how, is_lower_bound=context.is_cut_off)


class Combined(Struct, frozen=True):
    """The replayed effect of two pieces of advice together, and its sentence."""

    row: CombinedRow
    sentence: str


def _priority(timeline: DeviceTimeline, advice: Advice, saving: Saving | None) -> int:
    saves = saving.row.saves_bytes if saving and not advice.spares_peak else 0
    return priority_of(advice, saves, timeline.peak_bytes)


def _finding(
    context: AdviceContext,
    advice: Advice,
    saving: Saving | None,
    both: Combined | None,
    following: Combined | None,
) -> Finding:
    timeline, detail, row = context.timeline, list(advice.why), _saving_row(advice, saving)
    detail += _range(row) if row else []
    if saving and _is_limited(advice, saving):
        detail.append(_second_maximum(timeline, saving, _freed(advice, saving)))
    detail += [combined.sentence for combined in (both, following) if combined]
    place = place_of(context, advice)
    evidence = replace(
        advice.evidence,
        rule=advice.rule,
        saving=row,
        together=both.row if both else None,
        second_maximum=following.row if following else None,
        at_peak_bytes=context.bytes_at_peak(saving.mask) if saving else None,
        taken_at_peak_bytes=saving.at_peak_bytes if saving else None,
        term=advice.term,
        url=advice.url,
        effort=advice.effort,
        priority=_priority(timeline, advice, saving),
        where=place.where,
        where_unknown=place.unknown,
        line=advice.line,
    )
    return Finding(
        kind="advice",
        device=timeline.device,
        severity="info",
        title=_title(context, advice, saving),
        detail=detail,
        bytes=saving.row.saves_bytes if saving else 0,
        event=timeline.peak_event,
        evidence=evidence,
        basis=basis_of(context.recorded),
        confidence=advice.confidence,
        link=advice.link or Link(view="flame", at=timeline.peak_event, query=saving.row.query if saving else ""),
    )


def _range(row: SavingRow) -> list[str]:
    if row.low_bytes is UNSET or row.high_bytes is UNSET:
        return []
    low, high = bytes_part(row.low_bytes), bytes_part(row.high_bytes)
    if row.high_bytes >= row.peak_bytes + row.saves_bytes:
        return [sentence("The peak is {} at best; at worst nothing is saved.", low)]
    return [sentence("The peak is between {} and {}.", low, high)] if low != high else []


def _saving_row(advice: Advice, saving: Saving | None) -> SavingRow | None:
    row = saving.row if saving else None
    if row and advice.peak_range and not row.is_lower_bound:
        low, high = advice.peak_range
        high = min(max(high, row.peak_bytes), row.peak_bytes + row.saves_bytes)
        return replace(row, low_bytes=min(low, row.peak_bytes), high_bytes=high)
    return row


def _is_limited(advice: Advice, saving: Saving | None) -> bool:
    """Whether a second maximum limits what the advice saves, as far as its replay tells."""
    if saving is None or advice.spares_peak or advice.is_partly:
        return False
    return saving.row.saves_bytes < CLOSE_TO_PEAK * _freed(advice, saving)


def _freed(advice: Advice, saving: Saving) -> int:
    """Bytes that the remedy frees at the peak: of outputs those of the iteration before, of which a share stands."""
    return min(saving.at_peak_bytes, int(advice.evidence.get("previous_bytes") or saving.at_peak_bytes))


def _title(context: AdviceContext, advice: Advice, saving: Saving | None) -> str:
    if saving is None or advice.spares_peak:
        return advice.do
    # Of an estimate the finding's confidence, which stands beside it, says how sure this is.
    how = "{}: {change}" if advice.confidence == "estimate" else "{}: {change} (replayed)"
    return sentence(how, advice.do, change=_change(context, saving.row.peak_bytes))


def _change(context: AdviceContext, after: int) -> str:
    """``peak 8.00 → 4.00 GiB``; of a program that ran out of memory it is known how much it needs at least."""
    change = bytes_change(context.timeline.peak_bytes, after)
    if not context.is_cut_off:
        return sentence("peak of the trace {}" if lost_peaks(context.timeline) else "peak {}", change)
    failed = context.timeline.oom_events
    if context.fails_at_peak:
        return sentence("{} or more at the failure", change)
    is_before = bool(failed) and context.timeline.peak_event < failed[-1]
    return sentence("{} or more, at the failure or before" if is_before else "{} or more", change)


def _second_maximum(timeline: DeviceTimeline, saving: Saving, freed: int) -> str:
    where = "failure" if timeline.peak_event in timeline.oom_events else "peak"
    here = sentence("It frees {} at the {where}, but", bytes_part(freed), where=where)
    if saving.row.peak_event < 0:
        start = recording_start(timeline)
        return sentence("{here} what was allocated {start} is then the highest.", here=here, start=start)
    high = "almost as high" if saving.row.peak_bytes >= CLOSE_TO_PEAK * timeline.peak_bytes else "then the highest"
    return sentence("{here} {} is {high}.", event_part(saving.row.peak_event), here=here, high=high)


def _best_two(context: AdviceContext, given: Sequence[tuple[Advice, Saving | None]]) -> Combined | None:
    """The saving of the two best pieces of advice together; None where there are fewer, or the second adds little."""
    best = [(advice, saving) for advice, saving in given if saving and not advice.spares_peak][:2]
    if len(best) < 2 or given[0][0] is not best[0][0]:
        return None
    (first, one), (second, two) = best
    found = _combined(context, (first, one), (second, two), sentence("Together with “{}”", second.do))
    return found if found and context.is_much(found.row["saves_bytes"] - one.row.saves_bytes) else None


def _second_remedy(
    context: AdviceContext, limited: tuple[Advice, Saving | None], given: Sequence[tuple[Advice, Saving | None]]
) -> Combined | None:
    """Advice for the second maximum that limits a piece of advice, and the saving of both together."""
    first, one = limited
    if one is None:
        return None
    timeline, rules = context.timeline, [advice.rule for advice, _ in given]
    pairs: list[tuple[bool, Combined]] = []
    there = context.at(one.row.peak_event)
    for advice in _advised(there, RULES):
        mask = advice.mask
        if mask is None or advice.rule in rules or advice.spares_peak:
            continue
        # Without a query for it, which takes most of the time, and may leave out some of the mask.
        most = timeline.peak_bytes - together(timeline, [one.change, (mask, whole_parts(advice.fraction))])[0]
        if not context.is_much(most - one.row.saves_bytes):
            continue
        saving = _replayed(context, advice)
        if saving is None:
            continue
        where = place_of(there, advice).where
        place = sentence(" (see {})", remedy_place(where)) if where else ""
        how = sentence("The remedy at that event is “{}”{place}; with both", advice.do, place=place)
        if found := _combined(context, (first, one), (advice, saving), how):
            pairs.append((advice.confidence == "estimate", found))
    # Sixteen bits save nothing where they are used already: what is inferred comes before an estimate.
    _, best = min(pairs, key=lambda pair: (pair[0], pair[1].row["peak_bytes"]), default=(False, None))
    return best


def _combined(
    context: AdviceContext, one: tuple[Advice, Saving], two: tuple[Advice, Saving], how: str
) -> Combined | None:
    """Two changes at once; None where the second adds nothing to the first."""
    timeline = context.timeline
    peak, event = together(timeline, [one[1].change, two[1].change])
    saves = timeline.peak_bytes - peak
    if saves <= one[1].row.saves_bytes:
        return None
    row = CombinedRow([one[0].rule, two[0].rule], peak, event, saves)
    return Combined(row, sentence("{how}: {} (replayed).", _change(context, peak), how=how))


ADVICE = FindingKind("advice", "Advice", (AdviceEvidence, *AdviceEvidence.__subclasses__()), rank=1)
