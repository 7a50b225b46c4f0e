"""Every number in the sentences of a finding is one that the oracles have: as bytes, a count, or a share of a whole."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import findings_oracle
import held_oracle
import oracle
import pytest
import saving_oracle
import table_oracle
from expected import Case, case
from held_oracle import Row
from planted import path_of
from test_findings_numbers import PLANTED, numeric

from snapreport.findings.model import Finding
from snapreport.sentence import parts_of

TOKEN = re.compile(r"(?<![\w.:#])<?\d[\d,]*(?:\.\d+)?(?: (?:[KMGTP]iB|B|ms|s)\b|%|×)?")
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
# Numbers that are not measurements: names of devices and settings, and constants of a rule.
CONSTANTS = re.compile(
    r"\"Tried to allocate [^\"]*\"|"
    r"cuda:\d+|\b(?:32|16|8)[- ]bits?\b|within 64 events|up to 1 MiB larger|when \d+ more|\(0, 0\)|x² - 2xy"
)
# Which block sizes are assumed is computed with the blocks, and tested there; in which step a line grew once is tested
# in test_leak_shapes.
ASSUMED = re.compile(r"The block sizes of .*? are assumed|, in the \d+(?:st|nd|rd|th) of them")


def size_words(size: int) -> str:
    """Three significant digits, halves up, by integers alone."""
    value, unit = Fraction(size), 0
    while value >= Fraction(2047, 2) and unit + 1 < len(UNITS):
        value, unit = value / 1024, unit + 1
    digits = 0 if unit == 0 or value >= Fraction("99.95") else 1 if value >= Fraction("9.995") else 2
    whole = int(value * 10**digits + Fraction(1, 2))
    text = f"{whole // 10**digits}" + (f".{whole % 10**digits:0{digits}d}" if digits else "")
    return f"{text} {UNITS[unit]}"


def share_words(part: float, whole: float) -> str:
    percent = 100 * part / whole
    if not part:
        return "0%"
    return "<0.1%" if percent < 0.05 else f"{percent:.0f}%" if percent >= 9.95 else f"{percent:.1f}%"


def more_numbers(found: Case, finding: Finding, e: Row) -> list[float]:
    """Numbers in sentences that are not in the evidence."""
    device = found.devices[finding.device]
    framed = sum(a.size for a in held_oracle.live_at(device, device.peak_event) if a.stack)
    numbers: list[float] = [
        len(device.events),
        framed,
        abs(device.reconciliation_bytes),
        len(e.get("events", ())),
        *e.get("requested", ()),
    ]
    if finding.kind == "peak":
        numbers.append(e["peak_event"] - e["last_stretch"]["from_event"])
        numbers.append(finding.evidence["max_memory_allocated_bytes"] or 0)  # test_max_memory_allocated has it
    elif finding.kind == "oom" and "requested_bytes" in e:
        holes = [e[f"{name}_bytes"] for name in ("usable_free", "other_stream", "other_pool", "other_size")]
        numbers += [
            sum(holes),
            sum(holes[1:]),
            e["requested_bytes"] - sum(holes) - (e["device_free_bytes"] or 0) - e["pending_free_bytes"],
        ]
        if total := found.recorder.get("memory_at_dump", {}).get(finding.device, {}).get("total_bytes"):
            numbers += [total, total - e["reserved_bytes"] - (e["device_free_bytes"] or 0)]
    elif finding.kind == "oom":
        numbers += [len(e["events"])]
    elif "staircase" in e:
        leaks = [found.expected(f)["evidence"] for f in found.found if f.kind == "leak" and f.device == finding.device]
        every = sum(leak["bytes_per_step"] for leak in leaks if "bytes_per_step" in leak)
        numbers += [every, (e["device_limit"] - device.peak_bytes) // max(1, every)]
    elif "bursts" in e:
        bursts, total = findings_oracle.bursts_of(
            device, found.stacks[finding.stack or 0], found.bounds(finding.device) or []
        )
        numbers += [max(burst["steps"] for burst in bursts), sum(burst["bytes"] for burst in bursts) * 1e9 / total]
    elif finding.kind == "live_at_end":
        # How often a trace without annotated steps repeats is an estimate: test_findings_leaks tests it.
        numbers += [finding.evidence["steps"] or 0, abs(e["end_bytes"] - e["start_bytes"])]
    elif finding.kind == "churn":
        numbers += churned(found, finding, e)
    elif finding.kind == "advice":
        numbers += advised(found, finding)
    return numbers


def churned(found: Case, finding: Finding, e: Row) -> list[float]:
    """The causes, by line."""
    by_line: dict[tuple[str, str], list[float]] = {}
    for row in e["stacks"]:
        for key in ("bytes", "count"):
            by_line.setdefault((held_oracle.place(row["stack"]), key), []).append(row[key])
    return [sum(parts) for parts in by_line.values()]


def advised(found: Case, finding: Finding) -> list[float]:
    device = saving_oracle.with_failures(found.devices[finding.device])
    numbers: list[float] = [device.peak_bytes, sum(len(d.events) > 1 for d in found.devices.values()), 8]
    live = held_oracle.live_at(device, device.peak_event)
    # A request that failed is of the category that its line allocated most of.
    numbers.append(sum(one.size for one in live if usual_category(found.devices[finding.device], one) == "activation"))
    # What a setting would have reserved is compared with replays in test_whatif.
    numbers += [finding.evidence[key] for key in ("reserved_bytes", "replayed_bytes") if key in finding.evidence]
    for other in found.found:
        if other.device == finding.device and other.kind in ("oom", "fragmentation", "churn"):
            want = found.expected(other)["evidence"]
            numbers += [n for _, n in numeric(want, "")] + more_numbers(found, other, want)
    return numbers


def usual_category(device: oracle.Device, one: oracle.Allocation) -> str:
    if one.alloc_event < 0 or device.events[one.alloc_event]["action"] != "oom":
        return one.category
    event = device.events[one.alloc_event]
    stack, most = oracle.frames_of(event), Counter[str]()
    alike = [a for a in device.allocations if a.alloc_event >= 0 and a.stack == stack]
    for other in [a for a in alike if a.size == one.size] or alike:
        most[other.category] += other.size
    return most.most_common(1)[0][0] if most else one.category


def wholes(found: Case, finding: Finding, e: Row) -> list[float]:
    """The wholes that shares refer to."""
    device = found.devices[finding.device]
    times = [event.get("time_us") for event in device.events]
    span = [max(times) - min(times)] if times and None not in times else []
    told = [e[name] for name in ("allocated_bytes", "new_bytes") if name in e]
    needed = saving_oracle.with_failures(device).peak_bytes
    return [device.peak_bytes, needed, device.allocated[-1], 1e9, *told, *span]


def check(path: Path) -> int:
    """How many numbers were found in sentences, all of them known."""
    found, count = case(path), 0
    table_oracle.learn({frame for stack in found.stacks for frame in stack})
    for finding in found.found:
        want = found.expected(finding)
        e = want["evidence"]
        numbers = [n for _, n in numeric(want, "")] + more_numbers(found, finding, e)
        exact = {int(n) for n in numbers}
        known = {f"{n:,}" for n in exact} | {f"{n:,}×" for n in exact}
        shared = [whole for whole in wholes(found, finding, e) if whole]
        known |= {share_words(n, whole) for n in numbers for whole in shared}
        known |= {f"{n / 1e3:,.1f} ms" for n in numbers if n < 100_000} | {f"{n / 1e6:,.1f} s" for n in numbers}
        known |= {f"{n / 1e3:,.0f} ms" for n in numbers if n >= 99_950}
        # The signs of missing events are tested in test_recording_gaps.
        gaps = {gap.sentence for gap in found.snapshot.timeline(finding.device).recording_gaps}
        # What a run would have needed is tested in test_whatif, what the end of a pass needs in
        # test_cut_off_pass and by benchmarks failures; what a line grew by once in test_leak_shapes, tensors of a step
        # beside those of others in test_mistakes.
        elsewhere = re.compile(
            "allocator settings avoids the failure|(in layer|To the end of this|A later request fails:) "
            "|grew once, by |times as large as those of any other "
        )
        detail = [line for line in finding.detail if not elsewhere.search(line)]
        for line in (finding.title, *detail, *(line for line in finding.basis if line not in gaps)):
            for part in parts_of(line):
                if part.kind in ("bytes", "event"):
                    count += 1
                    assert part.number in exact, f"{part.text} in {line!r}"
                    # Of two sizes with one unit, the first goes without: "63.5 → 50.8 GiB".
                    whole = size_words(part.number or 0)
                    assert part.kind == "event" or part.text in (whole, whole.split(" ")[0])
                elif part.kind == "text":
                    told = TOKEN.findall(CONSTANTS.sub("", ASSUMED.sub("", part.text)))
                    count += len(told)
                    assert set(told) <= known, f"{sorted(set(told) - known)} in {line!r}"
    return count


def test_every_number_told(telling_path: Path) -> None:
    found = case(telling_path)
    assert check(telling_path) >= 3 * len(found.found)


@pytest.mark.parametrize("name", PLANTED)
def test_every_number_told_of_planted_causes(name: str) -> None:
    preset, changes = PLANTED[name]
    check(path_of(preset, **changes))


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1_048_576, "1.00 MiB"),
        (12_426_629_128, "11.6 GiB"),
        (1_029_235_712, "982 MiB"),
    ],
)
def test_words(size: int, words: str) -> None:
    assert size_words(size) == words


def test_numbers_are_found_in_words() -> None:
    """This file must miss little: the pattern finds sizes, counts, shares and times."""
    text = "1,024 B in 3 of 12.5 MiB (<0.1%), 2× 48.0 ms at event 3,485: 57% of cuda:1"
    assert TOKEN.findall(CONSTANTS.sub("", text)) == [
        "1,024 B",
        "3",
        "12.5 MiB",
        "<0.1%",
        "2×",
        "48.0 ms",
        "3,485",
        "57%",
    ]
