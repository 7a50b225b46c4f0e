"""Rules for snapshots in continuous integration: what ``snapreport check`` decides.

A broken rule is broken, however incomplete the recording is. A rule holds only where the recording is complete enough
to show it; else the result is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import polars as pl
from msgspec import UNSET, Struct
from msgspec.structs import replace

from snapreport.allocator.minimum import minimum_memory
from snapreport.allocator.whatif import WhatIf
from snapreport.contracts.check import Check
from snapreport.errors import SnapshotError
from snapreport.findings.comparable import in_order, paired_devices
from snapreport.findings.diff import DeviceDiff, devices_with_data, diff
from snapreport.findings.gate_rules import GrowthRule, Rules
from snapreport.findings.live_at_end import leaks_of
from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.findings.snapshot_series import FEWEST as SERIES_FEWEST
from snapreport.findings.snapshot_series import DeviceSeries, SnapshotSeries, follow
from snapreport.number_format import count_text, device_name, plural, share_text
from snapreport.reading.recording import HOST
from snapreport.sentence import bytes_part, code_part, event_part, sentence
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.device_use import device_use
from snapreport.timeline.own_code import own_functions
from snapreport.timeline.recording_gaps import counted_peaks, has_history

_KINDS = {"oom": "out-of-memory error"}
EVIDENCE_ROWS = 5


def check_all(snapshots: Sequence[Snapshot], rules: Rules, baseline: Snapshot | None = None) -> list[Check]:
    """Try every rule on every snapshot. Several snapshots are a series for the leak rule: one check of all of them."""
    each = replace(rules, fail_on=tuple(kind for kind in rules.fail_on if kind != "leak"))
    alone = rules if len(snapshots) == 1 else each
    checks = [result for snapshot in snapshots for result in check(snapshot, alone, baseline)]
    if len(snapshots) > 1 and "leak" in rules.fail_on:
        checks += series_leak_checks(snapshots)
    return checks


def check(snapshot: Snapshot, rules: Rules, baseline: Snapshot | None = None) -> list[Check]:
    """Try every rule on every device with data. Raises :class:`SnapshotError` where there is nothing to try them on."""
    timelines = [snapshot.timeline(device) for device in devices_with_data(snapshot)]
    if not timelines:
        raise SnapshotError(f"{snapshot.recording.path}: no events and no memory on any device: nothing to check")
    checks = [
        limit_check(_subject(snapshot, timeline, what), rule, what, limit)
        for timeline in timelines
        for rule, what, limit in rules.limits
    ]
    if rules.max_device_used is not None:
        checks += [_used(snapshot, one, rules.max_device_used) for one in timelines if one.device != HOST]
    if rules.fits is not None:
        checks += [_fits(snapshot, timeline, rules.fits) for timeline in timelines if timeline.kind == "cuda"]
    for rule in rules.growths:
        if baseline is None:
            raise SnapshotError(f"{rule.name} needs a baseline")
        checks += _growth(snapshot, baseline, rule)
    if rules.fail_on:
        found = findings(snapshot)
        for kind in rules.fail_on:
            one = leak_check if kind == "leak" else partial(_findings, kind=kind, found=found)
            checks += [one(snapshot, timeline) for timeline in timelines]
    return checks


class Subject(Struct, frozen=True):
    """What has the peak that a limit is tried on: a device of a snapshot, or a rank of a job.

    ``name``: in messages; ``file``, ``device``: of the result. ``peak``: bytes of what is limited. ``unknown``: why the
    recording cannot show that a limit holds, "" where it can. ``largest``: evidence where it does not hold.
    """

    name: str
    file: str
    device: str
    peak: int
    unknown: str
    largest: Callable[[], list[str]]


def limit_check(subject: Subject, rule: str, what: str, limit: int) -> Check:
    """Whether a peak is at most ``limit`` bytes."""
    passed = subject.peak <= limit
    message = sentence(
        "{name}: peak {what} {}, {compared} the limit of {}",
        bytes_part(subject.peak),
        bytes_part(limit),
        name=subject.name,
        what=what,
        compared="within" if passed else sentence("{} over", bytes_part(subject.peak - limit)),
    )
    return subject_check(subject, rule, message, limit, subject.largest)


def growth_check(subject: Subject, before: Subject, rule: GrowthRule, grown: Callable[[], list[str]]) -> Check:
    """Whether a peak has grown by no more than ``rule`` allows. ``grown``: evidence where it has."""
    change, earlier = subject.peak - before.peak, bytes_part(before.peak)
    compared = sentence("{} {} than", bytes_part(abs(change)), "more" if change > 0 else "less")
    message = sentence(
        "{name}: peak {what} {}, {compared} the baseline's {earlier}; {growth} more is allowed",
        bytes_part(subject.peak),
        name=subject.name,
        what=rule.what,
        compared=compared if change else "the same as",
        earlier=earlier if before.name == subject.name else sentence("{} ({})", earlier, before.name),
        growth=str(rule.growth),
    )
    return subject_check(subject, rule.name, message, rule.growth.limit(before.peak), grown)


def subject_check(
    subject: Subject, rule: str, message: str, limit: int, evidence: Callable[[], list[str]] = list
) -> Check:
    """The result for a subject whose peak has to be within ``limit``."""
    passed = subject.peak <= limit
    unknown = subject.unknown if passed else ""
    lines = [] if passed else evidence()
    return Check(rule, subject.file, subject.device, passed, message, subject.peak, limit, lines, unknown)


def _subject(snapshot: Snapshot, timeline: DeviceTimeline, what: str) -> Subject:
    """``what``: "allocated" or "reserved"."""
    allocated, reserved, is_counted = _peaks(timeline)
    name = device_name(timeline.kind, timeline.device)
    unknown = "" if is_counted else missing_history(snapshot, timeline, earlier=True)
    peak = reserved if what == "reserved" else allocated
    return Subject(name, snapshot.recording.name, name, peak, unknown, lambda: _top(snapshot, timeline))


def _used(snapshot: Snapshot, timeline: DeviceTimeline, limit: int) -> Check:
    """Whether all processes together used at most ``limit`` bytes of a device, at each sample."""
    name, use = device_name(timeline.kind, timeline.device), device_use(timeline)
    if use is UNSET:
        unknown = "no samples of the device's memory were recorded; snapreport record takes them"
        message = sentence("{name}: memory in use on the device is not known", name=name)
        return Check("max-device-used", snapshot.recording.name, name, False, message, 0, limit, unknown=unknown)
    lines: list[str] = [
        sentence("{} outside PyTorch's allocator: {cause}", bytes_part(one.bytes), cause=one.cause)
        for one in use.changes[:EVIDENCE_ROWS]
        if one.bytes > 0 and one.event <= use.peak_event
    ]
    evidence: list[str] = [sentence("{} reserved by PyTorch", bytes_part(use.reserved_bytes)), *lines]
    subject = Subject(name, snapshot.recording.name, name, use.peak_used_bytes, "", lambda: evidence)
    return limit_check(subject, "max-device-used", "in use on the device", limit)


def _peaks(timeline: DeviceTimeline) -> tuple[int, int, bool]:
    """The highest allocated and reserved bytes, and whether the recorder noted them, where events are missing."""
    recorded = counted_peaks(timeline)
    if recorded is None:
        return timeline.peak_bytes, int(timeline.reserved.max()), False
    return recorded.allocated, recorded.reserved, True


def missing_history(snapshot: Snapshot, timeline: DeviceTimeline, *, earlier: bool = False) -> str:
    """Why the record cannot show everything that the device did, "" where it can.

    ``earlier``: whether what came before the recording counts. A device without events did nothing where another one of
    its kind has some.
    """
    others = [snapshot.timeline(device) for device in snapshot.devices if device != timeline.device]
    if not has_history(timeline) and any(has_history(other) for other in others if other.kind == timeline.kind):
        return ""
    gaps = [gap for gap in timeline.recording_gaps if earlier or gap.key != "earlier peak"]
    return gaps[0].sentence if gaps else ""


def _fits(snapshot: Snapshot, timeline: DeviceTimeline, memory: int) -> Check:
    """Whether the trace runs on a device with so many bytes for the allocator."""
    name = device_name(timeline.kind, timeline.device)
    whatif = WhatIf(timeline, capacity=memory)
    rule, file = "fits", snapshot.recording.name
    if not len(timeline.events) or not whatif.trace.born.any():
        value = int(timeline.reserved.max())
        message = sentence("{name}: {} reserved at the end", bytes_part(value), name=name)
        return Check(rule, file, name, False, message, value, memory, unknown="there is no trace to replay")
    if not whatif.check.exact:
        peak = whatif.trace.peak_reserved
        message = sentence("{name}: {} reserved at most, not replayed", bytes_part(peak), name=name)
        unknown: str = sentence("the replay under the recorded settings is not exact: {}", whatif.check.reason)
        return Check(rule, file, name, False, message, peak, memory, unknown=unknown)
    done = whatif.replay(whatif.own)
    if (failed := done.failure) is None:
        tail = sentence(" (num_alloc_retries: {})", count_text(done.retries)) if done.retries else ""
        message = sentence(
            "{name}: runs on {} for the allocator, replayed{tail}", bytes_part(memory), name=name, tail=tail
        )
        unknown = missing_history(snapshot, timeline, earlier=True)
        return Check(rule, file, name, True, message, done.peak_reserved, memory, unknown=unknown)
    least = minimum_memory(whatif, whatif.own)
    needs = "" if least.memory is None else sentence("; it needs {}", _whole_mib(least.memory))
    where = "at its start" if failed < 0 else sentence("at {}", event_part(failed))
    message = sentence(
        "{name}: runs out of memory {where} with {} for the allocator, replayed{needs}",
        bytes_part(memory),
        name=name,
        where=where,
        needs=needs,
    )
    return Check(rule, file, name, False, message, least.memory or least.unlimited, memory)


def _whole_mib(value: int) -> str:
    """Also in whole MiB, for ``--fits``: rounded to GiB, the figure could be too small."""
    text, mib = bytes_part(value), sentence("{} MiB", f"{value >> 20:,}")
    return sentence("{text} ({mib})", text=text, mib=mib) if text.endswith("GiB") else mib


def _top(snapshot: Snapshot, timeline: DeviceTimeline) -> list[str]:
    """The largest functions at the peak, a line each."""
    names = own_functions(snapshot.recording)
    rows = (
        timeline.stacks_at_peak.with_columns(name=names.gather(timeline.stacks_at_peak["stack"]))
        .group_by("name")
        .agg(pl.col("bytes").sum(), pl.col("count").sum())
        .sort(["bytes", "name"], descending=[True, False])
    )
    return [
        sentence(
            "{} ({}) in {} {}",
            bytes_part(row["bytes"]),
            share_text(row["bytes"], timeline.peak_bytes),
            plural(row["count"], "allocation"),
            sentence("from {}", code_part(row["name"])) if row["name"] else "without a stack trace",
        )
        for row in rows.head(EVIDENCE_ROWS).rows(named=True)
    ]


def _growth(snapshot: Snapshot, baseline: Snapshot, rule: GrowthRule) -> list[Check]:
    compared = diff(baseline, snapshot)
    checks = [
        growth_check(
            _subject(snapshot, device.after, rule.what),
            _subject(baseline, device.before, rule.what),
            rule,
            partial(_grown, device),
        )
        for device in compared.devices
    ]
    if not checks:
        raise SnapshotError(
            f"{baseline.recording.path}: the baseline has no device in common with {snapshot.recording.path}"
        )
    # Devices of one side alone: a new one has grown from 0, a missing one has not grown.
    for number in compared.only_after:
        subject = _subject(snapshot, snapshot.timeline(number), rule.what)
        text = "{}: peak {what} {}, and the baseline has no such device"
        message = sentence(text, subject.name, bytes_part(subject.peak), what=rule.what)
        checks.append(subject_check(subject, rule.name, message, rule.growth.limit(0), subject.largest))
    for number in compared.only_before:
        before = _subject(baseline, baseline.timeline(number), rule.what)
        text = "{}: not in this snapshot; the baseline's peak was {}"
        absent = replace(before, file=snapshot.recording.name, peak=0, unknown="")
        message = sentence(text, before.name, bytes_part(before.peak))
        checks.append(subject_check(absent, rule.name, message, rule.growth.limit(before.peak)))
    return checks


def _grown(device: DeviceDiff) -> list[str]:
    rows = device.functions[0].filter(pl.col("delta") > 0).head(EVIDENCE_ROWS)
    return [
        sentence(
            "{} more {} ({} → {}, {})",
            bytes_part(row["delta"]),
            sentence("from {}", code_part(row["name"])) if row["name"] else "without a stack trace",
            bytes_part(row["bytes_before"]),
            bytes_part(row["bytes_after"]),
            row["change"],
        )
        for row in rows.rows(named=True)
    ]


def _findings(snapshot: Snapshot, timeline: DeviceTimeline, kind: str, found: Sequence[Finding]) -> Check:
    name = device_name(timeline.kind, timeline.device)
    hits = [f for f in found if f.kind == kind and f.device == timeline.device and f.severity in ("error", "warning")]
    unknown = "" if hits else missing_history(snapshot, timeline)
    message = (
        sentence("{name}: {}", hits[0].title, name=name)
        if hits
        else sentence("{name}: no {} found", _KINDS.get(kind, kind), name=name)
    )
    return Check(
        f"fail-on {kind}",
        snapshot.recording.name,
        name,
        not hits,
        message,
        len(hits),
        0,
        finding_evidence(hits),
        unknown,
    )


def finding_evidence(hits: Sequence[Finding]) -> list[str]:
    """The titles of the other findings, then the sentences of the first."""
    return [f.title for f in hits[1:EVIDENCE_ROWS]] + (list(hits[0].detail) if hits else [])


def leak_check(snapshot: Snapshot, timeline: DeviceTimeline) -> Check:
    """The leak rule on one device of one snapshot."""
    name = device_name(timeline.kind, timeline.device)
    found, verdict, _ = leaks_of(snapshot, timeline)
    hits = [finding for finding in found if finding.severity != "info"]
    return Check(
        "fail-on leak",
        snapshot.recording.name,
        name,
        verdict.status == "none",
        sentence("{name}: {}", verdict.reason, name=name),
        len(hits),
        0,
        finding_evidence(hits),
        verdict.reason if verdict.status == "unknown" else "",
    )


def series_leak_checks(snapshots: Sequence[Snapshot]) -> list[Check]:
    """The leak rule on several snapshots of one program: a check per device, of all files together.

    It fails where a stack grows from snapshot to snapshot, or from step to step within one of them.
    """
    ordered, order = in_order(snapshots)
    series = follow(ordered, order, paired_devices(ordered))
    return [_series_leak(series, device) for device in series.devices]


def _series_leak(series: SnapshotSeries, device: DeviceSeries) -> Check:
    files, name = series.files, device_name(device.kind, device.devices[-1])
    within = [
        leak_check(snapshot, snapshot.timeline(number))
        for snapshot, number in zip(series.snapshots, device.devices, strict=True)
    ]
    failed = [result for result in within if result.status == "failed"]
    evidence: list[str] = [
        sentence("{} leaks {} a snapshot", row.place, bytes_part(row.slope)) for row in device.leaks[:EVIDENCE_ROWS]
    ]
    evidence += [sentence("{}: {}", r.file, r.message.removeprefix(f"{r.device}: ")) for r in failed[:EVIDENCE_ROWS]]
    grew = device.totals["end_allocated_bytes"][-1] - device.totals["end_allocated_bytes"][0]
    unknown = ""
    if evidence:
        message = sentence("{name}: {}", evidence[0], name=name)
    elif len(files) >= SERIES_FEWEST or all(result.passed for result in within):
        message = sentence("{name}: no stack grows over {} snapshots", len(files), name=name)
    elif grew <= 0:
        message = sentence("{name}: no more is allocated at the end of {} than of {}", files[-1], files[0], name=name)
    else:
        unknown = "Two snapshots cannot show whether memory grows: give at least three."
        message = sentence(
            "{name}: {} more at the end of {} than of {}", bytes_part(grew), files[-1], files[0], name=name
        )
    leaks = len(device.leaks) + len(failed)
    file = f"{files[0]} … {files[-1]} ({len(files)} files)"
    return Check("fail-on leak", file, name, not evidence, message, leaks, 0, evidence[1:], unknown)
