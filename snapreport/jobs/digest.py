"""The digest of one rank: what a job's report needs from a snapshot, in at most 64 KB."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from snapreport.findings.attention_scores import largest_scores
from snapreport.findings.live import by_category, live_at, names_of
from snapreport.findings.live_at_end import leaks_of
from snapreport.findings.run import findings
from snapreport.jobs.curves import POINTS, event_curve, step_curve, time_curve
from snapreport.jobs.digest_format import MOST_BYTES, pack, unpack
from snapreport.jobs.digest_model import (
    Digest,
    DigestFinding,
    DigestOom,
    DigestRun,
    DigestSoftware,
    DigestStack,
    OtherDevice,
    checked,
    plain_digest,
)
from snapreport.jobs.stack_identity import shown_file, stack_identities
from snapreport.jobs.stack_maxima import stack_maxima
from snapreport.reading.fields import clean
from snapreport.reading.paths import shown_path
from snapreport.sentence import Part, Sentence, parts_of
from snapreport.snapshot import Snapshot
from snapreport.timeline.build import DeviceTimeline
from snapreport.timeline.lifetimes import is_live_at
from snapreport.timeline.own_code import frame_line, own_code, stack_names
from snapreport.timeline.recording_gaps import counted_peaks
from snapreport.version import __version__

SHARE = 0.99
"""Share of the bytes at the peak that the stacks of a digest cover."""
MIN_STACKS = 64
"""Minimum number of rows: a rank dominated by one stack is compared with its group by the other stacks."""
OWN_SHARE = 0.002
"""Share of the bytes at the peak from which a stack is listed that has so much at another moment."""
MOST_STACKS, MOST_FRAMES, MOST_FINDINGS, MOST_OOMS, MOST_LETTERS = 400, 6, 12, 20, 200
_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "expandable_segments", "max_split_size",
             "garbage_collection_threshold", "roundup_power2_divisions")  # fmt: skip


def digest_bytes(snapshot: Snapshot, *, source: str | None = None) -> bytes:
    """The digest of a snapshot as a file's bytes, at most 64 KB. The same snapshot and version give the same bytes.
    ``source``: the path to name in it, by default the snapshot's own.

    If the whole would be larger, curves get half of the points, and stacks half of the frames and rows, until it fits.
    """
    path = snapshot.recording.path if source is None else source
    data = b""
    for halved in range(7):
        points, stacks, frames = POINTS >> halved, MOST_STACKS >> halved, MOST_FRAMES >> halved
        data = pack(plain_digest(digest_of(snapshot, path, points=points, stacks=stacks, frames=frames)))
        if len(data) <= MOST_BYTES:
            break
    return data


def read_digest(data: bytes) -> Digest:
    """A digest file's content, checked. Raises :class:`SnapshotError` if it is not a digest."""
    return checked(unpack(data))


def rank_device(snapshot: Snapshot) -> int:
    """The device that a rank works on: the accelerator that allocated most, ahead of pinned memory and idle devices."""
    timelines = [snapshot.timeline(device) for device in snapshot.devices]
    best = max(timelines, key=lambda t: (t.kind != "host" and t.peak_bytes > 0, t.peak_bytes, len(t.events)))
    return best.device


def digest_of(
    snapshot: Snapshot, path: str, *, points: int = POINTS, stacks: int = MOST_STACKS, frames: int = MOST_FRAMES
) -> Digest:
    """The digest of a snapshot that is read from ``path``."""
    recording = snapshot.recording
    settings = {key: _name(str(recording.settings[key])) for key in _SETTINGS if key in recording.settings}
    common = {
        "snapreport": __version__,
        "source": clean(_source(path))[-1000:],
        "file_bytes": recording.file_bytes,
        "settings": settings,
        **_identity(snapshot),
    }
    if not snapshot.devices:
        return Digest(**common, device=None)
    device = rank_device(snapshot)
    timeline = snapshot.timeline(device)
    event = timeline.peak_event
    counted = counted_peaks(timeline)
    at_peak = by_category(live_at(timeline.allocations, event))
    return Digest(
        **common,
        device=device,
        kind=timeline.kind,
        devices=tuple(_other(snapshot.timeline(number)) for number in snapshot.devices[:64]),
        **_capacity(snapshot, timeline),
        events=len(timeline.events),
        allocations=len(timeline.allocations),
        steps=len(timeline.steps),
        gaps=tuple(str(gap.sentence) for gap in timeline.recording_gaps[:4]),
        overflowed=timeline.overflowed,
        reconciliation=timeline.reconciliation_bytes,
        stackless=timeline.peak_stackless_bytes,
        peak_allocated=timeline.peak_bytes,
        peak_reserved=max(0, int(timeline.reserved.max())),
        counted_allocated=counted.allocated if counted else None,
        counted_reserved=counted.reserved if counted else None,
        peak_event=event,
        peak_step=_step_at(timeline, event),
        peak_us=_time_at(timeline, event),
        start_allocated=int(timeline.allocated[0]),
        end_allocated=int(timeline.allocated[-1]),
        end_reserved=int(timeline.reserved[-1]),
        ooms=tuple(_ooms(snapshot, timeline)),
        curves={
            "step": step_curve(timeline, points),
            "event": event_curve(timeline, points),
            "time": time_curve(timeline, points),
        },
        step_ends=_step_ends(timeline, points),
        categories=tuple((row["category"], row["bytes"]) for row in at_peak),
        **_stacks(snapshot, timeline, stacks, frames),
        scores=largest_scores(snapshot, timeline),
        findings=tuple(_findings(snapshot, device)),
        leak_unknown=str(verdict.reason) if (verdict := leaks_of(snapshot, timeline)[1]).status == "unknown" else "",
    )


def _name(text: str) -> str:
    """As much of a name as a digest has."""
    return clean(text)[:MOST_LETTERS]


def _source(path: str) -> str:
    """The last three parts of a path: includes folders named after a step or rank, and is the same on any machine."""
    return "/".join(shown_path(path).replace("\\", "/").split("/")[-3:])


def _identity(snapshot: Snapshot) -> dict[str, Any]:
    """Who wrote the snapshot, as far as the recording says so."""
    recorder = snapshot.recording.recorder
    if recorder is None:
        return {"rank": None, "world_size": None, "host": "", "process": "", "reason": "", "step": None}
    given = recorder.distributed
    return {
        "rank": _number(given.get("RANK")),
        "world_size": _number(given.get("WORLD_SIZE")),
        "host": _name(recorder.process.get("host", "")),
        "process": clean(recorder.process.get("pid", "")[:20]),
        "reason": recorder.reason,
        "step": recorder.step,
        "run": DigestRun(
            id=_name(recorder.run.get("id", "")),
            launch=_name(recorder.run.get("launch", "")),
            restart=_number(given.get("TORCHELASTIC_RESTART_COUNT")) or 0,
            start_us=recorder.started_us,
            end_us=recorder.dumped_us,
            command=_name(" ".join(recorder.command)),
        ),
        "software": DigestSoftware(
            torch=_name(recorder.versions.get("torch", "")),
            cuda=_name(recorder.versions.get("cuda") or recorder.versions.get("hip") or ""),
            device=_name(next((device.name for device in recorder.devices.values()), "")),
            commit=f"{recorder.git.commit[:12]}{' with changes' if recorder.git.dirty else ''}" if recorder.git else "",
        ),
    }


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 9 else None


def _other(timeline: DeviceTimeline) -> OtherDevice:
    reserved = max(0, int(timeline.reserved.max()))
    return OtherDevice(timeline.device, timeline.kind, len(timeline.events), timeline.peak_bytes, reserved)


def _capacity(snapshot: Snapshot, timeline: DeviceTimeline) -> dict[str, Any]:
    """Bytes of the device, and bytes used by anything but PyTorch's allocator; null if unknown."""
    recorder = snapshot.recording.recorder
    capacity = outside = None
    if recorder and timeline.device in recorder.memory_at_dump:
        free, capacity = recorder.memory_at_dump[timeline.device]
        outside = max(0, capacity - free - max(0, int(timeline.reserved[-1])))
    elif recorder and timeline.device in recorder.devices:
        capacity = recorder.devices[timeline.device].total_bytes
    return {"capacity": capacity, "outside": outside}


def _step_at(timeline: DeviceTimeline, event: int) -> int | None:
    rows = timeline.steps.filter((pl.col("first_event") <= event) & (pl.col("last_event") >= event))
    return int(rows["step"][0]) if len(rows) else None


def _time_at(timeline: DeviceTimeline, event: int) -> int | None:
    times = timeline.events["time_us"]
    return times[event] if 0 <= event < len(times) else None


def _ooms(snapshot: Snapshot, timeline: DeviceTimeline) -> list[DigestOom]:
    """The recorded failures; from the recorder's metadata if PyTorch's observer wrote the snapshot, which happens
    before the entry is recorded.
    """
    table = timeline.events
    rows = [
        DigestOom(
            event=event,
            step=_step_at(timeline, event),
            us=_time_at(timeline, event),
            tried=int(table["size"][event]),
            free=table["device_free"][event],
        )
        for event in timeline.oom_events[:MOST_OOMS]
    ]
    recorder = snapshot.recording.recorder
    if (
        not rows
        and recorder
        and recorder.reason == "oom"
        and recorder.oom.get("device", timeline.device) == timeline.device
    ):
        last = len(table) - 1
        step = recorder.step if recorder.step is not None else _step_at(timeline, last)
        tried, free = recorder.oom.get("tried_bytes", 0), recorder.oom.get("free_bytes")
        rows.append(DigestOom(last, step, recorder.dumped_us, max(tried, 0), free))
    return rows


def _step_ends(timeline: DeviceTimeline, points: int) -> tuple[int | None, ...]:
    """When the steps ended, in µs: used to compare the clocks of several hosts."""
    steps = timeline.steps
    times = timeline.events["time_us"]
    if not len(steps) or times.null_count() == len(times):
        return ()
    ends: list[int | None] = times.gather(steps["last_event"].clip(0)).to_list()[: min(points, 64)]
    return tuple(ends)


def _stacks(snapshot: Snapshot, timeline: DeviceTimeline, most: int, most_frames: int) -> dict[str, Any]:
    """The stacks with 99% of the bytes at the peak, at least 64, most bytes first; then those that have ``OWN_SHARE``
    of these bytes at another moment; and the bytes at the peak of the rest.

    Stacks of equal identity (which differ only in noise) are one row, named after the largest.
    """
    recording, names = snapshot.recording, names_of(snapshot)
    identities, table = stack_identities(recording), timeline.stacks_at_peak
    maxima = stack_maxima(timeline.allocations, len(timeline.events))
    table = maxima.join(table, on="stack", how="left").with_columns(pl.col("bytes", "count").fill_null(0))
    rows = table.with_columns(
        identity=pl.Series([identities[stack] for stack in table["stack"].to_list()], dtype=pl.String)
    )
    rows = rows.sort(["bytes", "most", "stack"], descending=[True, True, False])
    rows = rows.group_by("identity", maintain_order=True).agg(
        pl.col("bytes", "count", "most", "most_count").sum(), stack=pl.col("stack").first()
    )
    rows = rows.sort(["bytes", "most", "identity"], descending=[True, True, False])
    total = int(rows["bytes"].sum())
    needed = int(np.searchsorted(rows["bytes"].cum_sum().to_numpy(), SHARE * total)) + 1
    at_peak = rows.head(min(max(needed, MIN_STACKS), most)).filter(pl.col("bytes") > 0)
    others = rows.filter(pl.col("most") >= OWN_SHARE * total).join(at_peak, on="identity", how="anti")
    top = pl.concat([at_peak, others.sort(["most", "identity"], descending=[True, False]).head(most - len(at_peak))])
    by_stack = timeline.allocations.group_by("stack", "category").agg(
        pl.col("size").sum(),
        live=pl.col("size").filter(is_live_at(timeline.peak_event)).sum(),
    )
    by_stack = by_stack.with_columns(pl.col("category").cast(pl.String))
    main = by_stack.sort(["live", "size", "category"], descending=[True, True, False])
    main = main.unique("stack", keep="first", maintain_order=True)
    category = dict(main.select("stack", "category").iter_rows())
    is_own, frame_of = own_code(recording), stack_names(recording).frame
    found = []
    for row in top.rows(named=True):
        stack = row["stack"]
        frame = int(frame_of[stack])
        file, line, function = ("", 0, "")
        if frame >= 0:
            file, line, function = recording.frames.select("filename", "line", "name").row(frame)
        callers = [i for i in recording.stack(stack) if is_own[i] and i != frame][:most_frames]
        found.append(
            DigestStack(
                identity=row["identity"],
                bytes=row["bytes"],
                count=row["count"],
                function=_name(function),
                file=shown_file(file)[-MOST_LETTERS:],
                line=min(max(int(line), 0), np.iinfo(np.int32).max),
                name=_name(str(names.line(stack))),
                category=category.get(stack, "unknown"),
                callers=tuple(_name(frame_line(recording, i)) for i in callers),
                most=row["most"],
                most_count=row["most_count"],
            )
        )
    return {"stacks": tuple(found), "rest": total - int(top["bytes"].sum())}


def _findings(snapshot: Snapshot, device: int) -> list[DigestFinding]:
    found = [finding for finding in findings(snapshot, [device]) if finding.kind != "peak"]
    names = names_of(snapshot)
    return [
        DigestFinding(
            kind=finding.kind,
            severity=finding.severity,
            rule=str(finding.evidence.get("rule", ""))[:100],
            title=_portable(finding.title),
            detail=tuple(_portable(line) for line in finding.detail[:2]),
            bytes=max(0, int(finding.bytes)),
            confidence=finding.confidence,
            stack=_name(str(names.function(finding.stack))) if finding.stack is not None else "",
        )
        for finding in found[:MOST_FINDINGS]
    ]


def _portable(text: str) -> Sentence:
    """The parts of a sentence; stacks as places, since a stack's number means nothing outside of its snapshot."""
    parts = [
        Part("place", part.text, None, shown_file(part.file)[-MOST_LETTERS:], part.line)
        if part.kind == "stack"
        else part
        for part in parts_of(text[:500])
    ]
    return Sentence(parts)
