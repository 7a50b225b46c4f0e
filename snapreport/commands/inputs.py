"""Snapshots as commands read them."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from snapreport.errors import SnapshotError
from snapreport.reading.paths import is_remote, shown_path
from snapreport.supervision import name_file
from snapreport.terminal import echo, lines

if TYPE_CHECKING:
    from snapreport.reading.redaction import Redaction
    from snapreport.report.source_links import SourceLinks
    from snapreport.snapshot import Snapshot


def report_unlinked(links: SourceLinks, snapshots: Sequence[Snapshot]) -> None:
    """Warn on standard error when --link links nothing, and name a file that no prefix matches."""
    from snapreport.report.source_links import first_own_file

    if any(links.of(snapshot.recording) for snapshot in snapshots):
        return
    file = next(filter(None, (first_own_file(snapshot.recording) for snapshot in snapshots)), "")
    reason = f"--strip-prefix has to fit the names of files, such as {file}" if file else "no stack trace names a file"
    echo(lines([f"snapreport: --link: no line is linked: {reason}"]), err=True)


def load_all(
    snaps: Sequence[str],
    rules: str | None = None,
    *,
    inference: bool = True,
    redaction: Redaction | None = None,
    devices: Sequence[int] = (),
    part: Mapping[str, Any] | None = None,
    profile: str | None = None,
) -> list[Snapshot]:
    """Read the snapshots. ``rules``: a file of categories; ``inference``: see :func:`snapreport.load`; ``redaction``:
    what to redact; ``devices``: the only ones, all if none are given; ``part``: keywords of
    :meth:`snapreport.Snapshot.part`; ``profile``: a ``torch.profiler`` trace of the first one's run.
    """
    if profile:
        if len(snaps) > 1:
            raise click.UsageError("--profile goes with one snapshot")
        check_inputs([profile])
    if list(snaps).count("-") > 1:
        raise click.UsageError("standard input can be read once only")
    check_inputs(snaps)
    from snapreport import load
    from snapreport.process_memory import release_freed, share_one_heap

    share_one_heap()
    # What is imported by now is not looked through when freed memory is given back: 15 ms instead of 45.
    gc.freeze()
    loaded = []
    for snap in snaps:
        loaded.append(load(snap, rules, inference=inference, profile=profile))
        release_freed()
    if redaction:
        for snapshot, recording in zip(loaded, redaction.of([s.recording for s in loaded]), strict=True):
            snapshot.recording = recording
    if devices:
        for snapshot in loaded:
            _keep_devices(snapshot, devices)
    if part:
        for number, snapshot in enumerate(loaded):
            loaded[number] = snapshot.part(**part)
            release_freed()
    if profile:
        _check_profile(loaded[0])
    names = ", ".join(shown_path(snap) if snap != "-" else "standard input" for snap in snaps[:3])
    name_file(names if len(snaps) <= 3 else f"{names}, … ({len(snaps)} snapshots)")
    return loaded


def _check_profile(snapshot: Snapshot) -> None:
    """Refuses a trace of another run."""
    from snapreport.timeline.time_costs import run_costs

    trace = snapshot.recording.profile
    if trace and run_costs([snapshot.timeline(device) for device in snapshot.devices]) is None:
        raise SnapshotError(trace.problem or f"{trace.path}: the snapshot has no device to compare it with")


def _keep_devices(snapshot: Snapshot, devices: Sequence[int]) -> None:
    recording = snapshot.recording
    for device in devices:
        if device not in recording.devices:
            known = ", ".join(map(str, recording.devices))
            raise SnapshotError(f"{recording.path}: no device {device}; there are {known or 'none'}")
    recording.devices = {number: record for number, record in recording.devices.items() if number in devices}


def is_job_path(path: str) -> bool:
    """Whether an argument stands for the ranks of a job: a folder, a list of paths, or a digest."""
    return path.lower().endswith((".digest", ".txt", ".list")) or path.startswith("@") or os.path.isdir(path)  # noqa: PTH112  # False for names too long


def check_inputs(snaps: Sequence[str]) -> None:
    """Refuse missing snapshots before any error about the output, which may be named after one."""
    for snap in snaps:
        if snap == "-" or is_remote(snap):
            continue
        try:
            Path(snap).stat()
        except (OSError, ValueError) as error:
            raise SnapshotError(f"{snap}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
