"""The first sentences: the cause and its remedy where one was replayed, else what holds the peak."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec import field
from msgspec.structs import replace

import snapreport
from snapreport.contracts.finding import Evidence
from snapreport.findings.advice_context import AdviceEvidence, CombinedRow
from snapreport.findings.diagnosis import diagnosis
from snapreport.findings.model import Finding
from snapreport.findings.reference_cycles import CycleEvidence
from snapreport.findings.saving import SavingRow
from snapreport.report.sentence_html import Links
from snapreport.report.verdict import chips
from tests import corpus

GIB = 1 << 30


class Holding(Evidence):
    """What a peak or a failure has of categories and stacks."""

    categories: list[dict[str, object]]
    stacks: list[dict[str, object]] = field(default_factory=list)
    inferred_categories: list[str] = field(default_factory=list)
    allocated_bytes: int = 0
    requested_bytes: int = 0
    verdict: str = "demand"


PARTS: list[dict[str, object]] = [
    {"category": "unknown", "bytes": 9 * GIB, "count": 1},
    {"category": "activation", "bytes": 8 * GIB, "count": 3},
    {"category": "parameter", "bytes": 3 * GIB, "count": 3},
]
PEAK = Finding("peak", 0, "info", "Peak on cuda:0: 20.0 GiB", bytes=20 * GIB, evidence=Holding(categories=PARTS))
FAILURE = Finding(
    "oom", 0, "error", "Out of memory on cuda:0", ["2.00 GiB were free."],
    evidence=Holding(categories=PARTS, allocated_bytes=20 * GIB),
)  # fmt: skip


def advice(rule: str, saves: int, *, priority: int = 1, where: str | None = None, **more: object) -> Finding:
    saving = SavingRow("", 1.0, 20 * GIB - saves, 1, saves, is_lower_bound=False, failed_events=[])
    evidence = AdviceEvidence(
        rule=rule,
        saving=saving,
        at_peak_bytes=8 * GIB,
        priority=priority,
        where=where,
        effort="one line" if where else "a rewrite",
    )
    title = f"Do {rule}: peak 20.0 → {20 - saves // GIB}.0 GiB" + ("" if "confidence" in more else " (replayed)")
    return Finding("advice", 0, "info", title, bytes=saves, evidence=evidence, **more)  # type: ignore[arg-type]


def said(*found: Finding) -> list[str]:
    return [statement.text for statement in diagnosis(found, 0)]


def test_the_cause_and_its_replayed_remedy_come_first() -> None:
    remedy = advice("no-grad", 7 * GIB, priority=0, where="/app/eval.py:33")
    assert said(PEAK, advice("checkpointing", 9 * GIB), remedy) == [
        "Graphs that no backward pass uses hold 8.00 of 20.0 GiB: add torch.no_grad() (see eval.py:33), "
        "peak 13.0 GiB (replayed)."
    ]


def test_what_holds_the_peak_where_no_remedy_is_replayed() -> None:
    small, estimate = advice("checkpointing", GIB), advice("mixed-precision", 8 * GIB, confidence="estimate")
    assert said(PEAK, small, estimate) == ["Activations and parameters hold 55% of the peak."]
    assert said(Finding("peak", 0, "info", "x", bytes=20 * GIB, evidence=Holding(categories=PARTS[:1]))) == []


def test_a_line_explains_a_peak_of_unknown_use() -> None:
    row = {"stack": 1, "line": "fill pool.py:3", "category": "unknown", "bytes": 12 * GIB, "category_bytes": 12 * GIB}
    assert said(replace(PEAK, evidence=Holding(categories=PARTS[:1], stacks=[row]))) == [
        "60% of the peak is from fill pool.py:3."
    ]
    assert said(replace(PEAK, evidence=Holding(categories=PARTS[:1], stacks=[{**row, "bytes": 9 * GIB}]))) == []


def test_a_reference_cycle_comes_after_remedies() -> None:
    evidence = CycleEvidence(bursts=1, burst_bytes=8 * GIB, burst_count=8, share_of_bytes=1.0)
    cycle = Finding(
        "leak", 0, "info", "Possible reference cycle: x", ["y", "Break it."], bytes=8 * GIB, evidence=evidence
    )
    assert said(PEAK, cycle) == ["Possible reference cycle: x.", "Break it."]
    assert len(said(PEAK, replace(cycle, bytes=5 * GIB))) == 1
    assert said(PEAK, cycle, advice("checkpointing", 9 * GIB))[0].startswith("Activations of repeated layers")


def test_an_estimate_says_so() -> None:
    found = advice("backward-each", 10 * GIB, confidence="estimate")
    assert said(PEAK, found) == [
        "Graphs of several forward passes hold 8.00 of 20.0 GiB: call backward() after each, peak 10.0 GiB (estimate)."
    ]


def test_nothing_is_promised_of_a_run_that_failed() -> None:
    found = advice("checkpointing", 8 * GIB)
    found.evidence.saving.is_lower_bound = True  # type: ignore[attr-defined]
    text = "Activations of repeated layers hold 8.00 of 20.0 GiB needed at the failure: use activation checkpointing, "
    assert said(FAILURE, PEAK, found)[2] == f"{text}then 12.0 GiB or more are needed (replayed)."


def test_two_remedies_where_each_alone_saves_little() -> None:
    found = advice("checkpointing", GIB)
    row = CombinedRow(["checkpointing", "foreach-optimizer"], 12 * GIB, 1, 8 * GIB)
    found.evidence.second_maximum = row  # type: ignore[attr-defined]
    assert said(PEAK, found) == ["Use activation checkpointing and use fused=True: peak 20.0 → 12.0 GiB (replayed)."]


def test_a_range_and_a_small_saving_where_there_is_nothing_better() -> None:
    routed = advice("accumulation", 6 * GIB, confidence="estimate")
    routed.evidence.saving.low_bytes, routed.evidence.saving.high_bytes = 14 * GIB, 17 * GIB  # type: ignore[attr-defined]
    assert said(PEAK, routed) == [
        "What grows with the batch holds 8.00 of 20.0 GiB: halve the batch with gradient accumulation, peak between "
        "14.0 GiB and 17.0 GiB (estimate)."
    ]
    small = advice("checkpointing", 2 * GIB)
    assert said(PEAK, small)[0].startswith("Activations of repeated layers hold 8.00 of 20.0 GiB")
    assert said(PEAK, small, routed) == said(PEAK, routed)
    # A range counts by what it saves at least: 3 GiB.
    assert said(PEAK, advice("checkpointing", 4 * GIB), routed)[0].startswith("Activations of repeated layers hold")


def test_segments_released_again_and_again_come_before_what_holds_the_peak() -> None:
    churn = Finding("churn", 0, "warning", "cuda:0 released 9 segments", bytes=GIB)
    emptied = Finding("advice", 0, "info", "Remove it", evidence=AdviceEvidence(rule="empty-cache"))
    assert said(PEAK, churn, emptied) == ["cuda:0 released 9 segments.", "Remove it."]
    assert len(said(PEAK, churn, advice("checkpointing", 9 * GIB))) == 1


def leak(name: str, size: float, step: int, freed: int = 0) -> Finding:
    """A leak of so many GiB that grows by ``step`` KiB, of which ``freed`` have ended with their loop."""
    evidence = {"bytes_per_step": step << 10, "live_bytes": int(size * GIB), "freed_bytes": freed}
    return Finding("leak", 0, "warning", name, ["Drop it."], bytes=int(size * GIB), evidence=evidence)


def test_a_minor_leak_comes_after_what_holds_the_peak() -> None:
    """Of 20 GiB: 2 explain some; 0.5 do not, and 3 MiB a step make an error in a night where 64 KiB do not, or a loop
    that has ended.
    """
    slow, fast, large = leak("Slow", 0.5, 64), leak("Fast", 0.5, 3072), leak("Large", 2, 64)
    uses = said(PEAK)
    assert said(PEAK, slow) == [*uses, "Slow."]
    assert said(PEAK, leak("Ended", 0.5, 3072, freed=GIB // 2)) == [*uses, "Ended."]
    assert said(PEAK, fast) == ["Fast.", "Drop it."] and said(PEAK, large) == ["Large.", "Drop it."]
    remedy = advice("checkpointing", 9 * GIB)
    assert said(PEAK, slow, remedy) == [*said(PEAK, remedy), "Slow."]
    assert said(FAILURE, PEAK, slow)[-1] == "Slow." and said(PEAK, large, slow)[-1] == "Slow."
    # Above the timeline each of the two has a chip.
    found = [PEAK, slow, remedy]
    shown = chips(found, {0: 0}, 0, Links(), [(one.text, one.finding) for one in diagnosis(found, 0)])
    assert [chip.kind for chip in shown] == ["advice", "leak"]
    assert "Slow" not in shown[0].remedy and shown[1].remedy == "Drop it."


def test_a_failure_comes_first_and_then_what_holds_the_memory() -> None:
    assert said(FAILURE, PEAK) == [
        "Out of memory on cuda:0.",
        "2.00 GiB were free.",
        "Activations and parameters hold 55% of what was allocated.",
    ]
    assert said(FAILURE, PEAK, advice("checkpointing", 9 * GIB))[2].startswith("Activations of repeated layers hold 8.")


@pytest.mark.parametrize(("requested", "sentences"), [(20, 3), (21, 2)])
def test_what_holds_less_than_the_request_that_failed_is_no_reason(requested: int, sentences: int) -> None:
    evidence = replace(FAILURE.evidence, allocated_bytes=20 * GIB, requested_bytes=requested * GIB)
    assert len(said(replace(FAILURE, evidence=evidence), PEAK)) == sentences


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        (
            "forward_without_no_grad.pickle",
            r"Graphs that no backward pass uses hold 261 of 394 MiB: add ",
        ),
        ("lightning_oom.pickle", r"Out of memory on cuda:0: a 384 MiB request was 115 MiB too large\.$"),
        ("empty_cache_loop.pickle", r"cuda:0 released 375 segments"),  # half of the batch comes after what is wrong
        ("inference_fragmentation.pickle", r"Outputs of the previous iteration hold 3\.21 of 17\.2 GiB: delete"),
    ],
)
def test_recorded_programs(name: str, pattern: str) -> None:
    if name not in corpus.real_names():
        pytest.skip(corpus.NO_REAL)
    from snapreport.findings.run import findings

    snapshot = snapreport.load(corpus.path_of(name))
    assert re.match(pattern, diagnosis(findings(snapshot), snapshot.devices[0])[0].text)


def test_a_line_is_named_with_what_it_holds_of_the_category() -> None:
    """Of 9 GiB at one line, 6 are activations: all activations are 8, and no share is over 100%."""
    row = {"stack": 1, "line": "forward a.py:3", "category": "activation", "bytes": 9 * GIB, "category_bytes": 6 * GIB}
    peak = replace(PEAK, evidence=Holding(categories=PARTS, stacks=[row]))
    assert said(peak)[0] == "Activations and parameters hold 55% of the peak, 55% of it in forward a.py:3."


def uses(
    *shares: tuple[str, float], line: float = 0, of_category: float = 0, category: str = "", **more: Any
) -> list[str]:
    """Of 20 GiB: what each category has, and a line, in GiB."""
    parts: list[dict[str, object]] = [{"category": name, "bytes": int(size * GIB)} for name, size in shares]
    sizes: dict[str, object] = {"bytes": int(line * GIB), "category_bytes": int(of_category * GIB)}
    row: dict[str, object] = {"stack": 1, "line": "fill pool.py:3", "category": category, **sizes}
    holding = Holding(categories=parts, stacks=[{**row, "stack": 0}, row] if line else [], **more)
    return said(replace(PEAK, evidence=holding))


def test_what_holds_the_peak_at_each_limit() -> None:
    assert uses(("activation", 10), ("parameter", 9)) == ["Activations hold 50% of the peak."]
    assert uses(("activation", 9.9), ("parameter", 9)) == ["Activations and parameters hold 94% of the peak."]
    assert uses(("activation", 6), ("parameter", 1)) == ["Activations and parameters hold 35% of the peak."]
    assert uses(("activation", 5.9), ("parameter", 5)) == []
    assert uses(("unknown", 9), ("optimizer state", 10)) == ["Optimizer state holds 50% of the peak."]
    assert uses(("kv cache", 12)) == ["The KV cache holds 60% of the peak."]
    assert uses(("kv cache", 9), ("parameter", 8)) == ["The KV cache and parameters hold 85% of the peak."]
    inferred = {"inferred_categories": ["activations"]}
    assert uses(("activation", 12), **inferred) == ["Activations hold 60% of the peak (inferred)."]
    assert uses(("parameter", 12), **inferred) == ["Parameters hold 60% of the peak."]


def test_the_line_that_holds_the_peak_at_each_limit() -> None:
    text = "Activations hold 60% of the peak"
    own = {"category": "activation", "line": 15}
    assert uses(("activation", 12), of_category=3, **own) == [f"{text}, 25% of it in fill pool.py:3."]
    assert uses(("activation", 12), of_category=2.9, **own) == [f"{text}."]
    assert uses(("activation", 12), of_category=12, **own) == [f"{text}, all of it in fill pool.py:3."]
    assert uses(("activation", 12), of_category=12, line=15, category="gradient") == [f"{text}."]
    assert uses(("activation", 5), line=10) == ["50% of the peak is from fill pool.py:3."]
    assert uses(("activation", 5), line=9.9) == []
    assert uses(line=20) == ["All of the peak is from fill pool.py:3."]


def test_remedies_at_each_limit() -> None:
    def first(*found: Finding) -> str:
        return said(PEAK, *found)[0]

    one_line = advice("no-grad", GIB, priority=0, where="/app/eval.py:33")
    assert first(one_line).startswith("Graphs that no backward pass uses")
    assert first(replace(one_line, bytes=GIB - 1)).startswith("Activations and parameters hold")
    much, some = advice("checkpointing", 3 * GIB), advice("offload", 2 * GIB)
    assert first(some).startswith("Optimizer state holds")
    assert first(replace(some, bytes=2 * GIB - 1)).startswith("Activations and parameters hold")
    assert first(some, much).startswith("Activations of repeated layers")
    pair = advice("kv-cache", GIB)
    pair.evidence.second_maximum = CombinedRow(["kv-cache", "offload"], 17 * GIB, 1, 3 * GIB)  # type: ignore[attr-defined]
    both = "Halve them and offload it to the CPU: peak 20.0 → 17.0 GiB (replayed)."
    assert first(pair) == both and first(pair, some) == both and first(pair, much) != both
    for row in (CombinedRow(["kv-cache", "offload"], 17 * GIB, 1, 3 * GIB - 1), CombinedRow(["x"], 1, 1, 9 * GIB)):
        pair.evidence.second_maximum = row  # type: ignore[attr-defined]
        assert first(pair).startswith("Activations and parameters hold")
    # A mistake of one line is first, with what it holds.
    mistake = Finding(
        "advice", 0, "info", "Mend it", ["It holds 1 GiB."], bytes=GIB,
        evidence=AdviceEvidence(rule="no-grad", effort="one line"),
    )  # fmt: skip
    assert said(PEAK, much, mistake)[:2] == ["It holds 1 GiB.", "Mend it."]
    assert said(PEAK, much, replace(mistake, evidence=AdviceEvidence(rule="no-grad")))[0] == first(much)
    # Of several with one rank the one with most bytes.
    assert first(advice("offload", 4 * GIB), much).startswith("Optimizer state")
    assert said(PEAK, leak("Fast", 2, 3072), replace(one_line, bytes=3 * GIB))[0].startswith("Graphs that no")
    assert said(PEAK, leak("Fast", 4, 3072), replace(one_line, bytes=3 * GIB))[0] == "Fast."


def test_what_is_reserved_and_not_allocated() -> None:
    def setting(name: str, peak: int) -> Finding:
        return Finding("advice", 0, "info", name, evidence={"rule": name, "replayed_bytes": peak, "saving": None})

    found = Finding("fragmentation", 0, "warning", "5 GiB are reserved", bytes=5 * GIB)
    assert said(PEAK, found) == ["5 GiB are reserved."]
    best = [replace(setting(name, peak), kind="setting") for name, peak in (("first", 9), ("best", 7), ("last", 8))]
    assert said(PEAK, found, *best) == ["5 GiB are reserved.", "best."]
    assert said(PEAK, replace(found, severity="info"), *best) == ["5 GiB are reserved.", "best."]
    assert said(PEAK, replace(found, severity="info")) == said(PEAK)
    assert said(PEAK, found, advice("checkpointing", 9 * GIB)) == ["5 GiB are reserved."]


def test_leaks_that_are_minor_at_each_limit() -> None:
    def is_minor(size: int, step: int, peak: int = 20, freed: int = 0) -> bool:
        of_peak = replace(PEAK, bytes=peak * GIB, evidence=Holding(categories=[]))
        evidence = {"bytes_per_step": step, "live_bytes": size, "freed_bytes": freed}
        return (
            said(of_peak, Finding("leak", 0, "warning", "It.", ["Drop it."], bytes=size, evidence=evidence))[-1]
            == "It.."
        )

    assert is_minor(GIB - 1, 214_748) and not is_minor(GIB - 1, 214_749) and not is_minor(GIB, 9)
    assert is_minor(GIB // 8, 171_798, 4) and not is_minor(GIB // 8, 171_799, 4)
    assert is_minor(GIB // 8, 1 << 30, freed=GIB // 8) and not is_minor(GIB // 8, 1 << 30, freed=GIB // 8 - 1)


def test_other_devices_and_moments() -> None:
    other = replace(advice("checkpointing", 9 * GIB), device=1)
    assert said(PEAK, other) == said(PEAK)
    final = replace(PEAK, title="Final state of cuda:0: 20.0 GiB")
    assert said(final)[0].endswith("of the final state.")
    lost = replace(PEAK, evidence={"is_lost": True, "categories": PARTS, "stacks": []})
    assert said(lost)[0].endswith("of the peak of the trace.")
    remedy = advice("checkpointing", 8 * GIB)
    assert "peak of the trace 12.0 GiB (replayed)" in said(lost, remedy)[0]
    avoiding = Finding("setting", 0, "info", "Set it", evidence={"avoids_failure": True})
    assert said(FAILURE, PEAK, avoiding, remedy)[:3] == ["Out of memory on cuda:0.", "2.00 GiB were free.", "Set it."]
    assert "Activations and parameters hold 55%" in said(FAILURE, PEAK, avoiding, remedy)[3]
    kernel = advice("sdpa-math-kernel", 8 * GIB)
    assert said(PEAK, kernel)[0].startswith("Attention scores hold 8.00 of 20.0 GiB")
