"""What recordings leave out changes no promise. A ring buffer drops the beginning: what is alive from before the
trace has a size and nothing else.
"""

from __future__ import annotations

from pathlib import Path

import corpus
import less
import polars as pl
import pytest
from scripted import MIB, Script
from test_findings_advice import BACKWARD, FORWARD, OPTIMIZER, TORCH, WEIGHTS, advised, rules_of

from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.snapshot import load

RECORDINGS = Path(__file__).parent / "recordings"
LATE = ("last 70%", "last 40%")
INITIAL, FOREACH = (
    [(f"{TORCH}optim/adam.py", function), OPTIMIZER[1]] for function in ("_init_group", "_multi_tensor_adam")
)


def advice_of(name: str, way: str) -> dict[str, Finding]:
    return rules_of(load(less.made(RECORDINGS / f"{name}.pickle.xz", way)))


def whole(name: str) -> dict[str, Finding]:
    return rules_of(corpus.loaded(RECORDINGS / f"{name}.pickle.xz"))


def peak(advice: Finding) -> int:
    return int(advice.evidence["saving"]["peak_bytes"])


@pytest.mark.parametrize("way", LATE)
@pytest.mark.parametrize("name", ["causes/average", "witnesses/loaded"])
def test_a_third_copy_of_the_weights_is_no_state_of_adam(name: str, way: str) -> None:
    """An average of the weights, and a checkpoint that was loaded: neither shrinks with the optimizer's state."""
    late = advice_of(name, way)
    assert "offload" not in late and peak(late["optimizer-state"]) == peak(whole(name)["optimizer-state"])


@pytest.mark.parametrize("way", LATE)
def test_results_from_before_the_trace_are_known_by_what_joins_them(way: str) -> None:
    late, seen = (
        advice["collected-outputs"]
        for advice in (advice_of("witnesses/predictions", way), whole("witnesses/predictions"))
    )
    assert peak(late) == peak(seen)
    assert (late.evidence["iterations"], late.detail) == (seen.evidence["iterations"], seen.detail)


@pytest.mark.parametrize("way", LATE)
@pytest.mark.parametrize("name", ["witnesses/citations", "witnesses/citation_native", "mistakes/merged_adapters"])
def test_what_does_not_grow_with_a_batch_is_not_halved(name: str, way: str) -> None:
    """One graph, whose data are read before the trace; and weights to which each pass adds those of adapters."""
    assert not {"accumulation", "inference-batch"} & (advice_of(name, way).keys() | whole(name).keys())


def accumulated(parts: int) -> Script:
    """Two steps of Adam's, each after so many forward and backward passes."""
    script = Script()
    for _ in range(8):
        script.alloc("parameter", 20 * MIB, *WEIGHTS)
    for _ in range(2):
        gradients = list[int]()
        for _ in range(parts):
            saved = [script.alloc("activation", 60 * MIB, *FORWARD) for _ in range(8)]
            for address in saved[::-1]:
                script.free(address, *BACKWARD)
                gradient = script.alloc("gradient", 20 * MIB, *BACKWARD)
                if len(gradients) < 8:
                    gradients.append(gradient)
                else:
                    script.free(gradient, *BACKWARD)
        for address in gradients:
            script.free(script.alloc("temporary", 20 * MIB, *OPTIMIZER), *OPTIMIZER)
            script.free(address, *OPTIMIZER)
    return script


@pytest.mark.parametrize("parts", [1, 2])
def test_one_step_shows_whether_gradients_are_accumulated(tmp_path: Path, parts: int) -> None:
    raw = accumulated(parts).raw()
    events = raw["device_traces"][0]
    raw["device_traces"] = [events[len(events) // 2 :]]
    assert ("accumulation" in advised(raw, tmp_path)) == (parts == 1)


def test_cpp_frames_alone_are_enough_for_a_sentence() -> None:
    """As of a program in C++: no line of Python made what the advice is about."""
    advice = advice_of("witnesses/categorical_native", "C++ frames")["one-hot-inputs"]
    assert any("from at::native::" in sentence for sentence in advice.detail)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("fit/views1024", "chunked-loss"),
        ("fit/compared1500", "chunked-loss"),
        ("witnesses/all_triplets", "triplet-chunks"),
        ("witnesses/recall", "score-chunks"),
        ("witnesses/codebook", "distance-matrix"),
        ("mistakes/read_again", "full-logits"),
        ("mistakes/smoothed", "one-hot"),
    ],
)
def test_a_loss_in_a_library_is_one_of_the_program(name: str, rule: str) -> None:
    seen, there = whole(name), advice_of(name, "in a library")
    assert peak(there[rule]) == peak(seen[rule])
    assert there.keys() <= seen.keys()


def test_a_trace_that_begins_in_a_step_has_temporaries_of_it() -> None:
    """The step of Adam frees them; its state stays."""
    late = load(less.made(RECORDINGS / "mistakes" / "merged_adapters.pickle.xz", "last 70%"))
    categories = late.allocations(0).filter(pl.col("alloc_event") < 0)["category"].to_list()
    assert categories.count("temporary") == 6 and "optimizer state" not in categories


@pytest.mark.parametrize(
    ("name", "way", "rules"),
    [
        # Graphs of two evaluations, of three backward passes: they run between some steps only.
        ("validation_after", "first 50%", {"accumulation"}),
        ("witnesses/tables", "first 50%", {"accumulation"}),
        # Scores of attention, and a product with the values, are no differences of vectors.
        ("witnesses/tight", "first 80%", {"distance-matrix", "score-chunks"}),
        # Memory ran out in a backward pass: what it had not freed yet is no result of a loop.
        ("mistakes/summed", "out of memory", {"collected-outputs"}),
    ],
)
def test_what_ends_early_promises_nothing_of_its_own(name: str, way: str, rules: set[str]) -> None:
    seen, early = whole(name), advice_of(name, way)
    assert not rules & early.keys() or all(peak(early[rule]) >= peak(seen[rule]) for rule in rules & early.keys())


def test_what_ends_early_has_its_cause_still() -> None:
    assert "data-on-device" in advice_of("witnesses/tables", "first 50%")
    assert "backward-each" in advice_of("mistakes/summed", "out of memory")
    assert "score-chunks" in advice_of("witnesses/recall", "out of memory")


def test_layers_of_the_pass_in_which_a_trace_ends_do_not_leak() -> None:
    early = load(less.made(RECORDINGS / "witnesses" / "waves.pickle.xz", "first 80%"))
    assert not [one for one in findings(early) if one.kind == "leak"]


@pytest.mark.parametrize("way", ["first 80%", "first 50%", "out of memory"])
@pytest.mark.parametrize("name", ["witnesses/unfrozen", "conditions/dreaming", "leaks/2.15.0_ends_stopped"])
def test_a_graph_that_is_alive_at_the_end_is_no_error(name: str, way: str) -> None:
    advice_of(name, way)


def test_temporaries_of_the_step_in_which_memory_runs_out_are_no_state(tmp_path: Path) -> None:
    """Adam's foreach code has them of all parameters at once; the fused kernel has none."""
    script = Script()
    for kind, where in (("parameter", WEIGHTS), ("gradient", BACKWARD), ("state", INITIAL), ("temporary", FOREACH)):
        for _ in range(8):
            script.alloc(kind, 20 * MIB, *where)
    raw = script.raw()
    raw["device_traces"][0].append({**script.events[-1], "action": "oom", "addr": 0, "device_free": MIB})
    advice = advised(raw, tmp_path)
    assert advice["foreach-optimizer"].evidence["at_peak_bytes"] == 9 * 20 * MIB  # with the request that failed
    assert advice["optimizer-state"].evidence["at_peak_bytes"] == 8 * 20 * MIB
    assert "offload" not in advice
