"""Every finding of a snapshot as the oracles compute it: all numbers, and the stacks they belong to."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import advice_oracle
import corpus
import findings_oracle
import oracle
import room_oracle
import saving_oracle
from held_oracle import Row
from test_annotations import spans_of

from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.snapshot import Snapshot


@dataclass
class Case:
    """One snapshot: its findings, and the means to recompute them."""

    path: Path
    snapshot: Snapshot
    found: list[Finding]
    devices: dict[int, oracle.Device]
    settings: dict[str, Any]
    _rooms: dict[int, room_oracle.Room] = field(default_factory=dict)
    _bounds: dict[int, list[int] | None] = field(default_factory=dict)
    _expected: dict[int, Row | None] = field(default_factory=dict)

    @cached_property
    def stacks(self) -> list[oracle.Frames]:
        """The frames of each stack by its number."""
        rows = self.snapshot.recording.frames.select("filename", "line", "name").rows()
        count = len(self.snapshot.recording.stack_offsets) - 1
        return [tuple(rows[i] for i in self.snapshot.recording.stack(number)) for number in range(count)]

    @cached_property
    def recorder(self) -> dict[str, Any]:
        """What ``snapreport record`` noted beside the trace; {} in files that it did not write."""
        raw = corpus.raw(self.path)
        return (raw.get("snapreport") if isinstance(raw, dict) else None) or {}

    def peaks_of_process(self, number: int) -> dict[str, int]:
        """PyTorch's own statistics at the end; {} where the program has reset them."""
        stats = self.recorder.get("devices", {}).get(number, {}).get("memory_stats", {})
        names = {"recorded_peak_bytes": "requested_bytes", "recorded_peak_reserved_bytes": "reserved_bytes"}
        found = {name: stats[f"{key}.all.peak"] for name, key in names.items()} if stats else {}
        device = self.devices[number]
        least = zip(found.values(), (device.peak_bytes, max(device.reserved)), strict=False)
        return {} if any(value < replayed for value, replayed in least) else found

    def room(self, device: int) -> room_oracle.Room:
        if device not in self._rooms:
            self._rooms[device] = room_oracle.Room(self.devices[device], self.settings)
        return self._rooms[device]

    def bounds(self, device: int) -> list[int] | None:
        """Those of the annotated steps; None where there are fewer than four."""
        if device not in self._bounds:
            raw = corpus.raw(self.path)
            timed = device >= 0 and isinstance(raw, dict) and all("time_us" in e for e in self.devices[device].events)
            spans = spans_of(raw, device) if timed and raw.get("external_annotations") else []
            ends = [time for _, time in self.recorder.get("steps", ())] if timed else []
            events = self.devices[device].events
            self._bounds[device] = (
                findings_oracle.recorded_bounds(events, ends) if ends else findings_oracle.step_bounds(spans)
            )
        return self._bounds[device]

    def plain(self, finding: Finding) -> Row:
        """The finding as ``stats --json`` has it, but with frames in place of stack numbers."""
        return self._framed(finding.to_json())

    def _framed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: self.stacks[v] if k == "stack" and v is not None else self._framed(v) for k, v in value.items()}
        return [self._framed(v) for v in value] if isinstance(value, list) else value

    def expected(self, finding: Finding) -> Row | None:
        """What the finding must contain, all rows of it; None where there should be none."""
        if id(finding) not in self._expected:
            self._expected[id(finding)] = self._work_out(finding)
        return self._expected[id(finding)]

    def _work_out(self, finding: Finding) -> Row | None:
        device, number = self.devices[finding.device], finding.device
        told = finding.evidence
        at: int | None = len(device.events) - 1
        if finding.kind == "peak":
            evidence = findings_oracle.peak(device) | self.peaks_of_process(number)
            at = evidence["peak_event"]
        elif finding.kind == "oom":
            groups = room_oracle.failures(device)
            if "verdict" not in told:
                events = [group[0] for group in groups[10:]]
                return {
                    "device": number,
                    "bytes": 0,
                    "event": events[0],
                    "link": {"at": events[0]},
                    "evidence": {"events": events},
                }
            evidence = room_oracle.oom(self.room(number), next(g for g in groups if g[0] == told["events"][0]))
            at = evidence["events"][0]
        elif finding.kind == "fragmentation":
            evidence = room_oracle.fragmentation(self.room(number))
            at = evidence and evidence["event"] - ("requested_bytes" in evidence)
        elif finding.kind == "live_at_end":
            bounds = self.bounds(number)
            evidence = findings_oracle.kept(device, self._leaking(number), bounds and len(bounds) - 1)
            if evidence and not bounds:
                del evidence["steps"]
        elif finding.kind == "leak":
            stack, bounds = self.stacks[finding.stack or 0], self.bounds(number)
            assert bounds is not None, "what leaks without annotated steps is in test_findings_leaks"
            if self.recorder.get("steps"):  # the loop ends among the frees after its last step: see test_leak_shapes
                end = told["bounds"][-1]
                assert all(event["action"].startswith("free") for event in device.events[bounds[-1] : end])
                bounds = [*bounds[:-1], end]
            evidence = (findings_oracle.cycles if "bursts" in told else findings_oracle.leak)(device, stack, bounds)
            at = evidence.pop("at", at)
        elif finding.kind == "churn":
            evidence = findings_oracle.churn(device, self.bounds(number))
            at = evidence and evidence["first"]
        elif finding.kind != "advice":
            row: Row = module_of(finding.kind).expected(self, finding)
            return row
        else:
            evidence = advice_oracle.evidence(self.snapshot, number, self.devices, finding, self.found)
            at = saving_oracle.with_failures(device).peak_event
        if evidence is None:
            return None
        evidence = dict(evidence)
        size = evidence.pop("bytes")
        # Advice links to where its finding links, else to the peak.
        link: Row = {"at": at, "x": None}
        if finding.kind == "advice":
            same = [f for f in self.found if f.kind != "advice" and f.link == finding.link]
            link = self.expected(same[0])["link"] if same else link
        if finding.kind == "churn":
            link = {"x": [evidence.pop("first") - 1, evidence.pop("last") + 1]}
        return {"device": number, "bytes": size, "event": at, "link": link, "evidence": evidence}

    def _leaking(self, device: int) -> int:
        leaks = [f for f in self.found if f.device == device and f.kind == "leak" and f.severity == "warning"]
        return sum(self.expected(leak)["bytes"] for leak in leaks)


def module_of(kind: str) -> Any:
    """The test file of a kind of finding that the oracles here do not know, ``tests/test_findings_<kind>.py``:
    ``expected(case, finding)`` is its own oracle, ``PLANTED`` the preset and the changes of a run that has the cause.
    """
    return importlib.import_module(f"test_findings_{kind}")


@lru_cache(maxsize=8)  # each holds a snapshot, its findings and its replay
def case(path: Path) -> Case:
    raw, snapshot = corpus.raw(path), corpus.loaded(path)
    settings = (raw.get("allocator_settings") if isinstance(raw, dict) else None) or {}
    return Case(path, snapshot, findings(snapshot), corpus.replayed(path), settings)
