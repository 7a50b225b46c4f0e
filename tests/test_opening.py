"""A report's manifest says where to open: the worst failure's device and event, else the highest peak's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import oracle
from decoder import Report

import snapreport
from snapreport.findings.opening import opening


def expected(devices: dict[int, oracle.Device]) -> tuple[int, int] | None:
    """(index of the device, event), computed from the replay alone."""
    found = []
    for place, (_, device) in enumerate(sorted(devices.items())):
        ooms = [
            (event["size"], -place, -number) for number, event in enumerate(device.events) if event["action"] == "oom"
        ]
        found += [(2, *oom) for oom in ooms]
        if device.events or device.peak_bytes:
            accelerator = device.device != -1 and device.peak_bytes > 0
            found.append((int(accelerator), device.peak_bytes, -place, -device.peak_event))
    if not found:
        return None
    _, _, place, event = max(found)
    return -place, -event


def test_opening(snapshot_path: Path, report_of: Callable[..., Path]) -> None:
    manifest: dict[str, Any] = Report(report_of(snapshot_path).read_text()).manifest
    want = expected(corpus.replayed(snapshot_path))
    assert manifest["opening"] == (None if want is None else {"device": want[0], "event": want[1]})


def test_a_failure_comes_before_a_greater_peak() -> None:
    """Of several files, the one that failed, with devices counted across all of them."""
    training, oom = (snapreport.load(corpus.path_of(name)) for name in ("training", "oom"))
    start = opening([training, oom])
    assert start is not None and (start.snapshot, start.index) == (1, len(training.devices))
    assert start.event == oom.timeline(start.device).oom_events[0]
