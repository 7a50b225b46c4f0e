"""What PyTorch itself reported about a run, compared with the report: peaks, error messages, and why memory ran out."""

from __future__ import annotations

import re
from typing import Any

import pytest
import recorded

from snapreport.findings.oom import oom_findings
from snapreport.findings.peak import peak_findings
from snapreport.findings.shortage import message_size
from snapreport.number_format import bytes_text

MIB = 1 << 20


@pytest.mark.parametrize("name", recorded.cases())
def test_max_memory_allocated(name: str) -> None:
    """The peak is given beside what ``torch.cuda.max_memory_allocated()`` returned, which counts rounded blocks: always
    in the numbers, and in a sentence where the two read differently.
    """
    snapshot = recorded.load(name)
    for device in snapshot.devices:
        timeline = snapshot.timeline(device)
        true = recorded.memory_stats(name, device).get("allocated_bytes.all.peak")
        if true is None or timeline.kind == "host" or not timeline.peak_bytes:
            continue
        (peak,) = peak_findings(snapshot, timeline)
        said = peak.evidence["max_memory_allocated_bytes"]
        assert said == (None if timeline.recording_gaps else true)
        named = [line for line in peak.detail if "torch.cuda.max_memory_allocated() would report" in line]
        sentence = f"torch.cuda.max_memory_allocated() would report {bytes_text(true)}: it counts rounded blocks."
        differs = said is not None and bytes_text(true) != bytes_text(timeline.peak_bytes)
        assert named == [sentence] * differs


def ooms(name: str) -> list[Any]:
    snapshot = recorded.load(name)
    return [f for device in snapshot.devices for f in oom_findings(snapshot, snapshot.timeline(device))]


@pytest.mark.parametrize("name", [n for n in recorded.names() if "oom" in n] or recorded.cases())
def test_the_message_is_the_one_that_the_user_saw(name: str) -> None:
    """PyTorch names the segment it needed, the trace contains the request: where they differ the report has both."""
    truth = recorded.truth(name)
    text = f"{truth.get('error', '')} {truth.get('planted', '')}"
    seen = re.findall(r"Tried to allocate ([\d.]+ [KMG]iB)", text)
    found = ooms(name)
    if not seen:
        return
    (shown,) = {message_size(f.evidence["segment_bytes"]) for f in found if f.evidence.get("segment_bytes")} & {seen[0]}
    for finding in found:
        if message_size(finding.evidence["segment_bytes"]) == shown and shown != message_size(finding.bytes):
            assert f'"Tried to allocate {shown}"' in " ".join(finding.detail)


def test_a_full_device_is_no_fragmentation() -> None:
    """4 MiB were requested, 2.5 MiB cached and 12 MiB free, and the segment takes 20."""
    (finding,) = ooms("oom_load")
    assert finding.evidence["verdict"] == "demand"
    assert finding.title == "Out of memory on cuda:0: a 4.00 MiB request needed a 20.0 MiB segment"
    assert finding.detail[0] == "12.0 MiB were free on the device and 2.50 MiB cached; 1.50 GiB were allocated."
    assert "fragment" not in " ".join([finding.title, *finding.detail])


@pytest.mark.parametrize(
    ("name", "size", "largest"), [("oom_optimizer", "16.0", "8.00"), ("hf_trainer_oom", "11.7", "11.0")]
)
def test_a_full_device_with_scattered_memory_says_both(name: str, size: str, largest: str) -> None:
    """Fragmentation by arithmetic, but over 90% is allocated: the more important fact comes first."""
    (finding,) = ooms(name)
    assert finding.evidence["device_full"]
    assert finding.title == "Out of memory on cuda:0: the device is full, and what is free is fragmented"
    # Where it is known how much more the step needs, that comes before the request.
    first = next(n for n, line in enumerate(finding.detail) if not line.startswith("To the end of this step, at least"))
    line = finding.detail[first]
    assert first <= 1 and f" {size} MiB request failed" in line
    assert line.endswith(f"the largest free block that it could use was {largest} MiB.")


def test_a_limit_of_the_process() -> None:
    (finding,) = ooms("oom_fraction")
    assert finding.title == (
        "Out of memory on cuda:0 at a limit of this process: a 375 MiB request failed with 77.3 GiB free on the device"
    )
    assert any("set_per_process_memory_fraction" in line for line in finding.detail)


@pytest.mark.parametrize("name", ["rec_enabled_state", "t29_rec_enabled_state", "rec_overflow"])
def test_a_peak_of_a_record_with_gaps_is_a_lower_bound(name: str) -> None:
    snapshot = recorded.load(name)
    (peak,) = peak_findings(snapshot, snapshot.timeline(0))
    assert peak.title.startswith("Peak on cuda:0: at least ") and peak.confidence == "inferred"
