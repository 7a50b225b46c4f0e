"""Rules whose cause no shared file has in every form: outputs of the previous iteration, SDPA's math kernel without C++
frames, and a second model beside the one in use.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from scripted import MIB, Script
from test_findings_advice import BACKWARD, FORWARD, OPTIMIZER, TORCH, WEIGHTS, advised

import snapreport
from snapreport.findings.diagnosis import headline
from snapreport.findings.model import Finding
from snapreport.findings.run import findings
from snapreport.snapshot import Snapshot

LOOP = (("/app/evaluate.py", "loop"),)
MIXED = (TORCH + "nn/modules/linear.py", "forward")


def evaluation(*, deletes: bool, iterations: int = 6) -> Script:
    """Forward passes of 200 MiB whose outputs of 100 MiB share one name: each is freed after the next is made."""
    script = Script()
    for _ in range(12):
        script.alloc("parameter", 10 * MIB, *WEIGHTS)
    outputs = 0
    for _ in range(iterations):
        if deletes and outputs:
            script.free(outputs, *LOOP)
            outputs = 0
        for _ in range(8):
            script.free(script.alloc("temporary", MIB, MIXED, *FORWARD), *FORWARD)
        hidden = script.alloc("hidden", 200 * MIB, MIXED, *FORWARD)
        made = script.alloc("outputs", 100 * MIB, ("/app/model.py", "head"), *FORWARD)
        script.free(hidden, *FORWARD)
        if outputs:
            script.free(outputs, *LOOP)
        outputs = made
    return script


def test_outputs_of_the_iteration_before_are_worth_what_they_weigh(tmp_path: Path) -> None:
    advice = advised(evaluation(deletes=False).raw(), tmp_path)["previous-outputs"]
    saving = advice.evidence["saving"]
    assert (saving["peak_bytes"], saving["saves_bytes"]) == (420 * MIB, 100 * MIB)
    assert advice.evidence["previous_bytes"] == 100 * MIB and "Call del on it" in advice.detail[0]


@pytest.mark.parametrize(("deletes", "iterations"), [(True, 6), (False, 2)])
def test_outputs_that_are_deleted_or_seen_once_are_no_matter(tmp_path: Path, deletes: bool, iterations: int) -> None:
    assert "previous-outputs" not in advised(evaluation(deletes=deletes, iterations=iterations).raw(), tmp_path)


def attention(scores: int, line: tuple[tuple[str, str], ...]) -> Script:
    """Three steps of twelve layers with queries, keys and values of 16 MiB; ``line`` allocates what attention needs.
    No backward pass needs the product.
    """
    script = Script()
    for _ in range(12):
        script.alloc("parameter", 10 * MIB, *WEIGHTS)
    for number in range(3):
        began, saved = len(script.events), []
        for _ in range(12):
            saved.append(script.alloc("projection", 48 * MIB, MIXED, *line))
            saved += [script.alloc("scaled", 16 * MIB, *line) for _ in range(2)]
            made = [script.alloc("scores", scores * MIB, *line) for _ in range(2 if scores else 0)]
            saved += made[1:]
            saved.append(script.alloc("output", 16 * MIB, *line))
            if made:
                script.free(made[0], *line)
        grads = [script.alloc("gradient", 10 * MIB, *BACKWARD) for _ in range(12)]
        for address in [*saved[::-1], *grads]:
            script.free(address, *BACKWARD)
        script.step(number, began)
    return script


def test_math_kernel_without_cpp_frames(tmp_path: Path) -> None:
    """One line of Python makes the scaled queries and keys, the scores and their softmax: a fused kernel makes none."""
    line = (("/app/model.py", "attend"), *FORWARD)
    script = attention(256, line)
    advice = advised(script.raw(), tmp_path)
    assert "fused-attention" not in advice
    taken = advice["sdpa-math-kernel"].evidence["taken_at_peak_bytes"]
    assert taken >= script.at_peak("scores") == 13 * 256 * MIB
    assert "sdpa-math-kernel" not in advised(attention(0, line).raw(), tmp_path)


@pytest.mark.parametrize("native", [(), (("??", "at::_scaled_dot_product_attention_math"),)])
def test_the_first_sentence_names_a_kernel_that_is_recorded(
    tmp_path: Path, native: tuple[tuple[str, str], ...]
) -> None:
    """Without C++ frames a program's own product and softmax in one line look like SDPA's math kernel."""
    script = attention(256, (*native, ("/app/model.py", "attend"), *FORWARD))
    assert "sdpa-math-kernel" in advised(script.raw(), tmp_path)
    first = headline(findings(snapreport.load(tmp_path / "advice.pickle")), 0)[0]
    assert first.startswith("Scores, softmax and copies of SDPA's math kernel" if native else "Attention scores hold")
    do = "let scaled_dot_product_attention use" if native else "use scaled_dot_product_attention with"
    assert f": {do} a fused kernel" in first


def in_parts(parts: int) -> Script:
    """Three steps whose batch runs in that many parts: its peak is at the loss, before there are gradients. The second
    part's are added to those of the first.
    """
    script = Script()
    for _ in range(8):
        script.alloc("parameter", 20 * MIB, *WEIGHTS)
    for number in range(3):
        began, grads = len(script.events), list[int]()
        for _ in range(parts):
            saved = [script.alloc("activation", 60 * MIB // parts, MIXED, *FORWARD) for _ in range(8)]
            loss = script.alloc("temporary", 200 * MIB // parts, *BACKWARD)
            script.free(loss, *BACKWARD)
            new = len(grads) == 0
            for address in saved[::-1]:
                script.free(address, *BACKWARD)
                gradient = script.alloc("gradient", 20 * MIB, *BACKWARD)
                if new:
                    grads.append(gradient)
                else:
                    script.free(gradient, *BACKWARD)
        for address in grads:
            script.free(address, (TORCH + "optim/optimizer.py", "zero_grad"))
        script.step(number, began)
    return script


def test_half_of_a_batch_keeps_the_gradients_of_the_other_half(tmp_path: Path) -> None:
    whole, halves = in_parts(1), in_parts(2)
    evidence = advised(whole.raw(), tmp_path)["accumulation"].evidence
    assert evidence["gradient_bytes"] == 8 * 20 * MIB
    assert whole.total(whole.peak) == (160 + 680) * MIB and halves.total(halves.peak) == (160 + 340 + 160) * MIB
    more = evidence["saving"]["peak_bytes"] - halves.total(halves.peak)
    assert 0 <= more <= 680 * MIB / 4096 + 9


OWN_LOOP = ("/app/train.py", "train")


def written(function: str, *, scores: int) -> Script:
    """Three steps of four layers that are called outside of any module. One call of ``function`` copies queries and
    keys and makes three matrices of scores, one inside it the output; the first, a product, is not saved.
    """
    script = Script()
    for _ in range(12):
        script.alloc("parameter", 10 * MIB, *WEIGHTS)
    line = (("/app/layers.py", function), OWN_LOOP)
    last = (("/app/layers.py", "mixed"), *line)
    for number in range(3):
        began, saved = len(script.events), []
        for _ in range(4):
            saved.append(script.alloc("projection", 48 * MIB, MIXED, *line))
            saved += [script.alloc("copy", 16 * MIB, *line) for _ in range(2)]
            product, *of_softmax = (script.alloc("scores", scores * MIB, *line) for _ in range(3))
            saved += [*of_softmax, script.alloc("output", 16 * MIB, *last)]
            script.free(product, *last)
        grads = [script.alloc("gradient", 10 * MIB, *BACKWARD) for _ in range(12)]
        for address in [*saved[::-1], *grads]:
            script.free(address, *BACKWARD)
        script.step(number, began)
    return script


def test_attention_outside_of_a_module_is_known_by_its_name(tmp_path: Path) -> None:
    """Without its name, equal matrices in a row say nothing outside of a forward pass. A call inside makes the
    output, so this is no kernel that makes all.
    """
    script = written("attend", scores=128)
    advice = advised(script.raw(), tmp_path)
    assert advice["fused-attention"].evidence["taken_at_peak_bytes"] >= script.at_peak("scores") == 9 * 128 * MIB
    assert "sdpa-math-kernel" not in advice
    assert "fused-attention" not in advised(written("mix", scores=128).raw(), tmp_path)


def distillation(*, product: bool, output: int) -> Script:
    """Three steps whose loss applies softmax to outputs of 100 MiB: that of attention follows a ``product``, and an
    ``output`` follows it.
    """
    script = Script()
    for _ in range(12):
        script.alloc("parameter", 10 * MIB, *WEIGHTS)
    line = (("/app/distil.py", "loss"), OWN_LOOP)
    functional = TORCH + "nn/functional.py"
    for number in range(3):
        began = len(script.events)
        saved = [script.alloc("logits", 100 * MIB, MIXED, *FORWARD) for _ in range(2)]
        saved.append(script.alloc("log softmax", 100 * MIB, (functional, "log_softmax"), *line))
        if product:
            saved.append(script.alloc("product", 100 * MIB, *line))
        saved.append(script.alloc("softmax", 100 * MIB, (functional, "softmax"), *line))
        if output:
            saved.append(script.alloc("output", output, *line))
        saved.append(script.alloc("loss", 100 * MIB, (functional, "kl_div"), *line))
        grads = [script.alloc("gradient", 10 * MIB, *BACKWARD) for _ in range(12)]
        for address in [*saved[::-1], *grads]:
            script.free(address, *BACKWARD)
        script.step(number, began)
    return script


def test_softmax_of_a_loss_is_no_attention(tmp_path: Path) -> None:
    assert "fused-attention" in advised(distillation(product=True, output=10 * MIB).raw(), tmp_path)
    for product, output in ((False, 0), (False, 10 * MIB), (True, 0), (True, 512)):
        assert "fused-attention" not in advised(distillation(product=product, output=output).raw(), tmp_path)


RESTORED = (TORCH + "serialization.py", "default_restore_location")
WEIGHTS_ONLY = (TORCH + "_weights_only_unpickler.py", "load")
READ = (TORCH + "serialization.py", "_load")


def resumed(*, loaded: list[int], made: list[int], reader: tuple[str, str], keeps: bool = True) -> Script:
    """Two steps of a model with parameters of ``made`` MiB, after a file with tensors of ``loaded`` MiB was read."""
    script = Script()
    read = [script.alloc("loaded", size * MIB, RESTORED, reader, READ, OWN_LOOP) for size in loaded]
    for size in made:
        script.alloc("parameter", size * MIB, *WEIGHTS)
    if not keeps:
        for address in read:
            script.free(address, OWN_LOOP)
    for number in range(2):
        began = len(script.events)
        saved = [script.alloc("activation", 30 * MIB, MIXED, *FORWARD) for _ in range(3)]
        grads = [script.alloc("gradient", size * MIB, *BACKWARD) for size in made]
        for address in [*saved[::-1], *grads]:
            script.free(address, *BACKWARD)
        script.step(number, began)
    return script


@pytest.mark.parametrize("times", [1, 3])
def test_a_checkpoint_that_stays_loaded_is_worth_its_twins(tmp_path: Path, times: int) -> None:
    """Of each size as many as there are parameters: the rest may be an optimizer's state, which is used as loaded."""
    sizes = [10, 20, 30, 40]
    script = resumed(loaded=sizes * times, made=sizes, reader=WEIGHTS_ONLY)
    saving = advised(script.raw(), tmp_path)["loaded-checkpoint"].evidence["saving"]
    assert saving["saves_bytes"] == sum(sizes) * MIB
    assert saving["peak_bytes"] == script.total(script.peak) - sum(sizes) * MIB


def test_what_was_loaded_and_is_used_or_freed_is_no_checkpoint_that_stays(tmp_path: Path) -> None:
    sizes = [10, 20, 30, 40]
    for script in (
        resumed(loaded=sizes, made=sizes, reader=WEIGHTS_ONLY, keeps=False),
        resumed(loaded=sizes, made=[], reader=WEIGHTS_ONLY),  # assigned to the model
        resumed(loaded=[40] * 4, made=sizes, reader=WEIGHTS_ONLY),  # one twin is no model
        resumed(loaded=sizes, made=sizes, reader=("/usr/lib/python3/pickle.py", "load")),  # may be a model
    ):
        assert "loaded-checkpoint" not in advised(script.raw(), tmp_path)


def test_graphs_that_leak_are_no_layers(tmp_path: Path) -> None:
    """Eight steps that each leave a graph allocated look like eight layers: the leak has its own remedy."""
    script = Script()
    script.alloc("parameter", 10 * MIB, *WEIGHTS)
    for number in range(8):
        began = len(script.events)
        script.free(script.alloc("temporary", MIB, *FORWARD, *LOOP), *FORWARD)
        script.free(script.alloc("temporary", MIB, *LOOP), *LOOP)
        for line in ("embed", "encode", "decode"):
            script.alloc("graph", 40 * MIB, ("/app/model.py", line), *FORWARD, ("/app/loss.py", "second_loss"), *LOOP)
        script.free(script.alloc("gradient", 10 * MIB, *BACKWARD), *BACKWARD)
        script.step(number, began)
    (leak,) = (f for f in findings(loaded(script, tmp_path)) if f.kind == "leak")
    assert "in calls from second_loss loss.py:7" in leak.title
    assert not {"checkpointing", "accumulation", "mixed-precision"} & advised(script.raw(), tmp_path).keys()


def stored(*, graph: bool, outputs: int = 0, steps: int = 8) -> Script:
    """Training steps whose loop stores what a forward pass returned until after the next step: with its ``graph``,
    which no backward pass frees then, or only that many ``outputs``.
    """
    script = Script()
    script.alloc("parameter", 10 * MIB, *WEIGHTS)
    lines = ("embed", "attend", "project", "expand", "contract", "head")
    kept: list[int] = []
    for _ in range(steps):
        made = [script.alloc("activation", 20 * MIB, ("/app/model.py", line), *FORWARD) for line in lines]
        gradient = script.alloc("gradient", 10 * MIB, *BACKWARD)
        after = script.alloc("gradient", 10 * MIB, *BACKWARD)
        survivors = made if graph else made[len(made) - outputs :]
        for one in made[: len(made) - len(survivors)]:
            script.free(one, *BACKWARD)
        script.free(script.alloc("temporary", MIB, *OPTIMIZER), *OPTIMIZER)
        for one in (gradient, after):
            script.free(one, (TORCH + "optim/optimizer.py", "zero_grad"))
        for one in kept:
            script.free(one, *LOOP)
        kept = survivors
    return script


def test_a_graph_that_outlives_its_backward_pass_is_worth_what_its_release_saves(tmp_path: Path) -> None:
    advice = advised(stored(graph=True).raw(), tmp_path)
    found, released = advice["retained-graphs"], loaded(stored(graph=False, outputs=1), tmp_path).timeline(0)
    # A share of the bytes stands for a part of their lives: whole parts of 1 / 4096, rounded down.
    more = found.evidence["saving"]["peak_bytes"] - released.peak_bytes
    assert 0 <= more <= 240 * MIB / 4096
    assert found.evidence["retained_bytes"] == 200 * MIB and "freed in loop evaluate.py" in found.detail[0]
    assert "checkpointing" not in advice


@pytest.mark.parametrize("outputs", [0, 1, 4])
def test_outputs_that_are_stored_are_no_graph(tmp_path: Path, outputs: int) -> None:
    assert "retained-graphs" not in advised(stored(graph=False, outputs=outputs).raw(), tmp_path)


def loaded(script: Script, folder: Path) -> Snapshot:
    path = folder / "written.pickle"
    path.write_bytes(pickle.dumps(script.raw(), 4))
    return snapreport.load(path)


def late(sizes: list[int], made: int) -> dict[str, Any]:
    """Recorded after blocks of ``sizes`` were allocated: forward passes that allocate ``made`` bytes at a time."""
    script = Script()
    for size in sizes:
        script.alloc("older", size, *WEIGHTS)
    began = len(script.events)
    for _ in range(4):
        held = [script.alloc("activation", made, *FORWARD) for _ in range(8)]
        for address in held:
            script.free(address, *FORWARD)
    raw = script.raw()
    raw["device_traces"] = [script.events[began:]]
    return raw


def transformer(width: int, layers: int = 8) -> list[int]:
    """Bytes of 32-bit weights: projections, feed-forward, norms, and a vocabulary of 1,009."""
    per_layer = [width * width] * 4 + [4 * width * width] * 2 + [width] * 4
    return [4 * elements for elements in [*per_layer * layers, 1009 * width]]


def second_model(sizes: list[int], made: int, folder: Path) -> Finding | None:
    return advised(late(sizes, made), folder).get("second-model")


def test_a_model_of_another_width_is_not_in_use(tmp_path: Path) -> None:
    advice = second_model(transformer(320) + transformer(512), 7 * 11 * 512 * 4, tmp_path)
    assert advice is not None and advice.evidence["widths"] == [512, 320]
    # The vocabulary is not a multiple of a width, so that its matrix may belong to either model.
    assert advice.evidence["saving"]["saves_bytes"] == sum(transformer(320)[:-1])
    other = second_model(transformer(320) + transformer(512), 7 * 11 * 320 * 4, tmp_path)
    assert other is not None and other.evidence["saving"]["saves_bytes"] == sum(transformer(512)[:-1])


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(transformer(512) * 2, id="a model and a copy of it: both may be in use"),
        pytest.param(transformer(512), id="one model"),
        pytest.param(
            [4 * n for n in ([128 * 128] * 8 + [9 * 64 * 64] * 8 + [64] * 16 + [512] * 16 + [512 * 512] * 8)],
            id="convolutions: a kernel of 3 × 3 over 64 channels is a square of 192, and no vector has its side",
        ),
        pytest.param(
            [*transformer(512), *[4 * 320 * 320] * 8], id="other square matrices alone are no model: it has norms, too"
        ),
    ],
)
def test_sizes_of_one_model_are_no_second_one(tmp_path: Path, sizes: list[int]) -> None:
    assert second_model(sizes, 7 * 11 * 512 * 4, tmp_path) is None


def test_both_models_in_use_are_both_needed(tmp_path: Path) -> None:
    sizes = transformer(320) + transformer(512)
    assert second_model(sizes, 4 * 320 * 512, tmp_path) is None


def test_gpus_of_one_process_are_not_told_to_shard() -> None:
    """Each has layers, or a replica, of its own already."""
    path = Path(__file__).parent / "recordings" / "causes" / "none.pickle.xz"
    one = snapreport.load(path)
    two = snapreport.load(path)
    two.recording.devices[1] = replace(two.recording.devices[0], device=1)
    for snapshot, is_said in ((one, True), (two, False)):
        (advice, *_) = (f for f in findings(snapshot) if f.kind == "advice" and f.evidence["rule"] == "optimizer-state")
        assert any("sharded" in str(line) for line in advice.detail) == is_said


def scored(*, parts: int = 1, pieces: int = 0, reads: int = 8) -> Script:
    """512 vectors and 16,384 others of 64 numbers, and the ten best of each, in ``parts``; beside ``pieces`` of a list
    that is joined. ``reads``: bytes of a number of what follows the scores of the best.
    """
    script, line, rows = Script(), ("/app/search.py", "nearest"), 512 // parts
    for count in (512, 16_384):
        script.alloc("vectors", count * 64 * 4, ("/app/search.py", "encode"))
    for _ in range(pieces):
        script.alloc("piece", 512 * 16_384 * 4 // pieces, ("/app/search.py", "collect"))
    for _ in range(parts):
        scores = script.alloc("scores", rows * 16_384 * 4, line)
        for each in (4, reads):
            script.alloc("best", rows * 10 * each, line)
        script.free(scores, line)
    return script


@pytest.mark.parametrize(
    ("script", "is_given"),
    [
        (scored(), True),
        (scored(parts=4), False),  # in chunks already
        (scored(pieces=8), False),  # as large as a list that is joined
        (scored(reads=4), False),  # no indices
    ],
)
def test_scores_of_which_the_best_are_used_need_not_be_made_at_once(
    script: Script, is_given: bool, tmp_path: Path
) -> None:
    advice = [f for f in findings(loaded(script, tmp_path)) if f.evidence.get("rule") == "score-chunks"]
    assert len(advice) == is_given
    for one in advice:
        assert one.evidence["saving"]["saves_bytes"] == script.at_peak("scores") * 7 // 8
