"""Advice on real files: false advice is gone, missed advice is there, and healthy programs get no special rule."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import corpus
import pytest
import recorded

import snapreport
from snapreport.findings.model import Finding
from snapreport.findings.run import findings

GIB = 1 << 30
TRAINING = {"checkpointing", "accumulation", "chunked-loss", "optimizer-state", "offload", "keep-gradients"}
SPECIAL = {
    "no-grad", "foreach-optimizer", "fused-attention", "sdpa-math-kernel", "autocast-copies", "device-imbalance",
    "second-model", "previous-outputs", "retained-graphs", "loaded-checkpoint", "cast-on-device", "collected-weights",
}  # fmt: skip


@lru_cache(maxsize=2)
def found(path: Path) -> list[Finding]:
    return findings(snapreport.load(path))


def on(name: str, kind: str = "advice") -> list[Finding]:
    """Findings on a real file; the test is skipped where it is missing."""
    path = corpus.REAL / f"{name}.pickle"
    if not path.exists():
        pytest.skip(corpus.NO_REAL)
    return [finding for finding in found(path) if finding.kind == kind]


def rules(name: str) -> dict[str, dict[str, Any]]:
    """The evidence of advice by rule; of the same advice for several devices, the largest."""
    return {f.evidence["rule"]: f.evidence for f in reversed(on(name))}


# The file, the rule that was missed there, and the range of GiB that it saves.
MISSED = [
    ("adamw_foreach_ctx128", "foreach-optimizer", 12.6, 12.75),
    ("adamw_foreach_step", "fused-attention", 1.8, 1.95),
    ("attention_97_events", "fused-attention", 2.4, 2.6),
    ("autocast_copies_forward", "autocast-copies", 6.0, 6.1),
    ("autocast_copies_forward", "fused-attention", 4.9, 5.0),
    ("expandable_oom_3gpu", "device-imbalance", 45.0, 50.0),
    ("forward_without_no_grad", "no-grad", 0.2, 0.3),
    ("forward_without_no_grad", "fused-attention", 0.06, 0.08),
    ("inference_churn", "fused-attention", 0.4, 1.1),
    ("lightning_oom", "sdpa-math-kernel", 6.0, 6.8),
    ("train_22k_events", "fused-attention", 1.4, 1.6),
    ("training_late_start", "fused-attention", 1.0, 3.6),
    ("train_step_fp32", "keep-gradients", 0.7, 0.72),
    ("training_late_start", "keep-gradients", 3.5, 3.7),
    ("two_models_alive", "second-model", 15.0, 15.2),
]


@pytest.mark.parametrize(("name", "rule", "least", "most"), MISSED)
def test_what_was_missed(name: str, rule: str, least: float, most: float) -> None:
    assert least * GIB <= rules(name)[rule]["saving"]["saves_bytes"] <= most * GIB


def test_the_request_that_failed_was_for_scores() -> None:
    """Lightning's failure is a softmax that SDPA's math kernel makes, as is 29% of the peak."""
    (oom,) = on("lightning_oom", "oom")
    assert any("SDPA's math kernel" in line for line in oom.detail)


def test_a_foreach_temporary_is_not_for_a_smaller_batch() -> None:
    assert "accumulation" not in rules("adamw_foreach_ctx128")
    assert "func:_multi_tensor_" in rules("adamw_foreach_ctx128")["foreach-optimizer"]["saving"]["query"]


def test_a_second_maximum_is_named_with_its_own_remedy() -> None:
    """Checkpointing claimed 26.1 GiB where the optimizer's step is almost as high as the backward pass."""
    advice = on("adamw_foreach_step")
    checkpointing = next(f for f in advice if f.evidence["rule"] == "checkpointing")
    assert 1.8 * GIB <= checkpointing.bytes <= 1.95 * GIB and any(
        "almost as high" in line for line in checkpointing.detail
    )
    both = next(f.evidence["second_maximum"] for f in advice if f.evidence["second_maximum"])
    assert both["rules"][1] == "foreach-optimizer" and both["saves_bytes"] > 13 * GIB


@pytest.mark.parametrize(
    "name", ["forward_without_no_grad", "inference_churn", "inference_fragmentation", "empty_cache_loop"]
)
def test_no_training_advice_for_inference(name: str) -> None:
    assert not TRAINING & rules(name).keys()


def test_churn_that_empty_cache_explains() -> None:
    (churn,) = on("empty_cache_loop", "churn")
    assert churn.evidence["emptied"] == churn.evidence["segments_freed"] == 390 and churn.evidence["retries"] == 0
    assert "empty-cache" in rules("empty_cache_loop")
    (advice,) = [f for f in on("empty_cache_loop", "advice") if f.evidence["rule"] == "empty-cache"]
    assert advice.evidence["where"].endswith("/entrance.py:104")
    assert "garbage-collection-threshold" not in rules("empty_cache_loop")


def test_retries_that_nobody_called_for() -> None:
    """Each run of releases is one request that found the device full; the advised setting includes what it requires."""
    (churn,) = on("inference_churn", "churn")
    assert churn.evidence["retries"] == 39 and churn.evidence["emptied"] == 0
    advice = next(f for f in on("inference_churn") if f.evidence["rule"] == "garbage-collection-threshold")
    assert "set_per_process_memory_fraction" in " ".join(advice.detail)


@pytest.mark.parametrize("name", ["empty_cache_loop", "inference_churn"])
def test_nothing_is_said_of_buffers_that_the_allocator_reuses(name: str) -> None:
    assert not any("buffer" in line for f in on(name, "churn") for line in f.detail)


def test_expandable_segments_do_not_join_what_a_live_block_parts() -> None:
    assert not {"expandable-segments", "max-split-size"} & rules("inference_fragmentation").keys()
    (finding,) = on("inference_fragmentation", "fragmentation")
    assert finding.evidence["joined_bytes"] < finding.evidence["requested_bytes"]
    assert any("live blocks lie between their free ranges" in line for line in finding.detail)


def test_a_new_segment_is_measured_after_its_allocation() -> None:
    (finding,) = on("transient_free_segment", "fragmentation")
    assert 7.5 * GIB < finding.evidence["free_segment_bytes"] < 7.6 * GIB


def test_what_was_reserved_before_the_trace_says_nothing() -> None:
    assert on("two_models_alive", "fragmentation") == []
    path = recorded.ROOT / "rec_enabled_state.pickle"
    if path.exists():
        assert not [f for f in found(path) if f.kind == "fragmentation"]


def test_sharding_only_where_there_are_more_gpus() -> None:
    for name in ("train_22k_events", "train_step_fp32"):
        for finding in on(name):
            assert "Shard" not in finding.title
            assert "shard" not in " ".join(finding.detail) or "With more than one GPU" in " ".join(finding.detail)


@pytest.mark.parametrize("name", [n for n in recorded.names() if n.startswith("gpt_")] or ["none"])
def test_healthy_programs_get_no_special_advice(name: str) -> None:
    if name == "none":
        pytest.skip(recorded.NONE)
    assert not SPECIAL & {f.evidence["rule"] for f in found(recorded.ROOT / f"{name}.pickle") if f.kind == "advice"}


def test_a_peak_that_needs_the_gradients_is_not_promised_to_fall() -> None:
    (finding,) = [f for f in on("train_step_fp32") if f.evidence["rule"] == "keep-gradients"]
    assert "→" not in finding.title and any("needs them" in line for line in finding.detail)


def test_gradients_that_a_program_zeroes() -> None:
    """Planted in one recording; in the others each step drops them."""
    for name in ("gpt_accum", "gpt_fp32_foreach", "gpt_bf16_big"):
        given = {f.evidence["rule"] for f in findings(recorded.load(name)) if f.kind == "advice"}
        assert ("keep-gradients" in given) == (name == "gpt_accum")


def test_no_grad_is_worth_what_a_run_with_it_shows() -> None:
    """The same program was recorded with no_grad: its peak is within 5% of the replayed one."""
    with_graph = recorded.load("late_gpt_infer_grad")
    advice = next(f for f in findings(with_graph) if f.kind == "advice" and f.evidence["rule"] == "no-grad")
    without = recorded.load("late_gpt_infer").timeline(0).peak_bytes
    assert advice.evidence["saving"]["peak_bytes"] == pytest.approx(without, rel=0.05)
