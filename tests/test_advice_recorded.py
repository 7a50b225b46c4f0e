"""Advice and sentences compared with recordings of real PyTorch: the same program under another setting, and what its
script did on purpose.
"""

from __future__ import annotations

import pytest
import recorded

from snapreport.findings.diff import diff
from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.report.activity_text import activity_text
from snapreport.report.diff_text import diff_text


def advice(name: str) -> dict[str, Finding]:
    return {f.evidence["rule"]: f for f in findings(recorded.load(name)) if f.kind == "advice"}


def reserved(name: str) -> int:
    return recorded.memory_stats(name, 0)["reserved_bytes.all.peak"]


def test_a_cache_far_above_the_need_gets_the_setting_that_helped() -> None:
    """``varlen_expandable`` is the same program with expandable segments."""
    found = advice("varlen_default")
    assert found["expandable-segments"].evidence["replayed_bytes"] == reserved("varlen_expandable")
    assert "unset-max-split-size" not in found


def test_a_limit_on_splitting_is_named() -> None:
    """max_split_size_mb:64 made this program reserve 7.11 GiB instead of 2.36."""
    found = advice("varlen_maxsplit")["unset-max-split-size"]
    assert found.evidence["reserved_bytes"] == reserved("varlen_maxsplit")
    assert found.evidence["replayed_bytes"] == pytest.approx(reserved("varlen_default"), rel=0.01)


def test_the_cache_of_keys_and_values_is_counted_once() -> None:
    """Advice about the cache is about all of it, though it grows: at a failure, with the request that failed."""
    snapshot = recorded.load("oom_kv")
    oom = next(f for f in findings(snapshot) if f.kind == "oom")
    shares = {row["category"]: row["bytes"] for row in oom.evidence["categories"]}
    of_stack = {row["stack"]: row["category"] for row in oom.evidence["stacks"]}
    assert of_stack[oom.evidence["stack"]] == "kv cache"
    needed = shares["kv cache"] + oom.evidence["requested_bytes"]
    assert advice("oom_kv")["kv-cache"].evidence["at_peak_bytes"] == needed


def test_the_second_remedy_is_inferred_rather_than_estimated() -> None:
    """An estimate that it may compute in 16 bits would have lowered the peak of both by 10 MiB more."""
    assert advice("oom_kv")["kv-cache"].evidence["second_maximum"]["rules"] == ["kv-cache", "full-logits"]


def test_the_first_optimizer_step_is_named() -> None:
    (oom,) = (f for f in findings(recorded.load("oom_optimizer")) if f.kind == "oom")
    state = next(row["bytes"] for row in oom.evidence["categories"] if row["category"] == "optimizer state")
    assert any("first optimizer step" in line for line in oom.detail) and state > 700 << 20
    assert "A later request fails: 749 MiB more is needed." in advice("oom_optimizer")["expandable-segments"].detail


def test_a_view_that_pins_its_tensor_is_no_graph() -> None:
    """history.append(out.detach()[:, -1]): the remedy is to clone, not to detach."""
    (leak,) = (f for f in findings(recorded.load("leak_outputs")) if f.kind == "leak")
    assert "a view of it" in leak.detail[-1] and "graph" not in leak.detail[-1]


def test_a_closure_in_the_optimizer_step() -> None:
    text = activity_text(recorded.load("lightning_oom").timeline(0).activity)
    assert text == "The program trains: the trace shows forward passes inside an optimizer's step()."


def test_cached_memory_of_other_streams() -> None:
    (found,) = (f for f in findings(recorded.load("streams_many")) if f.kind == "fragmentation")
    assert "belong to 5 other streams" in found.detail[1]


def test_an_interpreter_that_is_linked_statically_names_no_stack() -> None:
    peak = next(f for f in findings(recorded.load("rec_all_stacks")) if f.kind == "peak")
    assert "train scen.py:52" in " ".join(peak.detail) and "python3" not in " ".join(peak.detail)


def test_a_comparison_names_what_is_reserved_and_no_calls_from_elsewhere() -> None:
    """Both programs allocate the same; each from a function of its own."""
    before, after = recorded.load("varlen_default"), recorded.load("varlen_maxsplit")
    text = diff_text(diff(before, after))
    assert "peak reserved: 2.36 GiB → 7.11 GiB (+4.75 GiB, +202%)" in text
    assert "10 common steps: the peaks are equal" in text and "by stack" not in text


def test_models_of_transformers_have_options() -> None:
    """What other programs write themselves is an option there; few frozen weights are no first advice."""
    found = advice("peft_lora")
    assert found["checkpointing"].evidence["line"] == "model.gradient_checkpointing_enable()"
    assert found["checkpointing"].evidence["where_unknown"] == "after the model is loaded"
    assert found["frozen-base"].confidence == "estimate" and next(iter(found)) == "chunked-loss"


def test_state_that_one_device_holds_is_not_on_every_gpu() -> None:
    """nn.DataParallel: the optimizer runs on cuda:0 alone."""
    found = [f for f in findings(recorded.load("two_gpus_dp")) if f.kind == "advice"]
    assert not any("Shard" in finding.title for finding in found)


def test_temporaries_of_the_optimizer_are_no_logits() -> None:
    """At the peak, in AdamW's step, two of the last layer's weight are as large as the logits, which are gone."""
    assert "foreach-optimizer" in (found := advice("leak_outputs"))
    assert "chunked-loss" not in found
