"""The numbers of each piece of advice: savings by the tests' own replay, and sums over the allocations that its query
selects.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import oracle
import saving_oracle

from snapreport.findings.model import Finding
from snapreport.snapshot import Snapshot

Row = dict[str, Any]
# Rules whose estimates assume nothing about types: each names a mistake in the program.
WITHOUT_TYPES = (
    *("accumulation", "backward-each", "collected-weights", "second-model", "expanded-mask", "retained-graphs"),
    "exception-holds",
)


def evidence(
    snapshot: Snapshot, number: int, devices: Mapping[int, oracle.Device], finding: Finding, found: Sequence[Finding]
) -> Row:
    """``finding.evidence`` of one piece of advice, with ``bytes``."""
    device, told = saving_oracle.with_failures(devices[number]), finding.to_json()["evidence"]
    changes = {
        f.evidence["rule"]: saving_oracle.bytes_out(snapshot, number, device, f.evidence["saving"])
        for f in found
        if f.kind == "advice" and f.device == number and f.evidence["saving"]
    }
    change = changes.get(told["rule"])
    row: Row = {"bytes": 0, "saving": None, "together": None, "second_maximum": told["second_maximum"]}
    if change is not None:
        peak, event = saving_oracle.peak_without(device, change)
        row |= {
            "bytes": device.peak_bytes - peak,
            "saving": {
                "fraction": told["saving"]["fraction"],
                "peak_bytes": peak,
                "peak_event": event,
                "saves_bytes": device.peak_bytes - peak,
                # The range of an estimate is compared with programs that ran: tests/test_remedies.py.
                **{key: told["saving"][key] for key in ("low_bytes", "high_bytes") if key in told["saving"]},
                "failed_events": [i for i in saving_oracle.failures(device) if i in told["saving"]["failed_events"]],
                "is_lower_bound": any(saving_oracle.failures(one) for one in devices.values()),
            },
            "at_peak_bytes": saving_oracle.at_peak(device, change),
            "taken_at_peak_bytes": sum(
                size for n, size in change.items() if device.allocations[n].lives_at(device.peak_event)
            ),
        }
    # What needs the memory at the peak itself promises nothing in its title, and is not what to do first.
    is_first = told["effort"] == "one line" and 20 * row["bytes"] >= device.peak_bytes
    is_first &= told["saving"] is not None and "→" in finding.title
    is_first |= told["rule"] == "exception-holds"
    is_guess = finding.confidence == "estimate" and told["rule"] not in WITHOUT_TYPES
    row["priority"] = 2 if is_guess else 0 if is_first else 1
    if told["together"]:
        peak, event = saving_oracle.peak_without(
            device, saving_oracle.largest(changes[r] for r in told["together"]["rules"])
        )
        row["together"] = {"peak_bytes": peak, "peak_event": event, "saves_bytes": device.peak_bytes - peak}
    several = [devices[d] for d in sorted(devices) if d >= 0 and len(devices[d].events) > 1]
    peaks = [saving_oracle.with_failures(one).peak_bytes for one in several]
    if "peaks" in told:
        row["peaks"] = peaks
    if "mean_bytes" in told:
        row["mean_bytes"] = int(sum(peaks) / len(peaks))
    if "layers" in told:
        row["layers"] = told["layers"]  # of a program with a known number: tests/test_findings_advice.py
    if "in_forward_bytes" in told:
        row["in_forward_bytes"] = told["in_forward_bytes"]
    if "blocks" in told:
        row["blocks"] = len(change or {})
    if "widths" in told:
        row["widths"] = told["widths"]  # sizes are checked in tests/test_advice_files.py
    for key in ("gradient_bytes", "weight_copy_bytes"):  # against other programs: tests/test_advice_rules.py
        if key in told:
            row[key] = told[key]
    if "previous_bytes" in told:
        row["previous_bytes"] = told[
            "previous_bytes"
        ]  # for a program that stores its outputs: tests/test_advice_files.py
    if "frozen_bytes" in told:
        known = {one.size for one in device.allocations if one.category == "gradient"}
        row["frozen_bytes"] = sum(
            one.size
            for one in device.allocations
            if one.category == "parameter" and one.size not in known and one.size >= 1 << 20
            and one.lives_at(device.peak_event)
        )  # fmt: skip
        row["loaded_peak_bytes"] = told["loaded_peak_bytes"]  # against programs that ran: tests/test_remedies.py
    if "attempt_bytes" in told:
        row["attempt_bytes"] = _largest_attempt(device)
    if "iterations" in told:
        row |= _collection([device.allocations[n] for n in change or {}])
    if "batches" in told:  # of one line and size
        alive = Counter((device.allocations[n].stack, device.allocations[n].size) for n in change or {}
                        if device.allocations[n].lives_at(device.peak_event))  # fmt: skip
        row["batches"] = alive[max(alive, key=lambda key: key[1])]
    if "retained_bytes" in told:
        row["retained_bytes"] = told[
            "retained_bytes"
        ]  # against a program that releases its graphs: tests/test_advice_rules.py
    return row


def _largest_attempt(device: oracle.Device) -> int:
    """Bytes of the most activations that nothing in a backward pass frees, and that go with no allocation between."""
    births = [i for i, event in enumerate(device.events) if event["action"] == "alloc"]
    groups: dict[int, int] = {}
    for one in device.allocations:
        if one.alloc_event < 0 or one.category != "activation":
            continue
        frames = device.events[one.free_event].get("frames") or () if one.free_event >= 0 else ()
        if not any(frame["name"] == "backward" for frame in frames):
            at = bisect_left(births, one.free_event) if one.free_event >= 0 else len(births)
            groups[at] = groups.get(at, 0) + one.size
    return max(groups.values())


def _collection(selected: Sequence[oracle.Allocation]) -> Row:
    """The results are of the line of several that allocates the largest; what comes after them is computed from all."""
    lines: dict[oracle.Frames, list[oracle.Allocation]] = {}
    for one in selected:
        lines.setdefault(one.stack, []).append(one)
    results = max((line for line in lines.values() if len(line) >= 4), key=lambda line: line[0].size)
    last = max(one.alloc_event for one in results)
    return {
        "iterations": len(results),
        "joined_bytes": sum(one.size for one in selected if one.alloc_event > last),
    }
